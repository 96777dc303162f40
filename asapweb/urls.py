"""All addresses of the site: the pages of each app, and the REST API below /api/."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from experiments.stream import stream

urlpatterns: list[URLPattern | URLResolver] = [
    path("experiments/<int:pk>/events/", stream, name="event_stream"),
    path("api/", include("proposals.api.urls")),
]
