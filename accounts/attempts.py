"""How often a password may be tried: for one user name from one address, from one address, and for one user name.

Whether there is such a user makes no difference.
"""

from __future__ import annotations

import unicodedata
from datetime import timedelta
from ipaddress import IPv6Address, ip_address, ip_network

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone

from accounts.models import SignInAttempt
from accounts.services import hash_of

WINDOW = timedelta(minutes=15)
#: For a name from one address: who forgets or guesses a password keeps nobody out elsewhere.
OF_PAIR = 10
#: For a name from all addresses together: reached only by guesses from many networks at once.
OF_NAME = 500
#: An office may share one address.
OF_ADDRESS = 100


class Attempt:
    """One try, which counts from its beginning: of many at once no more are let through than of many in turn."""

    def __init__(self, request: HttpRequest, username: str) -> None:
        # As the sign-in form reads it; upper and lower case are counted together.
        name = unicodedata.normalize("NFKC", username).strip().casefold()
        address = _address(request)
        self._pair = f"pair {hash_of(f'{name} {address}')}"
        limits = {self._pair: OF_PAIR, f"address {address}"[:100]: OF_ADDRESS, f"name {hash_of(name)}": OF_NAME}
        since = timezone.now() - WINDOW
        SignInAttempt.objects.filter(at__lt=since).delete()
        self._rows = SignInAttempt.objects.bulk_create([SignInAttempt(about=about) for about in limits])
        self.allowed = all(
            SignInAttempt.objects.filter(about=about, at__gte=since).count() <= most for about, most in limits.items()
        )
        if not self.allowed:  # what is refused does not prolong the wait
            self._forget()

    def succeeded(self) -> None:
        """Forget the failures of this name from this address, since the password was right."""
        self._forget()
        SignInAttempt.objects.filter(about=self._pair).delete()

    def _forget(self) -> None:
        SignInAttempt.objects.filter(pk__in=[row.pk for row in self._rows]).delete()


def _address(request: HttpRequest) -> str:
    """The client's; behind the proxy of a deployment the one that the proxy has added."""
    forwarded = request.headers.get("X-Forwarded-For", "") if settings.HTTPS else ""
    return _network(forwarded.rpartition(",")[2].strip() or str(request.META.get("REMOTE_ADDR") or ""))


def _network(text: str) -> str:
    """The address; of IPv6 its /64, of which one host takes as many addresses as it likes."""
    try:
        address = ip_address(text)
    except ValueError:
        return text
    if not isinstance(address, IPv6Address):
        return str(address)
    return str(address.ipv4_mapped or ip_network((int(address), 64), strict=False))
