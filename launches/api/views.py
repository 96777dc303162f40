"""REST of launches: start one for an approved proposal, follow it, cancel it."""

from __future__ import annotations

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiTypes, extend_schema, extend_schema_view
from rest_framework import mixins, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.models import Role
from accounts.permissions import get_for
from accounts.rest import Detail, TeamObjects, validated
from experiments.api.common import ConfigErrors
from launches.api.serializers import LaunchRequest, LaunchSerializer
from launches.models import Launch
from launches.services import bundles, launching
from proposals import launch as launch_files
from proposals.models import Proposal


@extend_schema_view(list=extend_schema(tags=["launches"]), retrieve=extend_schema(tags=["launches"]))
class LaunchViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, TeamObjects[Launch]):
    """Launches of approved proposals, and of campaign trials on the cluster, newest first."""

    queryset = Launch.objects.select_related("created_by").prefetch_related("runs").order_by("-pk")
    serializer_class = LaunchSerializer

    @extend_schema(
        request=LaunchRequest,
        responses={201: LaunchSerializer, 400: ConfigErrors, 403: Detail, 409: Detail},
        tags=["launches"],
    )
    def create(self, request: Request) -> Response:
        """Run an approved proposal and its baseline on the team's backend; requires an engineer.

        409 with the reason if the proposal is not approved, already has a result, or is already running.
        """
        values = validated(LaunchRequest, request)
        proposals = Proposal.objects.select_related("experiment", "plan__run__profile", "team")
        proposal = get_for(request.user, proposals, Role.ENGINEER, pk=values.pop("proposal"))
        made = launching.launch(proposal, request.user, server=request.build_absolute_uri("/"), **values)
        return Response(LaunchSerializer(made).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=None, responses={200: LaunchSerializer, 403: Detail, 409: Detail}, tags=["launches"])
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """Cancel the runs that have not ended; reports received so far are kept."""
        made = self.get_object()
        launching.cancel(made, request.user)
        return Response(LaunchSerializer(self.get_queryset().get(pk=made.pk)).data)

    @extend_schema(responses={(200, "application/zip"): OpenApiTypes.BINARY}, tags=["launches"])
    @action(detail=True, url_path="bundle/(?P<arm>proposal|control|trial)", pagination_class=None)
    def bundle(self, request: Request, pk: str, arm: str) -> HttpResponse:
        """The bundle that runs an arm, as a zip: configuration, script, flags and the reporter."""
        made = self.get_object()
        packed = launch_files.archive(bundles.of_arm(made, arm))
        name = f"asap-{made.pk}-{arm}.zip"
        return HttpResponse(
            packed, content_type="application/zip", headers={"Content-Disposition": f'attachment; filename="{name}"'}
        )
