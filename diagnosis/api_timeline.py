"""REST: the timeline of an experiment: its cores and steps, sums of a range, tiles as bytes."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import Role
from accounts.permissions import get_for
from accounts.rest import Detail
from diagnosis import timelines
from diagnosis.timelines import PS, Timeline
from diagnosis.views_timeline import tile_response
from experiments.models import Experiment
from experiments.services import runs


class TimelineSerializer(serializers.Serializer[Any]):
    """Data drawn by the tiles.  Times in seconds from the profile's start; tracks in the order of a tile's rows."""

    version = serializers.CharField()
    profile = serializers.IntegerField()
    events = serializers.IntegerField()
    length_s = serializers.FloatField()
    cores = serializers.ListField(child=serializers.DictField())
    tracks = serializers.ListField(child=serializers.DictField())
    steps = serializers.ListField(child=serializers.DictField())
    classes = serializers.ListField(child=serializers.DictField())
    notes = serializers.ListField(child=serializers.CharField())


class SumsSerializer(serializers.Serializer[Any]):
    """Sums over [t0_s, t1_s) and all cores, with events clipped to the range."""

    t0_s = serializers.FloatField()
    t1_s = serializers.FloatField()
    events = serializers.IntegerField()
    classes = serializers.ListField(child=serializers.DictField())
    ops = serializers.ListField(child=serializers.DictField())
    cores = serializers.ListField(child=serializers.DictField())
    gaps = serializers.ListField(child=serializers.DictField())


def of_experiment(request: Request, pk: int) -> Timeline:
    """The timeline of the newest run's profile; 404 for non-members or if there are no events."""
    experiment = get_for(request.user, Experiment.objects.all(), Role.VIEWER, pk=pk)
    run = runs.newest(experiment)
    if run is None:
        raise Http404("Nothing has been uploaded yet.")
    return timelines.of_profile(run.profile, experiment)


class TimelineView(APIView):
    """Cores, tracks, steps and colours of an experiment's timeline."""

    @extend_schema(responses={200: TimelineSerializer, 404: Detail}, tags=["timeline"])
    def get(self, request: Request, pk: int) -> Response:
        shown = of_experiment(request, pk)
        trace = shown.trace
        data = {
            "version": shown.version,
            "profile": shown.profile.pk,
            "events": trace.event_count,
            "length_s": trace.span[1] / PS,
            "cores": [{"name": core.name, "host": core.host} for core in trace.cores],
            "tracks": [
                {"core": track.core, "lane": track.lane, "name": track.name, "events": track.count}
                for track in trace.tracks
            ],
            "steps": [
                {"number": number, "start_s": start / PS, "end_s": end / PS}
                for number, start, end in shown.step_spans()
            ],
            "classes": [{"key": each.key, "label": each.label} for each in shown.classes],
            "notes": list(trace.notes),
        }
        return Response(data)


class TimelineSumsView(APIView):
    """Time by category and axis, by op and by core, and the longest gaps of a range."""

    @extend_schema(
        parameters=[
            OpenApiParameter(
                "t0", OpenApiTypes.FLOAT, description="Start in seconds; default: that of a typical step."
            ),
            OpenApiParameter("t1", OpenApiTypes.FLOAT, description="End in seconds; default: that of a typical step."),
            OpenApiParameter("step", OpenApiTypes.INT, description="A step instead of a range."),
        ],
        responses={200: SumsSerializer, 404: Detail},
        tags=["timeline"],
    )
    def get(self, request: Request, pk: int) -> Response:
        shown = of_experiment(request, pk)
        view = timelines.view_of(shown, request.query_params.dict())
        sums = shown.sums(view["t0"], view["t1"])
        trace = shown.trace
        data = {
            "t0_s": sums.t0 / PS,
            "t1_s": sums.t1 / PS,
            "events": sums.events,
            "classes": [
                {"key": each.key, "label": each.label, "time_s": time / PS}
                for each, time in zip(shown.classes, sums.by_class, strict=True)
            ],
            "ops": [
                {"name": trace.names[name].text, "op": trace.names[name].op, "time_s": time / PS, "events": count}
                for name, time, count in sums.by_name
            ],
            "cores": [
                {"name": trace.cores[core.core].name, "host": trace.cores[core.core].host, "busy_s": core.busy_ps / PS,
                 "classes": [time / PS for time in core.by_class]}
                for core in sums.cores
            ],
            "gaps": [
                {"core": trace.cores[gap.core].name, "start_s": gap.start / PS, "time_s": gap.duration / PS}
                for gap in sums.gaps
            ],
        }  # fmt: skip
        return Response(data)


class TimelineTileView(APIView):
    """A binary tile with the events of the tracks of a lane in [index · 2^level, (index + 1) · 2^level) ps."""

    @extend_schema(
        parameters=[
            OpenApiParameter("lane", OpenApiTypes.STR, enum=["ops", "async", "host"], default="ops"),
            OpenApiParameter("block", OpenApiTypes.INT, description="Tracks in blocks of 128, from 0."),
            OpenApiParameter("q", OpenApiTypes.STR, description="Only events whose names contain these words."),
            OpenApiParameter("op", OpenApiTypes.STR, description="Only events of the op with this key."),
        ],
        responses={(200, "application/octet-stream"): OpenApiTypes.BINARY, 404: Detail},
        tags=["timeline"],
    )
    def get(self, request: Request, pk: int, level: int, index: int) -> HttpResponse:
        return tile_response(request._request, of_experiment(request, pk), level, index)
