"""Who asks: every role of the first team, strangers to it, and nobody, by session and by token."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from asgiref.sync import async_to_sync
from django.http.response import HttpResponseBase
from django.test import Client
from knox.models import AuthToken

from accounts.confinement import SESSION_MEMBERSHIP
from accounts.models import Membership, Role, TokenConfinement
from tests.backend.factories import upload
from tests.permissions.objects import MARK, THEIR_MARK, Site, member
from tests.permissions.table import VIEWER

ROLES = tuple(str(role) for role in Role)
CONTENTS = {"notes.md": b"# Notes\n\nOverlap it.\n", "records.csv": b"id\nx\n", "host0.xplane.pb": b"\x0a\x00"}


@dataclass(frozen=True)
class Caller:
    """user: primary key, 0 for nobody.  role: in the first team, None for a stranger.  marks: what no answer to them
    may hold."""

    name: str
    by: str
    user: int
    client: Client
    headers: dict[str, str]
    role: str | None
    marks: tuple[str, ...]

    def __str__(self) -> str:
        return self.name if self.name == "anonymous" else f"{self.name} by {self.by}"

    def send(self, method: str, address: str, body: dict[str, Any]) -> tuple[HttpResponseBase, str]:
        """The answer and its text; who signs out or in does so for this request only."""
        files = {key: value for key, value in body.items() if isinstance(value, str) and value.startswith("file: ")}
        more: dict[str, Any] = {"data": body} if body or method not in ("get", "head") else {}
        for key, value in files.items():
            name = value.removeprefix("file: ")
            body = {**body, key: upload(name, CONTENTS[name])}
            more = {"data": body}
        if address.startswith("/api/") and not files and method not in ("get", "head"):
            more["content_type"] = "application/json"
        cookies = self.client.cookies.copy()
        response = getattr(self.client, method)(address, headers=self.headers, **more)
        self.client.cookies = cookies
        return response, content_of(response).decode("utf-8", "replace")


def content_of(response: Any) -> bytes:
    async def joined() -> bytes:
        return b"".join([piece async for piece in response.streaming_content])

    if not response.streaming:
        return bytes(response.content)
    return async_to_sync(joined)() if response.is_async else b"".join(response.streaming_content)


def callers(site: Site) -> dict[str, list[Caller]]:
    """By name: with a session, and with a token alone.

    visitor: viewer here, administrator of the other team, which is the one chosen.  both: administrator of both teams.
    confined: the same, who came by a link that the other team made.
    """
    people, theirs = site.people, site.theirs["team"]
    other = Membership.objects.get(user=people.outsider).team
    assert other.pk == theirs
    visitor = member("visitor", (other, Role.ADMINISTRATOR), (people.team, Role.VIEWER))
    everywhere = ((people.team, Role.ADMINISTRATOR), (other, Role.ADMINISTRATOR))
    both, confined = member("both", *everywhere), member("confined", *everywhere)
    confined.set_password("the old password")
    confined.save()
    found = {"anonymous": [Caller("anonymous", "session", 0, _client(), {}, None, (MARK, THEIR_MARK))]}
    for name, user, role, marks in (
        *((role, getattr(people, role), role, (THEIR_MARK,)) for role in ROLES),
        ("author", site.ours["author"], "engineer", (THEIR_MARK,)),
        ("visitor", visitor, VIEWER, ()),
        ("both", both, "administrator", ()),
        ("outsider", people.outsider, None, (MARK,)),
        ("confined", confined, None, (MARK,)),
        ("teamless", people.teamless, None, (MARK, THEIR_MARK)),
        ("guest", site.ours["guest"], None, (MARK, THEIR_MARK)),
    ):
        client = _client()
        client.force_login(user)
        token, text = AuthToken.objects.create(user)
        if name == "confined":
            inside = Membership.objects.get(user=user, team=other)
            TokenConfinement.objects.create(token=token, membership=inside)
            session = client.session
            session[SESSION_MEMBERSHIP] = inside.pk
            session.save()
        found[name] = [
            Caller(name, "session", user.pk, client, {}, role, marks),
            Caller(name, "token", user.pk, _client(), {"Authorization": f"Token {text}"}, role, marks),
        ]
    return found


def _client() -> Client:
    client = Client()
    client.raise_request_exception = False
    return client


def filled(value: Any, named: dict[str, Any]) -> Any:
    """The address or body with the names of objects replaced by what they are."""
    if isinstance(value, dict):
        return {key: filled(each, named) for key, each in value.items()}
    if isinstance(value, str) and re.fullmatch(r"\{[\w.]+\}", value):
        found: Any = named
        for part in value[1:-1].split("."):
            found = found[part] if isinstance(found, dict) else getattr(found, part)
        return found
    return value.format(**named) if isinstance(value, str) and value.startswith("/") else value
