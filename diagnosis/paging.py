"""Where a page stands among all pages of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Page:
    """rows on this page, of `total` on all pages of `size` rows; number: of this page, from 1."""

    rows: Sequence[Any]
    total: int
    number: int
    size: int

    @property
    def first(self) -> int:
        return (self.number - 1) * self.size + 1 if self.rows else 0

    @property
    def last(self) -> int:
        return (self.number - 1) * self.size + len(self.rows)

    @property
    def previous(self) -> int | None:
        return self.number - 1 if self.number > 1 else None

    @property
    def next(self) -> int | None:
        return self.number + 1 if self.last < self.total else None
