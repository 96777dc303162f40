"""Pages of the optimization database."""

from __future__ import annotations

from django.urls import path

from history import views, views_import

urlpatterns = [
    path("history/", views.history, name="history"),
    path("history/<int:pk>/", views.record, name="history-record"),
    path("history/<int:pk>/delete/", views.delete, name="history-delete"),
    path("history/export.<str:kind>", views.export, name="history-export"),
    path("history/cited/<path:key>/", views.cited, name="history-cited"),
    path("history/import/", views_import.choose, name="history-import"),
    path("history/import/<int:pk>/", views_import.file, name="history-file"),
]
