"""The web server as `asap run` starts it: probes, limits, headers."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

import pytest

from tests.launcher.application import Application


def request(
    application: Application, method: str, path: str, body: object = None, **headers: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    place = urlsplit(application.address)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=30)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body=body, headers=named)  # type: ignore[arg-type]
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, answer.headers, content


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
def test_probes_know_neither_our_name_nor_tls(application: Application, path: str) -> None:
    assert request(application, "GET", path, Host="10.1.2.3:8000")[0] == 200
    assert request(application, "HEAD", path)[0] == 200
    assert request(application, "POST", path)[0] == 405


def test_a_page_under_a_foreign_name_is_refused(application: Application) -> None:
    assert request(application, "GET", "/sign-in/", Host="evil.example")[0] == 400


def test_every_page_carries_a_strict_policy(application: Application) -> None:
    _, headers, _ = request(application, "GET", "/sign-in/")
    policy = headers["Content-Security-Policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_static_files_have_names_of_their_content(application: Application) -> None:
    manifest = json.loads((application.home / "static" / "staticfiles.json").read_text())
    status, headers, _ = request(application, "GET", f"/static/{manifest['paths']['app.css']}", Accept_Encoding="gzip")
    assert status == 200
    assert "immutable" in headers["Cache-Control"]
    assert headers["Content-Encoding"] == "gzip"
