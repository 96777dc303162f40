"""Requests that no page of ours sends, at the real server: each is refused with a sentence, in the form asked for."""

from __future__ import annotations

import json

import pytest

from tests.launcher.visitor import Visitor

MANY = {f"{number}.pb": b"x" for number in range(600)}


def test_600_files_are_refused_in_the_form_asked_for(visitor: Visitor) -> None:
    status, text = visitor.post("/experiments/new/", {}, MANY, Accept="application/json")
    assert status == 400 and "more than 512 files" in json.loads(text)["error"]
    status, text = visitor.post("/experiments/new/", {}, MANY)
    assert status == 400 and "more than 512 files" in text and "<html" in text
    status, text = visitor.post("/api/experiments/", {}, MANY, X_CSRFToken=visitor.cookies["csrftoken"])
    assert status == 400 and "more than 512 files" in json.loads(text)["detail"]


@pytest.mark.parametrize(
    "path", ["/api/predict/", "/api/search/", "/api/experiments/step-time/", "/api/plan-requests/"]
)
def test_a_large_json_body_is_refused_as_json(visitor: Visitor, path: str) -> None:
    body = b'{"config": "' + b"x" * 10_000_000 + b'"}'
    token = visitor.cookies["csrftoken"]
    status, text = visitor.request("POST", path, body, Content_Type="application/json", X_CSRFToken=token)
    assert status == 413 and "larger than 5 MB" in json.loads(text)["detail"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/experiments/?q=%00", {200}),
        ("/experiments/?state=%00&model=%00&chip=%00", {200}),
        ("/experiments/?page=%00", {200, 404}),
        ("/history/?q=%00", {200}),
        ("/knowledge/?q=%00", {200}),
        ("/%00", {404}),
        ("/api/experiments/?team=%C2%B2", {400}),
        ("/api/runs/?experiment=%C2%B2", {400}),
        ("/api/experiments/?q=%00&chip=%00", {200}),
        ("/api/experiments/%C2%B2/", {404}),
        ("/api/experiments/99999999999999999999999999/", {404}),
        ("/api/history/?q=%00", {200}),
    ],
)
def test_odd_addresses_are_no_fault_of_ours(visitor: Visitor, path: str, expected: set[int]) -> None:
    status, text = visitor.request("GET", path)
    assert status in expected, text[:300]
    if path.startswith("/api/"):
        json.loads(text)


@pytest.mark.parametrize("path", ["/api/predict/", "/api/search/", "/api/experiments/step-time/", "/api/threads/"])
@pytest.mark.parametrize(
    "body",
    [b"[" * 3000, b'{"a":' * 3000, b"[" * 3000 + b"]" * 3000, b"\xff", b'{"name": "\\u0000"}', b"NaN", b"", b"null"],
    ids=["open lists", "open objects", "deep lists", "no UTF-8", "NUL", "NaN", "empty", "null"],
)
def test_odd_json_is_refused_with_a_sentence(visitor: Visitor, path: str, body: bytes) -> None:
    token = visitor.cookies["csrftoken"]
    status, text = visitor.request("POST", path, body, Content_Type="application/json", X_CSRFToken=token)
    assert 400 <= status < 500, text[:300]
    assert 5 < len(json.loads(text)["detail"]) <= 300


def test_nul_in_a_form_is_text_like_any_other(visitor: Visitor) -> None:
    status, text = visitor.post("/settings/members/", {"username": "a\0b", "role": "viewer"})
    assert status == 422 and "letters, digits" in text
