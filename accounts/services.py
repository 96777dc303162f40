"""Signing in by one-time link, the first administrator, and the team a person is working in."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from datetime import timedelta

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone

from accounts.models import Membership, Role, SignInLink, Team, User

#: Session key of the team that the pages show.
SESSION_TEAM = "team"

LOCAL_TEAM = "Local team"
LOCAL_ADMINISTRATOR = "admin"


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def create_sign_in_link(user: User, valid_for: timedelta) -> str:
    """A new token of 256 random bits that signs `user` in once within `valid_for`; only its hash is stored."""
    token = secrets.token_urlsafe(32)
    now = timezone.now()
    SignInLink.objects.create(user=user, token_hash=_hash(token), expires_at=now + valid_for)
    return token


def sign_in_link_user(token: str) -> User | None:
    """Whom the link would sign in; None if it is unknown, used or expired.  Uses nothing up: for the page before."""
    link = _open_link(token)
    return link.user if link is not None else None


def redeem_sign_in_link(token: str) -> User | None:
    """The link's user, once; None if it is unknown, used, expired, or the user was deactivated.

    Of two requests with one token only one gets the user: the row is taken by compare-and-set.
    """
    link = _open_link(token)
    if link is None:
        return None
    taken = SignInLink.objects.filter(pk=link.pk, used_at=None).update(used_at=timezone.now())
    return link.user if taken else None


def _open_link(token: str) -> SignInLink | None:
    token_hash = _hash(token)
    link = SignInLink.objects.select_related("user").filter(token_hash=token_hash).first()
    if link is None or not hmac.compare_digest(link.token_hash, token_hash):
        return None
    if link.used_at is not None or link.expires_at <= timezone.now() or not link.user.is_active:
        return None
    return link


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
    return user


@transaction.atomic
def create_user(username: str, team_name: str, role: Role, *, email: str = "", password: str | None = None) -> User:
    """A user with one role in one team; the team is created if it is new.  Raises ValueError if the name is taken."""
    if User.objects.filter(username=username).exists():
        raise ValueError(f"There is already a user named {username}; choose another name.")
    user = User.objects.create_user(username=username, email=email, password=password)
    team, _ = Team.objects.get_or_create(name=team_name)
    Membership.objects.create(user=user, team=team, role=role)
    return user


def membership_of(user: AbstractBaseUser | AnonymousUser, team_id: int) -> Membership | None:
    """The user's membership in this team, or None; `membership.team` is loaded with it."""
    if user.pk is None:
        return None
    return Membership.objects.select_related("team").filter(user_id=user.pk, team_id=team_id).first()


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
    memberships = list(Membership.objects.select_related("team").filter(user=user).order_by("pk"))
    session = getattr(request, "session", None)
    chosen = session.get(SESSION_TEAM) if session is not None else None
    for membership in memberships:
        if membership.team_id == chosen:
            return membership
    return memberships[0] if memberships else None


def choose_team(request: HttpRequest, team_id: int) -> bool:
    """Keep the team in the session; False (and nothing changes) where the user is not a member of it."""
    if membership_of(request.user, team_id) is None:
        return False
    request.session[SESSION_TEAM] = team_id
    if hasattr(request, "_asap_membership"):
        del request._asap_membership
    return True
