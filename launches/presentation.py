"""A wave as its page shows it: both arms beside each other, repeat by repeat."""

from __future__ import annotations

from dataclasses import dataclass

from launches import backends
from launches.models import ArmRun, Launch
from launches.services.arms import proposal_of
from launches.services.choices import TOOLS
from proposals.control_arm import Verdict


@dataclass(frozen=True)
class Row:
    """One repeat of both arms; None where the launch has no such run."""

    repeat: int
    proposal: ArmRun | None
    control: ArmRun | None


@dataclass(frozen=True)
class Card:
    """predicted: speed-up per token as the proposal says; low, high: its 80 % interval."""

    launch: Launch
    rows: tuple[Row, ...]
    verdict: Verdict | None
    predicted: float | None
    low: float | None
    high: float | None

    @property
    def tool(self) -> str:
        return TOOLS.get(self.launch.tool, self.launch.tool)

    @property
    def manual(self) -> bool:
        return self.launch.backend == backends.MANUAL

    @property
    def tone(self) -> str:
        """Of the badge of the verdict."""
        tones = {"adopt": "measured", "reject": "failed", "no_difference": "review"}
        return tones.get(self.verdict.outcome if self.verdict else "", "waiting")

    @property
    def within(self) -> bool | None:
        """Whether the measured speed-up lies in the predicted interval; None where either is missing."""
        if self.verdict is None or self.verdict.speedup is None or not self.low or not self.high:
            return None
        return self.low <= self.verdict.speedup <= self.high


def card(launch: Launch) -> Card:
    runs = {(run.repeat, run.arm): run for run in launch.runs.all()}
    rows = tuple(
        Row(number, runs.get((number, "proposal")), runs.get((number, "control")))
        for number in range(1, launch.repeats + 1)
    )
    predicted = proposal_of(launch).value.predicted
    return Card(launch, rows, launch.judged, predicted.speedup, predicted.speedup_low80, predicted.speedup_high80)
