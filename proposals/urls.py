"""Pages of proposals, reviews and measurements."""

from __future__ import annotations

from django.urls import path

from proposals import views, views_again, views_compile, views_consult, views_custom, views_launch, views_measure

urlpatterns = [
    path("experiments/<int:pk>/proposals/", views.proposals, name="proposals"),
    path("experiments/<int:pk>/proposals/rejected/", views.rejected, name="rejected"),
    path("experiments/<int:pk>/proposals/again/", views_again.propose_again, name="propose-again"),
    path("experiments/<int:pk>/proposals/asked/", views_again.request_state, name="plan-request"),
    path("experiments/<int:pk>/consultation/", views_consult.consultation, name="consultation"),
    path("experiments/<int:pk>/consultation/ask/", views_consult.consult, name="consult"),
    path("plans/<int:pk>/compile/", views_compile.ask, name="compile"),
    path("plans/<int:pk>/compile/cancel/", views_compile.cancel, name="compile-cancel"),
    path("plans/<int:pk>/compile/state/", views_compile.state, name="compile-state"),
    path("plans/<int:pk>/own/", views_custom.own, name="own-mesh"),
    path("plans/<int:pk>/own/add/", views_custom.add, name="own-mesh-add"),
    path("proposals/<int:pk>/decision/", views.decide, name="decide"),
    path("experiments/<int:pk>/launch/", views_launch.of_experiment, name="launch"),
    path("proposals/<int:pk>/launch/", views_launch.of_proposal, name="launch-proposal"),
    path("proposals/<int:pk>/launch/<str:name>", views_launch.download, name="launch-file"),
    path("proposals/<int:pk>/upload/", views_measure.upload, name="upload-measured"),
    path("proposals/<int:pk>/step-time/", views_measure.step_time, name="step-time-measured"),
    path("proposals/<int:pk>/measurement/", views_measure.link, name="measure"),
    path("proposals/<int:pk>/measurement/unlink/", views_measure.unlink, name="unmeasure"),
    path("proposals/<int:pk>/measurement/failed/", views_measure.failed, name="measure-failed"),
    path("proposals/<int:pk>/measurement/failed/cause/", views_measure.failure_cause, name="failure-cause"),
    path("measurements/", views_measure.measurements, name="measurements"),
    path("history/waiting/", views_measure.waiting, name="history-waiting"),
]
