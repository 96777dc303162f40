"""What the endpoints of every app share: paging, and the caller's own teams as the limit of what exists."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from django.http import Http404
from rest_framework import exceptions, serializers, status
from rest_framework.pagination import LimitOffsetPagination
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView
from rest_framework.viewsets import GenericViewSet

from accounts.models import Role, Team
from accounts.permissions import membership_in, refusal, team_ids
from accounts.services import current_membership
from formatting.numbers import whole_number

M = TypeVar("M", bound=Model)


class Paging(LimitOffsetPagination):
    """`?limit=` up to 200 (50 unless said) and `?offset=`."""

    default_limit = 50
    max_limit = 200

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any] | None:
        """Primary keys first, from an index: what is skipped is never read, and nothing is joined to it."""
        if not isinstance(queryset, QuerySet):
            return super().paginate_queryset(queryset, request, view)
        keys = super().paginate_queryset(queryset.prefetch_related(None).values_list("pk", flat=True), request, view)
        if not keys:
            return keys
        rows = {row.pk: row for row in queryset.filter(pk__in=keys).order_by()}
        return [rows[key] for key in keys if key in rows]


class Conflict(exceptions.APIException):
    """409: the object is not in the state that the request needs."""

    status_code = status.HTTP_409_CONFLICT
    default_code = "conflict"


class Invalid(exceptions.APIException):
    """400 with one sentence, and the sentences by field where fields are at fault."""

    status_code = status.HTTP_400_BAD_REQUEST
    default_code = "invalid"

    def __init__(self, detail: str, errors: dict[str, str] | None = None) -> None:
        super().__init__({"detail": detail, **({"errors": errors} if errors else {})})


class TooLarge(exceptions.APIException):
    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_code = "too_large"


class NoSpace(exceptions.APIException):
    """507: the server's disk is too full for what was sent."""

    status_code = status.HTTP_507_INSUFFICIENT_STORAGE
    default_code = "no_space"


class Detail(serializers.Serializer[Any]):
    """An error: one sentence stating what is wrong and what to do."""

    detail = serializers.CharField()


class TeamRole(BasePermission):
    """API: reads need a viewer, writes the view's `write_role` (engineer unless it says otherwise).

    Objects of other teams are left out by `get_queryset`, so an outsider gets 404.
    """

    def has_permission(self, request: Request, view: APIView) -> bool:
        return bool(request.user and request.user.is_authenticated)

    def has_object_permission(self, request: Request, view: APIView, obj: Any) -> bool:
        membership = membership_in(request.user, obj.team_id)
        if membership is None:
            raise Http404
        role = Role.VIEWER if request.method in SAFE_METHODS else getattr(view, "write_role", Role.ENGINEER)
        self.message = refusal(role)
        return membership.may(role)


class TeamObjects(GenericViewSet[M]):
    """Objects of the caller's teams; what belongs to another team is 404."""

    permission_classes = [TeamRole]
    pagination_class = Paging

    def get_queryset(self) -> QuerySet[M]:
        return super().get_queryset().filter(team_id__in=team_ids(self.request.user))


def validated(kind: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    """What was sent, as the serializer reads it; raises 400."""
    serializer = kind(data=request.data)
    serializer.is_valid(raise_exception=True)
    values: dict[str, Any] = serializer.validated_data
    return values


def number_param(request: Request, name: str) -> int | None:
    """A whole number from the address, None where it is absent; raises 400 on anything else."""
    text = request.query_params.get(name)
    if not text:
        return None
    number = whole_number(text)
    if number is None:
        raise Invalid(f"{name} must be a whole number.")
    return number


def team_for(request: Request, role: str) -> Team:
    """The team to write to: `team` of the request, else the caller's current one; the caller has `role` in it."""
    text = str(request.data.get("team") or "")
    if text:
        team_id = whole_number(text)
        if team_id is None:
            raise Invalid("team must be the number of one of your teams.")
        membership = membership_in(request.user, team_id)
    else:
        membership = current_membership(request)
    if membership is None:
        raise exceptions.PermissionDenied("You are not in this team; ask an administrator to add you to it.")
    if not membership.may(role):
        raise exceptions.PermissionDenied(refusal(role))
    return membership.team
