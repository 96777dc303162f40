"""Pages of the challenge dialogue."""

from __future__ import annotations

from django.urls import path

from dialogue import views, views_ask, views_palette, views_replay
from dialogue.stream import stream

urlpatterns = [
    path("experiments/<int:pk>/dialogue/", views.dialogue, name="dialogue"),
    path("experiments/<int:pk>/dialogue/<int:thread_pk>/", views.dialogue, name="dialogue-thread"),
    path("experiments/<int:pk>/dialogue/panel/", views.panel, name="dialogue-panel"),
    path("experiments/<int:pk>/dialogue/ask/", views_ask.ask, name="dialogue-ask"),
    path("experiments/<int:pk>/dialogue/hold/", views_palette.hold, name="dialogue-hold"),
    path("experiments/<int:pk>/compute/", views_palette.results, name="palette"),
    path("experiments/<int:pk>/compute/<slug:key>/", views_palette.computation, name="computation"),
    path("experiments/<int:pk>/compute/<slug:key>/row/", views_palette.row, name="palette-row"),
    path("experiments/<int:pk>/number/", views_palette.number, name="number"),
    path("threads/<int:pk>/delete/", views_ask.delete, name="thread-delete"),
    path("threads/<int:pk>/propose/", views_ask.propose, name="thread-propose"),
    path("answers/<int:pk>/", views.message, name="answer"),
    path("answers/<int:pk>/stream/", stream, name="answer-stream"),
    path("answers/<int:pk>/stop/", views_ask.stop, name="answer-stop"),
    path("answers/<int:pk>/retry/", views_ask.retry, name="answer-retry"),
    path("answers/<int:pk>/cards/<int:index>/<str:decision>/", views_ask.card, name="answer-card"),
    path("answers/<int:pk>/offers/<int:index>/add/", views_ask.add, name="answer-add"),
    path("held/<int:pk>/release/", views_ask.release, name="held-release"),
    path("experiments/<int:pk>/replay/<int:message>/", views_replay.replay, name="replay"),
    path("experiments/<int:pk>/replay/run/<int:run>/<slug:agent>/", views_replay.replay, name="replay-work"),
]
