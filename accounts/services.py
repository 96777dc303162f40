"""Signing in by one-time link, the first administrator, and the team a person is working in."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from accounts.models import Membership, Role, SignInLink, Team, User
from audit import trail
from audit.models import Action

#: Session key of the team that the pages show.
SESSION_TEAM = "team"

LOCAL_TEAM = "Local team"
LOCAL_ADMINISTRATOR = "admin"


def new_token() -> tuple[str, str]:
    """256 random bits for a link, and the hash by which they are stored."""
    token = secrets.token_urlsafe(32)
    return token, hash_of(token)


def hash_of(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


@transaction.atomic
def create_sign_in_link(
    user: User, valid_for: timedelta, membership: Membership | None = None, *, by: User | str = trail.OPERATOR
) -> str:
    """A new token that signs `user` in once within `valid_for`: into `membership` alone where one is given.

    It takes the place of the user's earlier links of the same reach: only the newest works.
    """
    User.objects.select_for_update(no_key=True).get(pk=user.pk)  # of two made at once only one stays
    SignInLink.objects.filter(user=user, membership=membership, used_at=None).delete()
    token, token_hash = new_token()
    expires_at = timezone.now() + valid_for
    SignInLink.objects.create(user=user, membership=membership, token_hash=token_hash, expires_at=expires_at)
    reach = [membership.team] if membership is not None else teams_of(user)
    until = expires_at.isoformat(timespec="minutes")
    record_for(reach, Action.LINK_CREATED, by, user.pk, user.get_username(), expires_at=until)
    return token


def teams_of(user: User) -> list[Team]:
    """The teams that the user's session or token opens."""
    return [each.team for each in memberships(user).select_related("team").order_by("pk")]


def record_for(teams: list[Team], action: Action, by: User | str, about: object, name: str, **data: object) -> None:
    """Record in the audit trail of each team what a right that reaches all of them is about."""
    reach: list[Team | None] = [*teams] or [None]
    for team in reach:
        trail.record(action, team, by, about=about, name=name, **data)


def open_sign_in_link(token: str) -> SignInLink | None:
    """The link, if it would sign somebody in; None if it is unknown, used, expired, or its user was deactivated.

    Uses nothing up: for the page before.
    """
    return (
        SignInLink.objects.select_related("user", "membership__team")
        .filter(token_hash=hash_of(token), used_at=None, expires_at__gt=timezone.now(), user__is_active=True)
        .first()
    )


def redeem_sign_in_link(token: str) -> SignInLink | None:
    """The link, once; None where it signs nobody in.

    Of two requests with one token only one gets it: the row is taken by compare-and-set.
    """
    link = open_sign_in_link(token)
    if link is None:
        return None
    taken = SignInLink.objects.filter(pk=link.pk, used_at=None).update(used_at=timezone.now())
    return link if taken else None


@transaction.atomic
def first_administrator() -> User:
    """The administrator of this installation; on the first start creates the local one with the local team.

    The account has no password: it signs in by one-time link.
    """
    membership = (
        Membership.objects.select_related("user")
        .filter(role=Role.ADMINISTRATOR, user__is_active=True)
        .order_by("pk")
        .first()
    )
    if membership is not None:
        return membership.user
    user, created = User.objects.get_or_create(username=LOCAL_ADMINISTRATOR, defaults={"first_name": "Local"})
    if created:
        user.set_unusable_password()
        user.save(update_fields=["password"])
    team, _ = Team.objects.get_or_create(name=LOCAL_TEAM)
    Membership.objects.update_or_create(user=user, team=team, defaults={"role": Role.ADMINISTRATOR})
    role = str(Role.ADMINISTRATOR)
    trail.record(Action.MEMBER_ADDED, team, trail.APPLICATION, about=user.pk, name=user.get_username(), role=role)
    return user


@transaction.atomic
def create_user(username: str, team_name: str, role: Role, *, email: str = "", password: str | None = None) -> User:
    """A user with one role in one team; the team is created if it is new.  Raises ValueError if the name is taken."""
    if User.objects.filter(username=username).exists():
        raise ValueError(f"There is already a user named {username}; choose another name.")
    user = User.objects.create_user(username=username, email=email, password=password)
    team, _ = Team.objects.get_or_create(name=team_name)
    Membership.objects.create(user=user, team=team, role=role)
    trail.record(Action.MEMBER_ADDED, team, trail.OPERATOR, about=user.pk, name=username, role=str(role))
    return user


def memberships(user: AbstractBaseUser | AnonymousUser) -> QuerySet[Membership]:
    """The user's memberships that this session or token opens; none of an anonymous visitor's."""
    if user.pk is None:
        return Membership.objects.none()
    own = Membership.objects.filter(user_id=user.pk)
    confined_to = getattr(user, "confined_to", None)
    return own if confined_to is None else own.filter(pk=confined_to)


def membership_of(user: AbstractBaseUser | AnonymousUser, team_id: int) -> Membership | None:
    """The user's membership in this team, or None; `membership.team` is loaded with it."""
    return memberships(user).select_related("team").filter(team_id=team_id).first()


def current_membership(request: HttpRequest) -> Membership | None:
    """The signed-in user's membership in the team chosen in the session; else in their first team; None without any.

    Read once per request; `membership.team` is loaded with it.
    """
    cached: Membership | None
    try:
        cached = request._asap_membership  # type: ignore[attr-defined]
    except AttributeError:
        cached = _find_membership(request)
        request._asap_membership = cached  # type: ignore[attr-defined]
    return cached


def _find_membership(request: HttpRequest) -> Membership | None:
    user = request.user
    if isinstance(user, AnonymousUser) or not user.is_authenticated:
        return None
    own = list(memberships(user).select_related("team").order_by("pk"))
    session = getattr(request, "session", None)
    chosen = session.get(SESSION_TEAM) if session is not None else None
    for membership in own:
        membership.user = user
        if membership.team_id == chosen:
            return membership
    return own[0] if own else None


def choose_team(request: HttpRequest, team_id: int) -> bool:
    """Keep the team in the session; False (and nothing changes) where the user is not a member of it."""
    if membership_of(request.user, team_id) is None:
        return False
    request.session[SESSION_TEAM] = team_id
    if hasattr(request, "_asap_membership"):
        del request._asap_membership
    return True
