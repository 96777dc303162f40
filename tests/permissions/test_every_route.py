"""Every route × method × person × session or token: who may is answered, who may not changes nothing.

`table.py` says who may.  A route of the resolver without a row fails, and so does a method that no row names, unless it
is refused.  Each request is taken back before the next one, and the checksums of all tables say whether it changed
anything.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.http.response import HttpResponseBase
from django.urls import URLPattern, URLResolver, get_resolver

from tests.permissions import snapshot
from tests.permissions.callers import ROLES, Caller, filled
from tests.permissions.doors import Doors
from tests.permissions.table import ANYONE, AREAS, CROSSED, NOBODY, ROWS, SIGNED_IN, STREAMS, TO_THEIR_TEAM, Row

pytestmark = [pytest.mark.slow, pytest.mark.django_db]

METHODS = ("get", "post", "put", "patch", "delete")


def routes() -> set[str]:
    return set(_walk(get_resolver(), ""))


def _walk(resolver: URLResolver, before: str) -> Iterator[str]:
    for pattern in resolver.url_patterns:
        path = before + str(pattern.pattern).removeprefix("^")  # as a match writes its route
        if isinstance(pattern, URLResolver):
            yield from _walk(pattern, path)
        elif isinstance(pattern, URLPattern):
            yield path


def test_every_route_has_a_row(doors: Doors) -> None:
    assert routes() - {doors.route(row) for row in ROWS} == set()
    assert len({(row.method, row.address) for row in ROWS}) == len(ROWS)


def may(row: Row, caller: Caller) -> bool:
    """By the table alone."""
    is_api = row.address.startswith("/api/")
    if row.least == ANYONE or (row.also == caller.name and (is_api or caller.by == "session")):
        return True
    if caller.name == "anonymous" or (caller.by == "token" and not is_api):
        return False
    if row.also == f"by {caller.by}" or (row.least == SIGNED_IN and not row.also.startswith("by ")):
        return True
    if row.least in (NOBODY, SIGNED_IN):
        return False
    role = caller.role if row.of_object or caller.name not in ("visitor", "outsider", "confined") else ROLES[-1]
    return role is not None and ROLES.index(role) >= ROLES.index(row.least)


def is_an_edge(row: Row, caller: Caller, number: int) -> bool:
    """Whether this caller shows what no other does: the least role and the one below it, who may as it is theirs, and
    every stranger.  To the API those below the least role come by session or by token, in turn; only a confinement is
    read differently from each.  Others are tried every fourth time, in turn."""
    if caller.name in (row.also, "anonymous", "confined") or caller.name == row.least:
        return True
    if caller.name not in ROLES:
        is_below, way = True, ("session", "token")[number % 2]
    else:
        least = ROLES.index(row.least) if row.least in ROLES else len(ROLES) if row.least == NOBODY else 1
        is_below, way = ROLES.index(caller.name) == least - 1, ("token", "session")[number % 2]
    return is_below and (caller.by == way or not row.address.startswith("/api/"))


def refusals(row: Row, caller: Caller) -> set[int]:
    """The refusal: a non-member sees that there is no such object, a member that the role is too low."""
    is_api = row.address.startswith("/api/")
    if row.least == NOBODY and not row.also and row.refused is not None:
        return {row.refused}
    if caller.name == "anonymous" or (caller.by == "token" and not is_api):
        return {401} if is_api else {302}
    if row.refused is not None:
        return {row.refused} if caller.role or is_api or row.refused != 302 else {302, 403}
    if caller.name == "visitor":
        return {403, row.unknown}  # a viewer here; of another team's administration the page knows nothing
    if caller.role is None and row.of_object and (is_api or caller.name in ("outsider", "confined")):
        return {row.unknown}
    return {403}


def who_tries(doors: Doors, row: Row) -> list[Caller]:
    names = ["anonymous", *ROLES, "visitor", "outsider", "confined", "teamless"]
    everyone = [each for name in [*names, row.also] for each in doors.callers.get(name, ())]
    # A token opens no page, whosever it is.
    return [
        each for each in everyone if row.address.startswith("/api/") or each.by == "session" or each.name == ROLES[-1]
    ]


@pytest.mark.parametrize("area", AREAS)
def test_who_may_is_answered_and_who_may_not_changes_nothing(area: str, doors: Doors) -> None:
    wrong: list[str] = []
    for number, row in enumerate(each for each in AREAS[area] if each.address not in STREAMS):
        for place, caller in enumerate(who_tries(doors, row)):
            turn = number + place
            if turn % 4 == 0 or is_an_edge(row, caller, number):
                wrong += _tried(doors, row, row.method, caller)
            if row.method == "get" and turn % 8 == 0:
                wrong += _tried(doors, row, "head", caller)
    assert not wrong, "\n".join(wrong)


def _tried(doors: Doors, row: Row, method: str, caller: Caller) -> list[str]:
    """What is wrong with the answer to one request."""
    address, allowed = doors.address(row), may(row, caller)
    with snapshot.undone():
        count = snapshot.writes()
        response, text = caller.send(method, address, filled(row.body, doors.named))
        changed = _changed(doors) if snapshot.writes() != count else []
        is_stranger = allowed and caller.role is None and row.least != ANYONE and row.also != caller.name
        foreign = _foreign(doors, caller, changed) if changed and is_stranger else []
    status = response.status_code
    found = [f"it shows {mark!r}" for mark in caller.marks if mark in text.replace(address, "")]
    if status >= 500:
        found.append("that is an error of ours")
    elif method == "head" and status == 405:
        pass
    elif allowed and (_is_refusal(response) if not row.missing else status != 404):
        found.append("and they may")
    elif not allowed and not (status in refusals(row, caller) or (row.missing and status == 404)):
        found.append(f"expected {refusals(row, caller)}")
    elif not allowed and status == 302 and caller.name == "anonymous" and not _is_refusal(response):
        found.append("and not to the page where one signs in")
    if changed and not (allowed and row.stores and method != "head"):
        found.append(f"it changed {', '.join(changed)}")
    if allowed and row.stores and not changed:
        found.append("it changed nothing, and should")
    found += foreign
    return [f"{method.upper()} {address} by {caller}: {status}, {each}" for each in found]


def _is_refusal(response: HttpResponseBase) -> bool:
    to_sign_in = response.status_code == 302 and response.headers["Location"].startswith("/sign-in/?next=")
    return to_sign_in or response.status_code in (401, 403, 404, 405, 429)


def _changed(doors: Doors) -> list[str]:
    now = snapshot.checksums()
    return [name for name, checksum in doors.before.items() if now[name] != checksum]


def _foreign(doors: Doors, caller: Caller, changed: list[str]) -> list[str]:
    """What a member of the other team changed that is neither theirs nor that team's."""
    now = snapshot.rows(changed)
    before = {row for row in doors.rows if row[0] in changed}
    ours, theirs = doors.site.ours["team"], doors.site.theirs["team"]
    found = [f"it added to {table} of the first team" for table, team, _ in now.keys() - before if team == ours]
    for table, team, text in before - now.keys():
        if team != theirs and not (table == "accounts_user" and text.startswith(f"({caller.user},")):
            found.append(f"it changed a row of {table} that was there before")
    return found


@pytest.mark.parametrize("name", ["administrator", "both"])
def test_what_belongs_to_another_team_is_not_reached_through_ones_own(name: str, doors: Doors) -> None:
    wrong: list[str] = []
    for row in CROSSED if name == "both" else CROSSED + TO_THEIR_TEAM:
        for caller in doors.callers[name]:
            if caller.by == "token" and not row.address.startswith("/api/"):
                continue
            with snapshot.undone():
                response, text = caller.send(row.method, doors.address(row), filled(row.body, doors.named))
                changed = _changed(doors)
            shows = any(mark in text.replace(doors.address(row), "") for mark in caller.marks)
            if response.status_code >= 500 or changed or shows:
                said = f"{response.status_code}{', it shows theirs' if shows else ''} {' '.join(changed)}"
                wrong.append(f"{row.method.upper()} {doors.address(row)} {row.body} by {caller}: {said}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("area", AREAS)
def test_a_method_that_no_row_names_is_refused(area: str, doors: Doors) -> None:
    methods: dict[str, set[str]] = {}
    for row in ROWS:
        methods.setdefault(doors.route(row), set()).add(row.method)
    wrong: list[str] = []
    for number, row in enumerate({doors.route(row): row for row in AREAS[area] if row.address not in STREAMS}.values()):
        for place, method in enumerate(each for each in METHODS if each not in methods[doors.route(row)]):
            # What an administrator is refused as a method, strangers hardly meet: one of them in turn.
            strangers = [("outsider",), (), ("anonymous",), ()][(number + place) % 4]
            for caller in (doors.callers[name][0] for name in ("administrator", *strangers)):
                with snapshot.undone():
                    count = snapshot.writes()
                    response, text = caller.send(method, doors.address(row), filled(row.body, doors.named))
                    changed = _changed(doors) if snapshot.writes() != count else []
                status = response.status_code
                expected = {405} if caller.name == "administrator" else {302, 401, 403, 404, 405}
                if status not in expected or changed or any(mark in text for mark in caller.marks):
                    wrong.append(f"{method.upper()} {doors.address(row)} by {caller}: {status} {' '.join(changed)}")
    assert not wrong, "\n".join(wrong)
