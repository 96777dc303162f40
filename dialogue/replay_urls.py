"""Pages of replays."""

from __future__ import annotations

from django.urls import path

from dialogue import views_replay

urlpatterns = [
    path("experiments/<int:pk>/replay/", views_replay.replays, name="replays"),
    path("experiments/<int:pk>/replay/<int:message>/", views_replay.replay, name="replay"),
    path("experiments/<int:pk>/replay/run/<int:run>/<slug:agent>/", views_replay.replay_work, name="replay-work"),
]
