"""All addresses of the site: the pages of each app, and the REST API below /api/."""

from __future__ import annotations

from django.urls import include, path

urlpatterns = [
    path("", include("asapweb.page_urls")),
    path("", include("accounts.urls")),
    path("", include("knowledge.urls")),
    path("", include("experiments.urls")),
    path("", include("diagnosis.urls")),
    path("", include("history.urls")),
    path("", include("proposals.urls")),
    path("", include("launches.urls")),
    path("", include("campaigns.urls")),
    path("", include("dialogue.urls")),
    path("api/", include("campaigns.api.urls")),
    path("api/", include("dialogue.api.urls")),
    path("api/", include("launches.api.urls")),
    path("api/", include("proposals.api.urls")),
]

handler400 = "asapweb.error_pages.bad_request"
handler403 = "asapweb.error_pages.permission_denied"
handler404 = "asapweb.error_pages.page_not_found"
handler500 = "asapweb.error_pages.server_error"
