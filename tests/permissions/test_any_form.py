"""Whatever is typed into a form or a filter of the pages: an answer comes back, never a server error."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import QueryDict
from django.urls import resolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.permissions import snapshot
from tests.permissions.callers import Caller
from tests.permissions.doors import Doors
from tests.permissions.page_forms import FILE, forms_of, merged, names_read
from tests.permissions.table import ANYONE, ROWS, STREAMS, Row

pytestmark = [pytest.mark.slow, pytest.mark.django_db]

#: XProf's own server would be started for each.
NOT_SENT = ("/experiments/{failed}/xprof/",)
#: Digits that Python does not read, digits of other alphabets, which it does, and what no column holds.
NO_NUMBERS = ("²", "①", "٣", "9" * 30, "-1", "1_0")
ODD = (
    *NO_NUMBERS, "\0", "0", "1e999", "NaN", "-Infinity", "[" * 3_000, '{"a": ' * 70 + "1" + "}" * 70, "\u202e",
    "a" * 20_000, "\n\n", " ", "{{ 7 }}", "<script>", "../../etc/passwd", "=1+1", "&a: [*a]", "!!python/name:os.system",
    '{"mesh": {"ici": {"data": "x"}}}', "data=8,seq=", "%00", "'; --", "null", "[]", '"', "true",
)  # fmt: skip


def typed(offered: set[str]) -> st.SearchStrategy[str]:
    kinds = [st.sampled_from(ODD), st.text(max_size=40), st.integers().map(str), st.floats().map(str)]
    known = sorted(offered - {FILE, ""})
    return st.one_of(st.sampled_from(known), *kinds) if known else st.one_of(*kinds)


def sent(names: dict[str, set[str]], fewest: int) -> st.SearchStrategy[dict[str, list[Any]]]:
    """Up to two values for each name."""
    files = st.builds(
        SimpleUploadedFile, st.sampled_from(("a.md", "a.csv", "a.json", "a.xplane.pb", "a.zip", "a", "²\0.yaml")),
        st.binary(max_size=60),
    )  # fmt: skip
    return st.fixed_dictionaries(
        {
            name: st.lists(files if FILE in offered else typed(offered), min_size=fewest, max_size=2)
            for name, offered in sorted(names.items())
        }
    )


class Pages:
    """What every row of the table is sent.  offered: what a page offers to fill in, by method and route.  read: what
    the view looks for, by method and address."""

    def __init__(self, doors: Doors) -> None:
        forms, self.read = [], {}  # type: ignore[var-annotated]
        for row in (*asked("get"), *asked("post")):
            with snapshot.undone(), names_read() as names:
                _, text = asking(doors, row).send(row.method, doors.address(row), row.body)
            self.read[row.method, row.address] = names
            forms += forms_of(text, doors.address(row)) if row in PAGES else []
        self.offered = merged(forms)


@pytest.fixture(scope="module")
def pages(doors: Doors) -> Pages:
    """As an administrator, and before signing in."""
    return Pages(doors)


def asking(doors: Doors, row: Row) -> Caller:
    return doors.callers["anonymous" if row.least == ANYONE else "administrator"][0]


def asked(method: str) -> list[Row]:
    left_out = (*STREAMS, *NOT_SENT)
    return [row for row in ROWS if row.method == method and row.address not in left_out]


PAGES = [row for row in (*asked("get"), *asked("post")) if not row.address.startswith("/api/")]


def failure(doors: Doors, row: Row, names: dict[str, set[str]], examples: int) -> str:
    """What was sent that ended in a server error; empty where nothing did.  An address alone was asked for before."""
    caller, address = asking(doors, row), doors.address(row)

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(values=sent(names, fewest=int(row.method == "get")))
    def send(values: dict[str, list[Any]]) -> None:
        body, asked = values, address
        if row.method == "get":
            body, asked = {}, address + ("&" if "?" in address else "?") + urlencode(values, doseq=True)
        with snapshot.undone():
            response, _ = caller.send(row.method, asked, body)
        assert response.status_code < 500, f"{asked} {body}"

    try:
        send()
    except AssertionError as error:
        return f"{address}: {error}"[:600]
    return ""


def test_no_form_ends_in_a_server_error(doors: Doors, pages: Pages, fuzz: int) -> None:
    failed = []
    for row in (row for row in PAGES if row.method == "post"):
        body = {name: {FILE} if str(value).startswith("file: ") else {str(value)} for name, value in row.body.items()}
        names = {name: set() for name in pages.read["post", row.address]} | body
        names |= pages.offered.get(("post", doors.route(row)), {})
        failed.append(failure(doors, row, names, 3 * fuzz))
    assert not list(filter(None, failed))
    assert sum(method == "post" for method, _ in pages.offered) > 25


def test_no_filter_ends_in_a_server_error(doors: Doors, pages: Pages, fuzz: int) -> None:
    failed, filters = [], 0
    for route, row in {doors.route(row): row for row in PAGES if row.method == "get"}.items():
        names = {name: set() for name in pages.read["get", row.address]} | pages.offered.get(("get", route), {})
        filters += len(names)
        failed.append(failure(doors, row, names, 2 * fuzz))
    assert not list(filter(None, failed))
    assert filters > 150


@pytest.mark.nightly
def test_no_parameter_ends_in_a_server_error(doors: Doors, pages: Pages) -> None:
    """Each that a view looks for, alone, so that nothing is refused before it is read."""
    failed, tried = [], 0
    for row in asked("get"):
        for place, name in enumerate(sorted(pages.read["get", row.address])):
            for value in ("²", NO_NUMBERS[place % len(NO_NUMBERS)]):
                tried += 1
                address, _, query = doors.address(row).partition("?")
                given = QueryDict(query, mutable=True)
                given[name] = value
                failed.append(refusal(doors, row, f"{address}?{given.urlencode()}"))
    assert not list(filter(None, failed))
    assert tried > 500


@pytest.mark.nightly
def test_no_lone_surrogate_of_another_charset_ends_in_a_server_error(doors: Doors, pages: Pages) -> None:
    failed = []
    for row in asked("get"):
        caller, query = asking(doors, row), "&".join(f"{name}=%2B2AA-" for name in pages.read["get", row.address])
        with snapshot.undone():
            headers = {**caller.headers, "Content-Type": "text/plain; charset=utf-7"}
            response = caller.client.get(f"{doors.address(row).partition('?')[0]}?{query}", headers=headers)
        failed += [row.address] * (response.status_code >= 500)
    assert not failed


@pytest.mark.nightly
def test_no_part_of_an_address_ends_in_a_server_error(doors: Doors) -> None:
    """Where it may be more than ASCII digits."""
    failed, tried = [], 0
    for row in (*asked("get"), *asked("post")):
        path, _, query = doors.address(row).partition("?")
        for value in resolve(path).kwargs.values():
            texts = {*NO_NUMBERS, re.sub("[0-9]+", "²", value)} if isinstance(value, str) else ()
            for text in texts:
                tried += 1
                other = path.replace(quote(value), quote(text.replace("/", "")))
                failed.append(refusal(doors, row, f"{other}?{query}"))
    assert not list(filter(None, failed))
    assert tried > 300


def test_no_empty_body_ends_in_a_server_error(doors: Doors) -> None:
    """Without a content type either, as `curl -X POST` sends it."""
    failed = []
    for method in ("post", "put", "patch"):
        for row in asked(method):
            caller = asking(doors, row)
            with snapshot.undone():
                send = caller.client.generic
                response = send(method, doors.address(row), b"", content_type="", headers=caller.headers)
            failed += [row.address] * (response.status_code >= 500)
    assert not failed


def refusal(doors: Doors, row: Row, address: str) -> str:
    """The address that ended in a server error; empty where it did not."""
    with snapshot.undone():
        response, _ = asking(doors, row).send(row.method, address, row.body)
    return f"{row.method} {address}"[:300] if response.status_code >= 500 else ""
