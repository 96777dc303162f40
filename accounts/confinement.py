"""What a session or token was made for is all that it opens.

Who signs in by a link of a team's administrator gets that team and no other of theirs, and so do the tokens made then:
a link passes through the hands of the administrator, who may open the doors of that team only.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth import aget_user, get_user
from django.contrib.auth import login as django_login
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject
from drf_spectacular.contrib.knox_auth_token import KnoxTokenScheme
from knox.auth import TokenAuthentication as KnoxTokenAuthentication
from knox.models import AuthToken
from rest_framework.exceptions import AuthenticationFailed

from accounts.models import Membership, TokenConfinement, TokenScope, User

#: Session key of the only membership that the session opens.
SESSION_MEMBERSHIP = "membership"
#: The primary key of no membership: that of a token was ended.
_NONE = 0


def login(request: HttpRequest, user: User, membership: Membership | None = None) -> None:
    """Begin a session, for `membership` alone where one is given."""
    django_login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    request.session.pop(SESSION_MEMBERSHIP, None)  # a session of the same user goes on
    if membership is not None:
        request.session[SESSION_MEMBERSHIP] = membership.pk


class ConfinedAuthenticationMiddleware(AuthenticationMiddleware):
    """Django's, whose users know what their session opens."""

    def process_request(self, request: HttpRequest) -> None:
        async def auser() -> AbstractBaseUser | AnonymousUser:
            return _confined(request, await aget_user(request))

        request.user = SimpleLazyObject(lambda: _confined(request, get_user(request)))  # type: ignore[assignment]
        request.auser = auser  # type: ignore[assignment]


def _confined(request: HttpRequest, user: Any) -> Any:
    if isinstance(user, User):
        user.confined_to = request.session.get(SESSION_MEMBERSHIP)
    return user


class TokenAuthentication(KnoxTokenAuthentication):
    """Knox's, whose users know what their token opens.  A token made for one purpose is refused."""

    def validate_user(self, auth_token: AuthToken) -> tuple[User, AuthToken]:
        user, token = super().validate_user(auth_token)
        self.check_scope(TokenScope.objects.filter(token=token).first())
        confinement = TokenConfinement.objects.filter(token=token).first()
        user.confined_to = None if confinement is None else confinement.membership_id or _NONE
        return user, token

    def check_scope(self, scope: TokenScope | None) -> None:
        """Raises AuthenticationFailed where the token is not for such requests."""
        if scope is not None:
            raise AuthenticationFailed("This token was made for one purpose and cannot be used here.")


class AnyTokenAuthentication(TokenAuthentication):
    """As above, for requests that a token of one purpose may make; the view asks `scope_of` for which."""

    def check_scope(self, scope: TokenScope | None) -> None:
        return None


def scope_of(auth: Any) -> str | None:
    """The one purpose of the token that a request came with; None where it has no such limit."""
    if not isinstance(auth, AuthToken):
        return None
    return TokenScope.objects.filter(token=auth).values_list("scope", flat=True).first()


class TokenScheme(KnoxTokenScheme):
    """How the API's description calls the authentication above."""

    target_class = "accounts.confinement.TokenAuthentication"


class AnyTokenScheme(KnoxTokenScheme):
    name = "scopedToken"
    target_class = "accounts.confinement.AnyTokenAuthentication"
