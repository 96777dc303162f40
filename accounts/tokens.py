"""API tokens: made in a session and with its reach."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from knox.models import AuthToken
from knox.settings import knox_settings

from accounts.models import Membership, TokenConfinement, TokenScope, User
from accounts.refusals import Refused
from accounts.services import memberships, record_for, teams_of
from audit import trail
from audit.models import Action


class TokenError(Refused):
    """No token is made."""


def visible(user: Any) -> QuerySet[AuthToken]:
    """The user's tokens; in a session or with a token that opens one membership those made for it."""
    own = AuthToken.objects.filter(user_id=user.pk)
    if user.confined_to is not None:
        own = own.filter(confinement__membership=user.confined_to)
    return own


@transaction.atomic
def create(user: User) -> tuple[AuthToken, str]:
    """A new token of the user, with the reach of the session that asks, and the text that is shown once."""
    User.objects.select_for_update(no_key=True).get(pk=user.pk)  # two requests count one after the other
    limit = knox_settings.TOKEN_LIMIT_PER_USER
    valid = AuthToken.objects.filter(Q(expiry=None) | Q(expiry__gt=timezone.now()), user=user, scoped=None)
    if valid.count() >= limit:
        raise TokenError(f"You have {limit} tokens, the maximum; revoke one first.")
    token, text = AuthToken.objects.create(user=user)
    if user.confined_to is not None:
        TokenConfinement.objects.create(token=token, membership=memberships(user).first())
    _record(Action.TOKEN_CREATED, user, token)
    return token, text


@transaction.atomic
def revoke(user: User, key: str) -> bool:
    """End the visible token of the user that begins with these characters; False if there is none."""
    token = visible(user).filter(token_key=key).first()
    if token is None:
        return False
    _record(Action.TOKEN_REVOKED, user, token)
    token.delete()
    return True


def _record(action: Action, user: User, token: AuthToken) -> None:
    expires_at = token.expiry.isoformat(timespec="minutes") if token.expiry else None
    record_for(teams_of(user), action, user, token.token_key, user.get_username(), expires_at=expires_at)


def create_scoped(membership: Membership, scope: str, label: str, expires_in: timedelta) -> tuple[AuthToken, str]:
    """A token of a member that is good for one purpose in that team only, and its text, which is stored nowhere.

    It does not count among the user's tokens, but is listed and revoked with them.
    """
    with transaction.atomic():
        token, text = AuthToken.objects.create(user=membership.user, expiry=expires_in)
        TokenConfinement.objects.create(token=token, membership=membership)
        TokenScope.objects.create(token=token, scope=scope, label=label[:100])
        about = {"about": token.token_key, "name": membership.user.get_username()}
        trail.record(Action.TOKEN_CREATED, membership.team, trail.APPLICATION, **about, scope=scope, label=label[:100])
    return token, text


def revoke_scope(scope: str) -> int:
    """Ends every token that was made for this purpose; returns how many there were."""
    scoped = AuthToken.objects.filter(scoped__scope=scope).select_related("user", "confinement__membership__team")
    with transaction.atomic():
        for token in scoped:
            membership = token.confinement.membership  # None: the member has left the team
            team, name = membership and membership.team, token.user.get_username()
            trail.record(Action.TOKEN_REVOKED, team, trail.APPLICATION, about=token.token_key, name=name, scope=scope)
            token.delete()
    return len(scoped)
