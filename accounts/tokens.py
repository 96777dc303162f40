"""API tokens: made with the reach of the session or token that asks, and no longer life."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from knox.models import AuthToken
from knox.settings import knox_settings

from accounts.models import TokenConfinement, User
from accounts.services import memberships


class TokenError(Exception):
    """No token is made.  The text is a sentence for the user."""


def visible(user: Any) -> QuerySet[AuthToken]:
    """The user's tokens; in a session or with a token that opens one membership those made for it."""
    found = AuthToken.objects.filter(user_id=user.pk)
    if user.confined_to is not None:
        found = found.filter(confinement__membership=user.confined_to)
    return found


@transaction.atomic
def create(user: User, by: AuthToken | None = None) -> tuple[AuthToken, str]:
    """A new token of the user, and the text that is shown once.

    by: the token that asks, where one does; the new one ends with it at the latest.
    """
    User.objects.select_for_update(no_key=True).get(pk=user.pk)  # two requests count one after the other
    limit = knox_settings.TOKEN_LIMIT_PER_USER
    if AuthToken.objects.filter(Q(expiry=None) | Q(expiry__gt=timezone.now()), user=user).count() >= limit:
        raise TokenError(f"You have {limit} tokens, which is the most; revoke one first.")
    lifetime: timedelta = knox_settings.TOKEN_TTL
    if by is not None and by.expiry is not None:
        lifetime = min(lifetime, by.expiry - timezone.now())
    token, text = AuthToken.objects.create(user=user, expiry=lifetime)
    if user.confined_to is not None:
        TokenConfinement.objects.create(token=token, membership=memberships(user).first())
    return token, text
