"""Pages of the knowledge base."""

from __future__ import annotations

from django.urls import path

from knowledge import views, views_documents

urlpatterns = [
    path("knowledge/", views.knowledge, name="knowledge"),
    path("knowledge/passages/<slug:key>/", views.passage, name="knowledge-passage"),
    path("knowledge/documents/", views_documents.documents, name="knowledge-documents"),
    path("knowledge/documents/<int:pk>/", views_documents.document, name="knowledge-document"),
    path("knowledge/documents/<int:pk>/file/", views_documents.original, name="knowledge-document-file"),
    path("knowledge/documents/<int:pk>/delete/", views_documents.delete, name="knowledge-document-delete"),
]
