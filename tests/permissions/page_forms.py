"""What may be sent to a page: the fields of its forms, the parameters of its links, and what its view looks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit

import pytest
from django.http import QueryDict
from django.urls import Resolver404, resolve

FILE = "file"


@dataclass
class Form:
    """names: what may be sent, each with the values that the page offers; FILE where it is a file."""

    method: str
    action: str
    names: dict[str, set[str]] = field(default_factory=dict)


class _Reader(HTMLParser):
    def __init__(self, address: str) -> None:
        super().__init__()
        self.address, self.found = address, []  # type: ignore[var-annotated]
        self._form: Form | None = None
        self._select = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attributes}
        if tag == "form":
            self._form = Form(given.get("method", "get").lower(), urljoin(self.address, given.get("action", "")))
            self.found.append(self._form)
        elif tag == "a":
            address = urlsplit(urljoin(self.address, given.get("href", "")))
            if address.query and not address.scheme:
                link = Form("get", address.path)
                for name, value in parse_qsl(address.query):
                    link.names.setdefault(name, set()).add(value)
                self.found.append(link)
        elif self._form is not None:
            name = given.get("name", "")
            if tag == "select":
                self._select = name
            if tag == "option" and self._select:
                self._form.names.setdefault(self._select, set()).add(given.get("value", ""))
            elif tag in ("input", "select", "textarea", "button") and name:
                offered = self._form.names.setdefault(name, set())
                offered.add(FILE if given.get("type") == "file" else given.get("value", ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None
        if tag == "select":
            self._select = ""


def forms_of(page: str, address: str) -> list[Form]:
    reader = _Reader(address.partition("?")[0])
    reader.feed(page)
    return reader.found


def merged(forms: list[Form]) -> dict[tuple[str, str], dict[str, set[str]]]:
    """The names of all forms that send to one route, by method and route."""
    found: dict[tuple[str, str], dict[str, set[str]]] = {}
    for form in forms:
        try:
            route = str(resolve(urlsplit(form.action).path).route)
        except Resolver404:
            continue
        names = found.setdefault((form.method, route), {})
        for name, offered in form.names.items():
            names.setdefault(name, set()).update(offered)
    return found


@contextmanager
def names_read() -> Iterator[set[str]]:
    """Yield the names that views look for in a query or a form meanwhile, offered by a page or sent by a script."""
    found: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        for method in ("__getitem__", "__contains__", "getlist"):
            patch.setattr(QueryDict, method, _noted(getattr(QueryDict, method), found))
        yield found


def _noted(usual: Callable[..., Any], found: set[str]) -> Callable[..., Any]:
    def look(query: QueryDict, name: str, *more: Any, **options: Any) -> Any:
        found.add(name)
        return usual(query, name, *more, **options)

    return look
