"""REST: who I am, and my tokens."""

from __future__ import annotations

from typing import Any, cast

from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import extend_schema, extend_schema_view
from knox.models import AuthToken
from rest_framework import mixins, serializers, status
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import GenericViewSet

from accounts import audit_trail, tokens
from accounts.models import Membership, Role, User
from accounts.permissions import refusal
from accounts.rest import Detail, Paging
from accounts.services import memberships
from audit.models import Entry


class MembershipSerializer(serializers.ModelSerializer[Membership]):
    team_name = serializers.CharField(source="team.name", read_only=True)

    class Meta:
        model = Membership
        fields = ("team", "team_name", "role")


class MeSerializer(serializers.Serializer[Any]):
    username = serializers.CharField()
    memberships = MembershipSerializer(many=True)


class TokenSerializer(serializers.ModelSerializer[AuthToken]):
    """A token in a list, identified by its first characters; the token itself is never returned."""

    key = serializers.CharField(source="token_key", help_text="First characters of the token, used to revoke it.")

    class Meta:
        model = AuthToken
        fields = ("key", "created", "expiry")


class NewTokenSerializer(serializers.Serializer[Any]):
    token = serializers.CharField(help_text="Shown once. Send it as `Authorization: Token …`.")
    key = serializers.CharField()
    expiry = serializers.DateTimeField(allow_null=True)


class MeView(APIView):
    @extend_schema(operation_id="me", responses=MeSerializer, tags=["accounts"])
    def get(self, request: Request) -> Response:
        """The signed-in user, with the role in each team."""
        user = cast(User, request.user)
        rows = memberships(user).select_related("team").order_by("pk")
        return Response(MeSerializer({"username": user.get_username(), "memberships": rows}).data)


class TokensView(APIView):
    @extend_schema(operation_id="tokens_list", responses=TokenSerializer(many=True), tags=["accounts"])
    def get(self, request: Request) -> Response:
        """Your tokens, newest first."""
        shown = tokens.visible(request.user).order_by("-created")
        return Response(TokenSerializer(shown, many=True).data)

    @extend_schema(
        operation_id="tokens_create",
        request=None,
        responses={201: NewTokenSerializer, 403: Detail, 409: Detail},
        tags=["accounts"],
    )
    def post(self, request: Request) -> Response:
        """Create a token with the permissions of this session; it is shown only once.  Tokens cannot create tokens."""
        if isinstance(request.auth, AuthToken):  # it would outlive the one that asks, once that is revoked
            raise PermissionDenied("Tokens cannot create tokens; sign in and create one under Settings.")
        instance, token = tokens.create(cast(User, request.user))
        data = {"token": token, "key": instance.token_key, "expiry": instance.expiry}
        return Response(NewTokenSerializer(data).data, status=status.HTTP_201_CREATED)


class TokenView(APIView):
    @extend_schema(operation_id="tokens_revoke", responses={204: None}, tags=["accounts"])
    def delete(self, request: Request, key: str) -> Response:
        """Revoke one of your tokens, identified by its first characters."""
        if not tokens.revoke(cast(User, request.user), key):
            raise Http404
        return Response(status=status.HTTP_204_NO_CONTENT)


class EntrySerializer(serializers.ModelSerializer[Entry]):
    """One entry of the audit trail.  actor_id: null for the operator and for the application itself."""

    class Meta:
        model = Entry
        fields = audit_trail.COLUMNS
        read_only_fields = fields


@extend_schema_view(
    list=extend_schema(
        operation_id="audit_list",
        description="The audit trail of the teams that you administer, newest first.",
        responses={200: EntrySerializer(many=True), 403: Detail},
        tags=["accounts"],
    )
)
class AuditViewSet(mixins.ListModelMixin, GenericViewSet[Entry]):
    queryset = Entry.objects.all()
    serializer_class = EntrySerializer
    filterset_class = audit_trail.EntryFilters
    pagination_class = Paging

    def get_queryset(self) -> QuerySet[Entry]:
        teams = audit_trail.administered_teams(self.request.user)
        if not teams:
            raise PermissionDenied(refusal(Role.ADMINISTRATOR))
        return audit_trail.entries_of(teams)
