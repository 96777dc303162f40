"""Pages of experiments: upload, configuration, progress, the Sharding Memory."""

from __future__ import annotations

from django.urls import path

from experiments import views, views_hbm, views_memory, views_step_time, views_xprof
from experiments.stream import stream

urlpatterns = [
    path("experiments/new/", views.upload, name="upload"),
    path("experiments/new/step-time/", views_step_time.step_time, name="start_from_step_time"),
    path("experiments/configuration/check/", views.check_configuration, name="check_configuration"),
    path("experiments/<int:pk>/configuration/", views.configuration, name="configuration"),
    path("experiments/<int:pk>/events/", stream, name="event_stream"),
    path("experiments/<int:pk>/progress/", views.progress, name="progress"),
    path("experiments/<int:pk>/retry/", views.retry, name="retry"),
    path("experiments/<int:pk>/files/", views.add_files, name="add_files"),
    path("experiments/<int:pk>/hosts/exclude/", views.exclude, name="exclude_host"),
    path("experiments/<int:pk>/delete/", views.delete, name="delete_experiment"),
    path("experiments/<int:pk>/xprof/", views_xprof.xprof, name="xprof"),
    path("experiments/<int:pk>/xprof/stop/", views_xprof.stop, name="xprof_stop"),
    path("experiments/<int:pk>/xprof/pages/<str:token>/<path:path>", views_xprof.pages, name="xprof_pages"),
    path("experiments/<int:pk>/profile.zip", views_xprof.log_archive, name="log_archive"),
    path("experiments/<int:pk>/hbm/", views_hbm.hbm, name="hbm"),
    path("experiments/<int:pk>/memory/", views_memory.memory, name="memory"),
    path("experiments/<int:pk>/memory/<int:event_pk>/", views_memory.event, name="memory-event"),
    path("experiments/<int:pk>/memory/<int:event_pk>/data/", views_memory.event_data, name="memory-event-data"),
    path("experiments/<int:pk>/memory.jsonl", views_memory.memory_export, name="memory_export"),
]
