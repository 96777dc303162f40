"""REST: two profiles side by side, as `asap compare --json` prints it."""

from __future__ import annotations

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.rest import Conflict, Detail, Invalid, number_param
from diagnosis import comparing, services


class CompareView(APIView):
    """Two profiles of one experiment or of two, each of a team of the caller: the object of `asap compare`, with
    `comparability`, `configuration`, `kpis`, `breakdown`, `ops`, `collectives`, `findings`, `speedup` and `statement`.
    """

    @extend_schema(
        parameters=[
            OpenApiParameter("a", OpenApiTypes.INT, required=True, description="Profile before."),
            OpenApiParameter("b", OpenApiTypes.INT, required=True, description="Profile after."),
            OpenApiParameter("top", OpenApiTypes.INT, description="Number of op changes, default 50, at most 500."),
        ],
        responses={200: OpenApiTypes.OBJECT, 400: Detail, 404: Detail, 409: Detail},
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
