"""A wave as its page shows it: both arms beside each other, repeat by repeat."""

from __future__ import annotations

from dataclasses import dataclass

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
    """verdict: None until every run has ended."""

    launch: Launch
    rows: tuple[Row, ...]
    verdict: Verdict | None

    @property
    def tool(self) -> str:
        return TOOLS.get(self.launch.tool, self.launch.tool)

    @property
    def tone(self) -> str:
        """Of the badge of the verdict."""
        tones = {"adopt": "measured", "reject": "failed", "no_difference": "review"}
        return tones.get(self.verdict.outcome if self.verdict else "", "waiting")

    @property
    def within(self) -> bool | None:
        """Whether the measured speed-up lies in the predicted interval; None where either is missing."""
        predicted = proposal_of(self.launch).value.predicted
        low, high = predicted.speedup_low80, predicted.speedup_high80
        if self.verdict is None or self.verdict.speedup is None or not low or not high:
            return None
        return low <= self.verdict.speedup <= high


def card(launch: Launch) -> Card:
    runs = {(run.repeat, run.arm): run for run in launch.runs.all()}
    rows = tuple(
        Row(number, runs.get((number, "proposal")), runs.get((number, "control")))
        for number in range(1, launch.repeats + 1)
    )
    return Card(launch, rows, launch.judged)
