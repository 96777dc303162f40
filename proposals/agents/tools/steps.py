"""The tool over recorded steps and cores: how steps spread, whether they settle, which core differs."""

from __future__ import annotations

from itertools import pairwise
from statistics import mean, median, pstdev
from typing import Any

from agent.tools import NoArguments
from experiments.step_profile import PROFILE
from proposals.agents.tool_result import ToolResult
from proposals.agents.tools.common import Tools

#: Steps and cores that are listed.
LISTED = 8


class StepRow(ToolResult):
    """A recorded step."""

    step: int = 0
    time_s: float = 0.0


class CoreRow(ToolResult):
    """The steps of one core."""

    core: str = ""
    mean_step_s: float = 0.0
    above_the_median_share: float = 0.0
    idle_s: float | None = None
    steps_s: tuple[float, ...] = ()


class Steps(ToolResult):
    """How recorded steps spread, over time and over cores; trend: `falling` or `rising`, where each step was."""

    recorded_steps: int = 0
    recorded_cores: int = 0
    chips: int = 0
    mean_s: float | None = None
    median_s: float | None = None
    shortest_s: float = 0.0
    longest_s: float = 0.0
    standard_deviation_s: float = 0.0
    standard_error_s: float = 0.0
    standard_deviation_share: float = 0.0
    trend: str = ""
    mean_excluding_first_s: float = 0.0
    first: tuple[StepRow, ...] = ()
    busy_s: float = 0.0
    idle_share: float = 0.0
    idle_share_of_the_shortest: float | None = None
    median_core_s: float = 0.0
    cores: tuple[CoreRow, ...] = ()
    cores_recorded: int = 0


class StepTools(Tools):
    def steps(self, asked: NoArguments) -> Steps:
        """The recorded steps: times, mean, median, standard deviation and standard error, whether each was shorter than
        the one before, what the verdict's idle time would be on the shortest step; and each core's mean step and idle
        time beside the median core."""
        profile, diagnosis = self._bench.profile, self._bench.diagnosis
        times = [step.time_s for step in profile.steps]
        data: dict[str, Any] = {
            "recorded_steps": len(times), "recorded_cores": profile.device.measured_cores,
            "chips": self._bench.config.hardware.chips,
        }  # fmt: skip
        if len(times) > 1:
            spread = pstdev(times)
            data |= {
                "mean_s": mean(times), "median_s": median(times), "shortest_s": min(times), "longest_s": max(times),
                "standard_deviation_s": spread, "standard_error_s": spread / len(times) ** 0.5,
                "standard_deviation_share": spread / mean(times),
                "trend": _trend(times),
                "mean_excluding_first_s": mean(times[1:]),
                "first": [StepRow(step=step.number, time_s=step.time_s) for step in profile.steps[:LISTED]],
            }  # fmt: skip
            idle, step = diagnosis.breakdown_s.get("idle"), diagnosis.kpis.get("step_time_s")
            if idle is not None and step and diagnosis.basis == PROFILE:
                busy = step - idle
                data |= {
                    "busy_s": busy, "idle_share": idle / step,
                    "idle_share_of_the_shortest": max(0.0, 1 - busy / min(times)),
                }  # fmt: skip
        return Steps.model_validate({**data, **self._cores()})

    def _cores(self) -> dict[str, Any]:
        line = self._bench.diagnosis.timeline
        means = {core: mean(row) for core, row in zip(line.cores, line.durations_s, strict=False) if row}
        if len(means) < 2:
            return {}
        middle = median(means.values())
        idle = dict(zip(line.cores, line.parts_s.get("idle", ()), strict=False))
        rows = [
            CoreRow(
                core=core, mean_step_s=value, above_the_median_share=value / middle - 1,
                idle_s=mean(idle[core]) if idle.get(core) else None,
                steps_s=line.durations_s[line.cores.index(core)][:LISTED],
            )
            for core, value in means.items()
        ]  # fmt: skip
        rows.sort(key=lambda row: -row.mean_step_s)
        return {"median_core_s": middle, "cores": rows[:LISTED], "cores_recorded": len(means)}


def _trend(times: list[float]) -> str:
    pairs = list(pairwise(times))
    if len(pairs) < 2:
        return ""
    if all(after < before for before, after in pairs):
        return "falling"
    return "rising" if all(after > before for before, after in pairs) else ""
