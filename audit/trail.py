"""Append to the audit trail: `record`, in the transaction of what it records."""

from __future__ import annotations

from typing import Any, Protocol

from audit.models import Action, Entry

#: Actor of what is done at a terminal of the server.
OPERATOR = "operator"
#: Actor of what the application does by itself.
APPLICATION = "application"


class Team(Protocol):
    pk: int
    name: str


class User(Protocol):
    pk: int

    def get_username(self) -> str: ...


def record(action: Action, team: Team | None, by: User | str, *, about: Any = "", name: str = "", **data: Any) -> Entry:
    """Append one entry about the object with key `about`, called `name`; `by` is a user, OPERATOR or APPLICATION."""
    return Entry.objects.create(
        action=action,
        team_id=team.pk if team is not None else None,
        team_name=team.name if team is not None else "",
        actor_id=None if isinstance(by, str) else by.pk,
        actor_name=by if isinstance(by, str) else by.get_username(),
        about_id=str(about)[:64],
        about_name=name[:300],
        data=data,
    )
