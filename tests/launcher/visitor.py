"""Somebody at a browser, over real HTTP."""

from __future__ import annotations

import http.client
import json
import os
from urllib.parse import urlsplit

from tests.launcher.application import Application


class Visitor:
    """Signed in by the printed link, as a browser does it."""

    def __init__(self, application: Application) -> None:
        place = urlsplit(application.address)
        self.host, self.port = place.hostname or "", place.port
        self.cookies: dict[str, str] = {}
        link = urlsplit(application.sign_in_link).path
        self.request("GET", link)
        status, _ = self.post(link, {})
        assert status == 302

    def request(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        connection.request(method, path, body=body, headers=named)  # type: ignore[arg-type]
        answer = connection.getresponse()
        for cookie in answer.headers.get_all("Set-Cookie", []):
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def post(
        self, path: str, fields: dict[str, str], files: dict[str, bytes] | None = None, **headers: str
    ) -> tuple[int, str]:
        fields = {"csrfmiddlewaretoken": self.cookies.get("csrftoken", ""), **fields}
        mark = b"--part-of-a-form"
        body = b"".join(
            mark + f'\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
            for name, value in fields.items()
        )
        for name, content in (files or {}).items():
            head = f'\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'
            body += mark + head.encode() + content + b"\r\n"
        content_type = f"multipart/form-data; boundary={mark[2:].decode()}"
        return self.request("POST", path, body + mark + b"--\r\n", Content_Type=content_type, **headers)

    def upload(self, size: int, **headers: str) -> tuple[int, str]:
        return self.post("/experiments/new/", {}, {"host.xplane.pb": os.urandom(1000) * (size // 1000)}, **headers)

    def readyz(self) -> tuple[int, dict[str, str]]:
        status, text = self.request("GET", "/readyz")
        return status, json.loads(text)

    def healthz(self) -> dict[str, str]:
        """Names of degraded parts; empty while the server does not answer."""
        status, text = self.request("GET", "/healthz")
        return json.loads(text) if status == 200 else {}
