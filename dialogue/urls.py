"""Pages of the challenge dialogue."""

from __future__ import annotations

from django.urls import path

from dialogue.stream import stream

urlpatterns = [
    path("answers/<int:pk>/stream/", stream, name="answer-stream"),
]
