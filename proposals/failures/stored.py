"""A failure as it was stored: what `Failure.to_json` wrote, read back without its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from experiments.codec import Codec
from experiments.sentences import Sentence
from perfmodel.config import ExperimentConfig
from proposals.failures.failure import CAUSES, Failure
from proposals.failures.forbidden import Forbidden


@dataclass(frozen=True)
class StoredRule:
    """What must not be tried again, of the run's own configuration.  constraints: as `Constraints.to_json`."""

    rule: Literal["memory", "axis", "mesh", "configuration"]
    role: str = ""
    dimension: int | None = None
    constraints: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredFailure:
    """cause: one of CAUSES, empty where nothing was stored; failure: one of `history.record.FAILURES`."""

    cause: str = ""
    failure: str = ""
    confidence: float = 0.0
    sentence: str = ""
    line: str = ""
    lines: int = 0
    forbidden: StoredRule | None = None

    @property
    def words(self) -> str:
        return CAUSES.get(self.cause, self.cause)

    def of(self, config: ExperimentConfig | None) -> Failure:
        """What it says of other candidates.  config: of the run, None where nothing is forbidden."""
        cause, rule = self.cause if self.cause in CAUSES else "unknown", self.forbidden
        forbidden = Forbidden(rule.rule, config, rule.role, rule.dimension) if rule and config is not None else None
        return Failure(cause, self.confidence, Sentence(self.sentence), self.lines, forbidden=forbidden)


FAILURE = Codec(StoredFailure)
