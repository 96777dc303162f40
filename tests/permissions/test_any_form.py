"""Whatever is typed into a form or a filter of the pages: an answer comes back, never a server error."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.permissions import snapshot
from tests.permissions.callers import Caller
from tests.permissions.doors import Doors
from tests.permissions.page_forms import FILE, forms_of, merged
from tests.permissions.table import ANYONE, ROWS, STREAMS, Row

pytestmark = [pytest.mark.slow, pytest.mark.django_db]

#: XProf's own server would be started for each.
NOT_SENT = ("/experiments/{failed}/xprof/",)
ODD = (
    "\0", "²", "-1", "0", "9" * 30, "1e999", "NaN", "-Infinity", "[" * 3_000, '{"a": ' * 70 + "1" + "}" * 70, "\u202e",
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


@pytest.fixture(scope="module")
def offered(doors: Doors) -> dict[tuple[str, str], dict[str, set[str]]]:
    """What the pages offer to fill in, as an administrator, and before signing in."""
    found = []
    for row in pages("get"):
        with snapshot.undone():
            _, text = asking(doors, row).send("get", doors.address(row), {})
        found += forms_of(text, doors.address(row))
    return merged(found)


def asking(doors: Doors, row: Row) -> Caller:
    return doors.callers["anonymous" if row.least == ANYONE else "administrator"][0]


def pages(method: str) -> list[Row]:
    left_out = (*STREAMS, *NOT_SENT)
    return [
        row
        for row in ROWS
        if row.method == method and not row.address.startswith("/api/") and row.address not in left_out
    ]


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


def test_no_form_ends_in_a_server_error(doors: Doors, offered: Any) -> None:
    failed = []
    for row in pages("post"):
        body = {name: {FILE} if str(value).startswith("file: ") else {str(value)} for name, value in row.body.items()}
        failed.append(failure(doors, row, body | offered.get(("post", doors.route(row)), {}), 3))
    assert not list(filter(None, failed))
    assert sum(method == "post" for method, _ in offered) > 25


def test_no_filter_ends_in_a_server_error(doors: Doors, offered: Any) -> None:
    failed, filters = [], 0
    for route, row in {doors.route(row): row for row in pages("get")}.items():
        names: dict[str, set[str]] = offered.get(("get", route), {}) | {"page": set(), "q": set(), "sort": set()}
        filters += len(names)
        failed.append(failure(doors, row, names, 2))
    assert not list(filter(None, failed))
    assert filters > 150
