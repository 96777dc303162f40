"""REST: two profiles side by side, as `asap compare --json` prints it."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.rest import Conflict, Detail, Invalid, number_param
from diagnosis import comparing, services


class ComparabilitySerializer(serializers.Serializer[Any]):
    comparable = serializers.BooleanField(allow_null=True)
    basis = serializers.ChoiceField(choices=("step", "token", "share"))
    reasons = serializers.ListField(child=serializers.CharField())
    allowed = serializers.CharField(allow_blank=True)


class ComparisonSerializer(serializers.Serializer[Any]):
    """What differs between two profiles; times in the basis of `comparability`."""

    comparability = ComparabilitySerializer()
    configuration = serializers.ListField(child=serializers.DictField())
    kpis = serializers.ListField(child=serializers.DictField())
    breakdown = serializers.ListField(child=serializers.DictField())
    ops = serializers.ListField(child=serializers.DictField())
    ops_total = serializers.IntegerField()
    collectives = serializers.ListField(child=serializers.DictField())
    findings = serializers.ListField(child=serializers.DictField())
    bottleneck = serializers.DictField(child=serializers.CharField())
    speedup = serializers.FloatField(allow_null=True)
    significant = serializers.BooleanField(allow_null=True)
    statement = serializers.ListField(child=serializers.CharField())
    evidence = serializers.ListField(child=serializers.DictField())


class CompareView(APIView):
    """Two profiles of one experiment or of two, each of a team of the caller."""

    @extend_schema(
        parameters=[
            OpenApiParameter("a", OpenApiTypes.INT, required=True, description="Profile before."),
            OpenApiParameter("b", OpenApiTypes.INT, required=True, description="Profile after."),
            OpenApiParameter("top", OpenApiTypes.INT, description="Number of op changes, default 50, at most 500."),
        ],
        responses={200: ComparisonSerializer, 400: Detail, 404: Detail, 409: Detail},
        tags=["compare"],
    )
    def get(self, request: Request) -> Response:
        top = number_param(request, "top")
        records = []
        for key in ("a", "b"):
            value = request.query_params.get(key, "")
            if not value:
                raise Invalid("Give two profiles to compare: ?a=… and ?b=….")
            side = comparing.chosen(request.user, value)
            if side.record is None:
                raise Conflict(f"Profile {side.profile.pk} has no diagnosis yet; wait until its analysis is done.")
            records.append(side.record)
        comparison = comparing.full(records[0], records[1])
        return Response(comparison.to_json(50 if top is None else min(top, services.MAX_PAGE_SIZE)))
