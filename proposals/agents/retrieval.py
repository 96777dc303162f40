"""What is looked up for a run: the optimization database, the knowledge base, and the team's other experiments.

`stored` answers from the database, within what the team may see; `shipped` from the files of the product alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from diagnosis.compare.comparison import Comparison
from history.case import Case
from history.record import Record
from history.similarity import Expected
from proposals.agents.tool_result import Result, taken


@dataclass(frozen=True)
class RecordFound:
    """A record of the optimization database.  why: what
    matched or is alike, for people; expected: its effect re-scaled to the case that it was looked up for."""

    record: Record
    why: tuple[str, ...] = ()
    expected: Expected | None = None


def passage_row(item: Any, key: str, source: str, own: bool) -> Result:
    """Return a passage of the knowledge base.  key: what a citation names; own: from a document of the team's own."""
    names = "title text formula applies_when counter_indications section url"
    return taken(item, names, key=key, source=source, own=own)


class Unavailable(LookupError):
    """This cannot be had here.  The text is a sentence for the user."""


class Retrieval(Protocol):
    """Everything is read, nothing written; what the team may not see does not exist."""

    def search_history(
        self, query: str, k: int, bottleneck: str = "", chip: str = "", outcome: str = ""
    ) -> tuple[Sequence[RecordFound], Sequence[str]]:
        """Records that answer a query in words, best first, and notes for the reader."""

    def similar_records(self, case: Case, k: int) -> Sequence[RecordFound]:
        """Records that are like a case, most alike first."""

    def record(self, id: str) -> Record | None: ...

    def search_knowledge(
        self, query: str, hardware: str, bottleneck: str, k: int
    ) -> tuple[Sequence[Result], Sequence[str]]:
        """Passages that answer a query, best first, and notes.  hardware: `tpu`, `gpu`, a chip or empty."""

    def passage(self, key: str) -> Result | None: ...

    def experiments(self, text: str, k: int) -> Sequence[Result]:
        """Diagnosed experiments of the team whose name holds the text, newest first; this one is not among them: id,
        name, chip, bottleneck, step_time_s."""

    def compare(self, other: int) -> Comparison:
        """The other experiment (`before`) with this one (`after`).  Raises Unavailable."""

    def launches(self) -> Sequence[Result]:
        """Launches of the experiment's proposals, newest first, as `launches.services.found` has them."""
