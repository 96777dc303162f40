"""REST for `asap report`: files in pieces and the report of each rank, with a token that can do nothing else."""

from __future__ import annotations

from typing import Any

from django.http import Http404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.authentication import SessionAuthentication
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.confinement import AnyTokenAuthentication, scope_of
from accounts.models import Role
from accounts.parsers import JSONParser
from accounts.permissions import get_for
from accounts.rest import Detail, Invalid, validated
from experiments.api.common import ConfigErrors
from formatting.numbers import whole_number
from launches.api.parsers import Bytes
from launches.api.serializers import FileRequest, FileSerializer, ReportAnswer
from launches.models import ArmRun, Launch
from launches.services import reporting


class _Report(APIView):
    """An engineer of the launch's team may report, or a token of this launch while its creator is an engineer."""

    authentication_classes = [AnyTokenAuthentication, SessionAuthentication]
    parser_classes = [JSONParser]

    def run(self, request: Request, pk: int, arm: str, repeat: int) -> ArmRun:
        scope = scope_of(request.auth)
        if scope is not None and scope != f"launch:{pk}":
            raise PermissionDenied("This token belongs to another launch.")
        launch = get_for(request.user, Launch.objects.all(), Role.ENGINEER, pk=pk)
        return reporting.run_of(launch, arm, repeat)

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, reporting.ReportError) and exc.offset is not None:
            return Response({"detail": str(exc), "received_bytes": exc.offset}, status=exc.status)
        return super().handle_exception(exc)


class FilesView(_Report):
    @extend_schema(
        operation_id="report_file_begin", request=FileRequest,
        responses={200: FileSerializer, 400: ConfigErrors, 403: Detail, 409: Detail, 507: Detail}, tags=["launches"],
    )  # fmt: skip
    def post(self, request: Request, pk: int, arm: str, repeat: int) -> Response:
        """Announce a log or profile by its SHA-256; the response says how many bytes have been received."""
        run = self.run(request, pk, arm, repeat)
        made = reporting.begin_file(run, **validated(FileRequest, request))
        return Response(FileSerializer(made).data)


class FileView(_Report):
    parser_classes = [Bytes]

    @extend_schema(operation_id="report_file_state", responses={200: FileSerializer, 403: Detail}, tags=["launches"])
    def get(self, request: Request, pk: int, arm: str, repeat: int, sha256: str) -> Response:
        """Upload progress of a file."""
        file = self.run(request, pk, arm, repeat).files.filter(sha256=sha256).first()
        if file is None:
            raise Http404
        return Response(FileSerializer(file).data)

    @extend_schema(
        operation_id="report_file_piece", request={"application/octet-stream": OpenApiTypes.BINARY},
        responses={200: FileSerializer, 400: Detail, 403: Detail, 409: FileSerializer, 507: Detail}, tags=["launches"],
    )  # fmt: skip
    def patch(self, request: Request, pk: int, arm: str, repeat: int, sha256: str) -> Response:
        """Upload the next chunk of a file, at most 8 MB, starting at the byte given by the header `Upload-Offset`.

        409 with `received_bytes` if the offset does not match.
        """
        run = self.run(request, pk, arm, repeat)
        offset = whole_number(request.headers.get("Upload-Offset", ""))
        if offset is None:
            raise Invalid("The header Upload-Offset must be the offset of the first byte.")
        data: Any = request.data
        if not isinstance(data, dict) or "stream" not in data:
            raise Invalid("Send the chunk as application/octet-stream.")
        return Response(FileSerializer(reporting.append(run, sha256, offset, data["stream"])).data)


class ReportView(_Report):
    @extend_schema(
        operation_id="report", request=reporting.RankReport,
        responses={200: ReportAnswer, 400: Detail, 403: Detail, 409: Detail}, tags=["launches"],
    )  # fmt: skip
    def put(self, request: Request, pk: int, arm: str, repeat: int) -> Response:
        """Submit the report of one rank after uploading its files.  Idempotent."""
        run = self.run(request, pk, arm, repeat)
        given = reporting.RankReport.read(dict(request.data))
        made = reporting.report(run, given)
        missing = max(0, given.ranks - len(made.reports))
        return Response(ReportAnswer({"status": made.status, "missing_ranks": missing}).data)
