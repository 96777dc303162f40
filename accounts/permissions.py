"""Who may see and do what, decided on the server.

What belongs to another team does not exist for an outsider (404); what a role does not allow is forbidden (403).
The role that counts is the one in the object's own team, not in the team chosen in the session.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponseBase
from django.views.decorators.http import require_http_methods
from django.views.decorators.vary import vary_on_headers
from django_htmx.middleware import HtmxDetails

from accounts.models import Membership, Role, Team, User
from accounts.services import current_membership, membership_of, memberships

P = ParamSpec("P")
M = TypeVar("M", bound=Model)


class MemberRequest(HttpRequest):
    """What a view of `require` gets: the request of a member, with what our middleware and `require` set on it."""

    user: User
    membership: Membership
    htmx: HtmxDetails


View = Callable[Concatenate[HttpRequest, P], HttpResponseBase]
MemberView = Callable[Concatenate[MemberRequest, P], HttpResponseBase]


def refusal(role: Role | str) -> str:
    """The sentence for a role that is too low."""
    article = "an" if Role(role).label[0] in "AE" else "a"
    return (
        f"This needs the role of {article} {Role(role).label.lower()} in the team; "
        "ask an administrator of the team to change yours."
    )


def require(role: Role | str, *methods: str, htmx: bool = False) -> Callable[[MemberView[P]], View[P]]:
    """Decorator of a view: signed in, a member of a team, with at least this role in the chosen one, by one of these
    methods.  `htmx`: it answers htmx with another body than a browser, which caches must know.

    Anonymous visitors are sent to sign in and back.  The membership is on `request.membership`.
    """

    def decorate(view: MemberView[P]) -> View[P]:
        answer = require_http_methods(list(methods))(vary_on_headers("HX-Request")(view) if htmx else view)

        @wraps(answer)
        def guarded(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return redirect_to_login(request.get_full_path())
            membership = current_membership(request)
            if membership is None:
                raise PermissionDenied("You are not in a team yet; ask an administrator to add you to one.")
            if not membership.may(role):
                raise PermissionDenied(refusal(role))
            found = cast(MemberRequest, request)
            found.membership = membership
            return answer(found, *args, **kwargs)

        return guarded

    return decorate


def membership_in(user: Any, team: Team | int) -> Membership | None:
    """The user's membership in this team, or None."""
    return membership_of(user, team.pk if isinstance(team, Team) else team)


def team_ids(user: Any) -> list[int]:
    """Primary keys of the teams this user is in."""
    if not getattr(user, "is_authenticated", False):
        return []
    return list(memberships(user).values_list("team_id", flat=True))


def get_for(user: Any, queryset: QuerySet[M], role: Role | str = Role.VIEWER, **lookup: Any) -> M:
    """The one object of `queryset` that matches, for a user with at least `role` in the object's team.

    Every model asked for has a `team`.  Raises Http404 for outsiders and PermissionDenied for too low a role.
    """
    item = queryset.filter(**lookup).first()
    if item is None:
        raise Http404
    check(user, item, role)
    return item


def check(user: Any, item: Any, role: Role | str) -> Membership:
    """The user's membership in the item's team; raises Http404 or PermissionDenied as `get_for` does."""
    membership = membership_in(user, item.team_id)
    if membership is None:
        raise Http404
    if not membership.may(role):
        raise PermissionDenied(refusal(role))
    return membership
