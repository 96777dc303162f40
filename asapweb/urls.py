"""All addresses of the site: the pages of each app, and the REST API below /api/."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver

urlpatterns: list[URLPattern | URLResolver] = []
