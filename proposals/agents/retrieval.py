"""What is looked up for a run: the optimization database, the knowledge base, and the team's other experiments.

`stored` answers from the database, within what the team may see; `shipped` from the files of the product alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

from diagnosis.compare.comparison import Comparison
from history.case import Case
from history.record import Record
from history.similarity import Expected
from proposals.agents.tool_result import About, Is, ToolResult


@dataclass(frozen=True)
class RecordFound:
    """A record of the optimization database.  score: higher is nearer, comparable only within one search; why: what
    matched or is alike, for people; expected: its effect re-scaled to the case that it was looked up for."""

    record: Record
    score: float = 0.0
    why: tuple[str, ...] = ()
    expected: Expected | None = None


@dataclass(frozen=True)
class PassageFound:
    """A passage of the knowledge base.  key: what a citation names; own: from a document of the team's own."""

    key: str
    title: str
    text: str
    formula: str = ""
    applies_when: str = ""
    counter_indications: str = ""
    source: str = ""
    section: str = ""
    place: str = ""
    url: str = ""
    own: bool = False
    score: float = 0.0
    why: tuple[str, ...] = ()


class Peer(ToolResult):
    """Another diagnosed experiment of the team."""

    id: int = 0
    name: str = ""
    chip: str = ""
    bottleneck: str = ""
    step_time_s: Annotated[float | None, Is(origin="measured")] = None

    def about(self) -> About:
        return About("measured", self.name, f"experiment:{self.id}")


class ArmMeasured(ToolResult):
    """One arm of a launch.  runs: how many there are by their state; spread: the relative standard deviation of their
    step times from run to run."""

    arm: str = ""
    runs: dict[str, int] = {}
    step_time_s: float | None = None
    spread: Annotated[float | None, Is("spread from run to run", "share")] = None


class LaunchRow(ToolResult):
    """A proposal run beside its control arm, the baseline run again.  verdict: empty while it runs."""

    launch: int = 0
    proposal: int = 0
    state: str = ""
    backend: str = ""
    arms: tuple[ArmMeasured, ...] = ()
    verdict: str = ""
    says: str = ""
    speedup_per_token: float | None = None
    speedup_low95: Annotated[float | None, Is("lower end of the 95 % interval of the speed-up")] = None
    speedup_high95: Annotated[float | None, Is("upper end of the 95 % interval of the speed-up")] = None
    note: str = ""
    page: str = ""

    def about(self) -> About:
        return About("measured", f"launch {self.launch} of proposal {self.proposal}", self.page)


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
    ) -> tuple[Sequence[PassageFound], Sequence[str]]:
        """Passages that answer a query, best first, and notes.  hardware: `tpu`, `gpu`, a chip or empty."""

    def passage(self, key: str) -> PassageFound | None: ...

    def experiments(self, text: str, k: int) -> Sequence[Peer]:
        """Diagnosed experiments of the team whose name holds the text, newest first; this one is not among them."""

    def compare(self, other: int) -> Comparison:
        """The other experiment (`before`) with this one (`after`).  Raises Unavailable."""

    def launches(self) -> Sequence[LaunchRow]:
        """Launches of the experiment's proposals, newest first."""
