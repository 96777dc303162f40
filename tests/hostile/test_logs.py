"""Logs that mean harm, at the page, at REST and on the command line: the same answer at each, and text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from asapweb.cli.dispatch import dispatch
from proposals.models import Measurement
from tests.backend.conftest import approved, data_folder, people, ready
from tests.backend.factories import upload
from tests.hostile.house import active

pytestmark = pytest.mark.slow

__all__ = ["approved", "data_folder", "people", "ready"]

SAID = b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"
SCRIPT = b"<script>alert(1)</script><img src=x onerror=alert(1)>"

#: Content, and the cause that is in it.
LOGS = {
    "markup in the line": (SCRIPT + b" " + SAID + SCRIPT, "out_of_memory"),
    "markup and nothing known": (SCRIPT * 3, "unknown"),
    "NUL bytes": (SAID.replace(b" ", b"\0 \0"), "out_of_memory"),
    "invalid UTF-8": (b"\xff\xfe\xc3\x28 " + SAID + b"\xed\xa0\x80", "out_of_memory"),
    "escape sequences": (b"\x1b]0;owned\x07\x1b[2J\x1b[31m" + SAID + b"\x1b[8m\x9b31m", "out_of_memory"),
    "overrides of direction": ("\u202e\u2066".encode() + SAID + "\u202e".encode(), "out_of_memory"),
    "a line of 5 MB": (b"x" * 5_000_000 + b" " + SAID, "out_of_memory"),
    "a message repeated without a match": (b"Error: connect version checkpoint mesh " * 10_000, "unknown"),
    "many lines of errors": (b"Error: \n" * 300_000 + SAID, "out_of_memory"),
    "a number of 4,000 digits": (b"CUDA out of memory. Tried to allocate " + b"9" * 4_000 + b" GiB", "out_of_memory"),
    "an address of ranks": (b"[rank99999999999999999999]: " + SAID, "out_of_memory"),
    "a formula": (b"=cmd|' /C calc'!A1\n" + SAID, "out_of_memory"),
}


@pytest.mark.nightly(of=4)
@pytest.mark.parametrize(("content", "cause"), LOGS.values(), ids=LOGS)
def test_a_log_is_read_alike_at_each_entrance(
    people: Any, approved: Any, tmp_path: Path, capsys: Any, content: bytes, cause: str
) -> None:
    name = '"><b>x.log'
    client = people.client("engineer")
    shown = client.post(
        f"/proposals/{approved.pk}/measurement/failed/cause/",
        {"logs": upload(name, content)},
        headers={"HX-Request": "true"},
    )
    assert shown.status_code == 200 and len(shown.content) < 20_000 and not active(shown.content.decode())
    body = {"proposal": approved.pk, "log_file": upload(name, content)}
    answer = people.api("engineer").post("/api/measurements/", body, format="multipart")
    assert answer.status_code == 201, answer.content
    found = answer.json()["analysis"]
    assert (found["cause"], found["line"].isprintable()) == (cause, True) and len(found["line"]) <= 300
    assert found == Measurement.objects.get().analysis
    (tmp_path / "x.log").write_bytes(content)
    assert dispatch(["failure", str(tmp_path / "x.log"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["cause"], printed["line"], printed["lines"]) == (cause, found["line"], found["lines"])
    card = client.get(approved.get_absolute_url())
    assert card.status_code == 200 and not active(card.content.decode())
