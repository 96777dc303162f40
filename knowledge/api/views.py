from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404
from django_filters.utils import translate_validation
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import exceptions, mixins, status
from rest_framework.parsers import MultiPartParser
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from accounts.models import Role, Team
from accounts.permissions import team_ids
from accounts.rest import Detail, Invalid, Paging, TeamObjects, TooLarge, number_param, team_for, validated
from accounts.services import current_membership
from knowledge.api.serializers import (
    AnswerSerializer,
    DocumentReceivedSerializer,
    DocumentRequest,
    DocumentSerializer,
    PassageSerializer,
)
from knowledge.documents.errors import DocumentError
from knowledge.models import Document, Passage
from knowledge.services import documents, search
from knowledge.services.browse import PassageFilters, filtered

MOST = 50
_TEAM = OpenApiParameter(
    "team",
    OpenApiTypes.INT,
    description="Team whose documents are included with the shipped passages; default: your first.",
)


class KnowledgeSearchView(GenericViewSet[Passage]):
    """Keyword and semantic search."""

    queryset = Passage.objects.none()
    serializer_class = AnswerSerializer
    permission_classes = [IsAuthenticated]
    filterset_class = PassageFilters
    pagination_class = None

    @extend_schema(
        operation_id="knowledge_search",
        parameters=[
            OpenApiParameter("q", required=True, description="Query in words, or a question."),
            OpenApiParameter("k", OpenApiTypes.INT, description=f"Number of results; default 5, at most {MOST}."),
            OpenApiParameter("offset", OpenApiTypes.INT, description="Number of results to skip, at most 200."),
            _TEAM,
        ],
        filters=True,
        responses={200: AnswerSerializer, 400: Detail, 404: Detail},
        tags=["knowledge"],
    )
    def list(self, request: Request) -> Response:
        """The passages that best answer a query, each with its rank and score per list and its fused score."""
        filters = _filters(request)
        if not filters.text:
            raise Invalid("q is missing: give a query or question.")
        k, offset = number_param(request, "k"), number_param(request, "offset")
        answer = search.of_rows(
            filters.qs, filters.text, 5 if k is None else max(1, min(k, MOST)), mode=filters.mode_or_both,
            offset=min(offset or 0, 200),
        )  # fmt: skip
        return Response(AnswerSerializer(answer).data)


class PassageViewSet(GenericViewSet[Passage]):
    """Shipped passages and those of the team's documents; a passage of another team returns 404."""

    queryset = Passage.objects.none()
    serializer_class = PassageSerializer
    permission_classes = [IsAuthenticated]
    pagination_class = Paging
    filterset_class = PassageFilters
    lookup_field = "key"
    lookup_value_regex = "[-a-zA-Z0-9_]{1,120}"

    @extend_schema(
        operation_id="knowledge_passages_list",
        parameters=[_TEAM],
        filters=True,
        responses={200: PassageSerializer(many=True), 400: Detail, 404: Detail},
        tags=["knowledge"],
    )
    def list(self, request: Request) -> Response:
        """All passages, in document order."""
        rows = _filters(request).qs.select_related("document").defer("embedding", "search")
        page = self.paginate_queryset(rows.order_by("document", "position", "pk"))
        return self.get_paginated_response(PassageSerializer(page, many=True).data)

    @extend_schema(
        operation_id="knowledge_passages_retrieve",
        responses={200: PassageSerializer, 404: Detail},
        tags=["knowledge"],
    )
    def retrieve(self, request: Request, key: str) -> Response:
        """The passage with this citation key, including retired passages."""
        passage = search.passage(team_ids(request.user), key)
        if passage is None:
            raise Http404
        return Response(PassageSerializer(passage).data)


@extend_schema_view(
    list=extend_schema(operation_id="knowledge_documents_list", tags=["knowledge"]),
    retrieve=extend_schema(operation_id="knowledge_documents_retrieve", tags=["knowledge"]),
)
class DocumentViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, TeamObjects[Document]):
    """Documents added by the caller's teams."""

    queryset = Document.objects.none()
    serializer_class = DocumentSerializer

    def get_queryset(self) -> QuerySet[Document]:
        return documents.counted(documents.owned(team_ids(self.request.user)))

    def get_parsers(self) -> list[Any]:
        multipart = getattr(self, "action_map", {}).get("post") == "create"
        return [MultiPartParser()] if multipart else super().get_parsers()

    @extend_schema(
        operation_id="knowledge_documents_create",
        request={"multipart/form-data": DocumentRequest},
        responses={
            200: DocumentReceivedSerializer, 202: DocumentReceivedSerializer, 400: Detail, 403: Detail, 413: Detail,
        },
        tags=["knowledge"],
    )  # fmt: skip
    def create(self, request: Request) -> Response:
        """Add a PDF, Markdown or text file.  202: a worker splits it into passages; poll the document for its state.

        Adding the same content again returns 200 and the existing document.
        """
        given = validated(DocumentRequest, request)
        team = team_for(request, Role.ENGINEER)
        try:
            received = documents.receive(team, request.user, given["file"], title=given.get("title", ""))
        except DocumentError as error:
            raise (TooLarge if error.too_large else Invalid)(str(error)) from error
        document = self.get_queryset().get(pk=received.document.pk)
        body = {**DocumentSerializer(document).data, "outcome": received.outcome}
        working = received.outcome in ("added", "again")
        return Response(body, status=status.HTTP_202_ACCEPTED if working else status.HTTP_200_OK)

    @extend_schema(
        operation_id="knowledge_documents_destroy",
        responses={204: None, 403: Detail},
        description="Delete a document and its passages; requires its uploader or an administrator of the team.",
        tags=["knowledge"],
    )
    def destroy(self, request: Request, pk: str) -> Response:
        document = self.get_object()
        if not documents.may_delete(request.user, document):
            raise PermissionDenied("Only the document's uploader or an administrator of the team can delete it.")
        documents.delete(document, by=request.user)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _team(request: Request) -> Team | None:
    """The team whose documents count: the one `?team=` names, else the caller's current one; none for the teamless."""
    wanted = number_param(request, "team")
    if wanted is not None:
        if wanted not in team_ids(request.user):
            raise exceptions.NotFound("You are not in this team.")
        return Team.objects.get(pk=wanted)
    membership = current_membership(request)
    return membership.team if membership is not None else None


def _filters(request: Request) -> PassageFilters:
    """The filters of the address; raises 400 on what is none."""
    filters = filtered(_team(request), request._request.GET)
    if not filters.is_valid():
        raise translate_validation(filters.errors)
    return filters
