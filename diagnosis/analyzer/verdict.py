"""The primary bottleneck with its evidence, before it is put into words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp

#: Real programs surprise more often than generated ones.
MOST_CONFIDENT = 0.97
#: Of a sample of the ops nobody knows whether it stands for the rest.
MOST_CONFIDENT_OF_A_SAMPLE = 0.6
#: What is left of a recording beside what happens once must be this part or more to tell anything.
LEAST_LEFT = 0.5


@dataclass(frozen=True)
class Verdict:
    """primary with the shares behind it.

    groups: exclusive shares of the step by compute, memory, communication, input, host, idle and other; what stages of
    a pipeline wait inside their exchange (bubble) counts as idle.  by: `threshold`, `larger` or `sample`, empty for
    unknown.  margin: 0–1, how far the decision is from going the other way.  quality: 0–1, how far the data carries it.
    sample: of the listed ops' time, by what limits it, where by is `sample`.
    """

    primary: str
    margin: float
    quality: float
    groups: Mapping[str, float] = field(default_factory=dict)
    secondary: str | None = None
    by: str = ""
    bubble: float = 0.0
    sample: Mapping[str, float] = field(default_factory=dict)

    @property
    def communication(self) -> float:
        return self.groups.get("communication", 0.0)

    @property
    def confidence(self) -> float:
        """How often a verdict like this is right, 0–1.

        Two curves over the margin, measured on generated steps (docs/accuracy-diagnosis.md); missing FLOPs, ops, step
        markers and ops without a label pull them towards one half.
        """
        match self.by:
            case "threshold":
                # Input, host and idle time are KPIs; collectives are added up from ops.
                stated = self.primary != "communication"
                right = 1.0 - 0.5 * exp(-self.margin / 0.14)
                quality = 0.5 + 0.5 * self.quality if stated else self.quality
            case "larger" | "sample":
                right, quality = 1.0 - 0.45 * exp(-self.margin / 0.12), self.quality
            case _:
                return round(0.5 * self.quality, 2)
        most = MOST_CONFIDENT_OF_A_SAMPLE if self.by == "sample" else MOST_CONFIDENT
        return round(min(most, 0.5 + (right - 0.5) * quality), 2)
