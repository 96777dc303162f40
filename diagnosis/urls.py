"""Pages of a diagnosis."""

from __future__ import annotations

from django.urls import path

from diagnosis import views, views_compare, views_report, views_timeline

urlpatterns = [
    path("compare/", views_compare.compare, name="compare"),
    path("compare/ops/", views_compare.ops, name="compare_ops"),
    path("compare/evidence/<int:index>/", views_compare.evidence, name="compare_evidence"),
    path("experiments/<int:pk>/", views.experiment, name="experiment"),
    path("experiments/<int:pk>/recording/", views.state_recording, name="state_recording"),
    path("experiments/<int:pk>/ops/", views.ops, name="ops"),
    path("experiments/<int:pk>/ops/<int:rank>/", views.op, name="op"),
    path("experiments/<int:pk>/report/", views_report.report, name="report"),
    path("experiments/<int:pk>/report.md", views_report.markdown, name="report_markdown"),
    path("experiments/<int:pk>/report.json", views_report.contract, name="report_json"),
    path("experiments/<int:pk>/timeline/", views_timeline.timeline, name="timeline"),
    path(
        "experiments/<int:pk>/timeline/tiles/<str:version>/<int:level>/<int:index>/",
        views_timeline.tile,
        name="timeline_tile",
    ),
    path("experiments/<int:pk>/timeline/sums/", views_timeline.sums_part, name="timeline_sums"),
    path("experiments/<int:pk>/timeline/event/", views_timeline.event, name="timeline_event"),
    path("experiments/<int:pk>/timeline/spans/", views_timeline.spans, name="timeline_spans"),
    path("experiments/<int:pk>/timeline/perfetto.json.gz", views_timeline.export, name="timeline_export"),
    path("experiments/<int:pk>/evidence/<str:ref>/", views.evidence, name="evidence"),
]
