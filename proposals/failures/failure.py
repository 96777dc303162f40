"""What is known of a failed run: its cause with the line that says so, what to change, and what must not come again.

Confidence and verdict follow OptiCo (seed 003, D.5): above `SURE`, a cause that the configuration is responsible for is
forbidden, and a fault of the program, its environment or its storage is repaired first; any other failure is tried
again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.sentences import Sentence
from proposals.failures.forbidden import Forbidden
from proposals.failures.signatures import Signature, Verdict, table

#: What each cause is called.
CAUSES: Mapping[str, str] = {key: cause.label for key, cause in table().cause.items()}
#: Causes that lie in the configuration: the same one fails again.
OF_CONFIGURATION = tuple(key for key, cause in table().cause.items() if cause.verdict == "forbid")
#: Confidence above which a cause is acted on.
SURE = 0.5


@dataclass(frozen=True)
class Values:
    """What the lines state; None where they do not.  Bytes; seconds.

    requested, free, capacity, used, others: of memory, others being further processes on the device.  dimension,
    divisor: a size and what should divide it.  axis: of the mesh, or the collective that waited, as written there.
    peer: the process that did not answer.
    """

    requested: float | None = None
    free: float | None = None
    capacity: float | None = None
    used: float | None = None
    others: float | None = None
    dimension: int | None = None
    divisor: int | None = None
    axis: str | None = None
    peer: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    timeout_s: float | None = None

    def stated_values(self) -> dict[str, float | int | str]:
        return {key: value for key, value in dataclasses.asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Hit:
    """A line that a signature claims."""

    signature: Signature
    line: str
    number: int
    rank: int | None
    values: Values
    time: tuple[str, str] | None
    file: str = ""


@dataclass(frozen=True)
class Failure:
    """The cause of a failed run.

    cause: one of `CAUSES`.  confidence: 0 to 1.  line: the first error line without its prefixes, at most 300
    characters; line_number from 1 in `file`, rank as the line says.  lines: read in all.  parameters: paths in the
    configuration that are responsible, the likeliest first.  forbidden: what must not be tried again, where a
    configuration was given and the verdict is to forbid.  last: the last lines, where nothing is known.
    """

    cause: str
    confidence: float
    sentence: Sentence
    lines: int
    line: str = ""
    line_number: int | None = None
    file: str = ""
    rank: int | None = None
    signature: str = ""
    values: Values = field(default_factory=Values)
    parameters: tuple[str, ...] = ()
    check: tuple[str, ...] = ()
    forbidden: Forbidden | None = None
    last: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        return table().cause[self.cause].verdict if self.confidence > SURE else "retry"

    @property
    def words(self) -> str:
        return CAUSES[self.cause]

    @property
    def history(self) -> str:
        """As one of `history.record.FAILURES`."""
        return table().cause[self.cause].history

    def to_json(self) -> dict[str, Any]:
        """The contract of `asap failure --json` and of the API."""
        return {
            "cause": self.cause,
            "failure": self.history,
            "confidence": round(self.confidence, 3),
            "verdict": self.verdict,
            "sentence": str(self.sentence),
            "line": self.line,
            "line_number": self.line_number,
            "file": self.file,
            "rank": self.rank,
            "lines": self.lines,
            "values": self.values.stated_values(),
            "parameters": list(self.parameters),
            "check": list(self.check),
            "forbidden": self.forbidden.to_json() if self.forbidden else None,
            "last": list(self.last),
        }
