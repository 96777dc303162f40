"""The two teams' objects with everybody who may ask for them, and what the database held before anybody did."""

from __future__ import annotations

from django.urls import resolve

from tests.permissions import snapshot
from tests.permissions.callers import callers, filled
from tests.permissions.objects import Site
from tests.permissions.table import Row


class Doors:
    """The site with everybody at its doors."""

    def __init__(self, site: Site) -> None:
        self.site, self.named = site, site.named()
        self.callers = callers(site)
        self.before = snapshot.checksums()
        self.rows = snapshot.rows(list(self.before))

    def address(self, row: Row) -> str:
        return str(filled(row.address, self.named))

    def route(self, row: Row) -> str:
        return str(resolve(self.address(row).partition("?")[0]).route)
