"""The compile checks of a plan as the page shows them: verdict, peak memory and collectives beside the prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perfmodel.config import ExperimentConfig
from proposals.compiling import predicted
from proposals.compiling.result import CollectiveUse, CompileCheck
from proposals.models import Compilation

WORDS = {
    "fits": ("Fits", "measured"),
    "out_of_memory": ("Out of memory", "failed"),
    "invalid": ("Does not compile", "failed"),
    "crashed": ("Compiler crashed", "review"),
    "timed_out": ("Compiler timed out", "review"),
    "not_installed": ("Not checked", "plain"),
    "refused": ("Not checked", "plain"),
}
MOST_SHOWN = 5


@dataclass(frozen=True)
class Compiled:
    """One check, of the baseline or of a proposal.  predicted_bytes: memory per chip by the performance model."""

    made: Compilation
    found: CompileCheck | None
    predicted_bytes: float | None
    axes: list[predicted.AxisBytes]

    @property
    def word(self) -> str:
        return WORDS[self.found.outcome][0] if self.found else self.made.get_status_display()

    @property
    def css(self) -> str:
        return WORDS[self.found.outcome][1] if self.found else "running" if self.made.is_open else "plain"

    @property
    def name(self) -> str:
        proposal = self.made.proposal
        return f"proposal {proposal.rank}" if proposal else "baseline"

    @property
    def memory_bytes(self) -> float | None:
        return self.found.memory_bytes if self.found else None

    @property
    def how(self) -> str:
        """Where the memory comes from, for the mark at the number."""
        assert self.found is not None
        compiler = ", ".join(f"{name} {version}" for name, version in (self.found.versions or {}).items())
        said = "peak memory" if self.found.outcome == "fits" else "memory asked for"
        return f"{said} of the compiled reference step, {self.found.effort} effort, {compiler}"

    @property
    def free_bytes(self) -> float | None:
        """Capacity less the memory; negative where it does not fit."""
        if self.memory_bytes is None or self.found is None or self.found.capacity_bytes is None:
            return None
        return self.found.capacity_bytes - self.memory_bytes

    @property
    def over_bytes(self) -> float:
        return -(self.free_bytes or 0.0)

    @property
    def largest(self) -> tuple[CollectiveUse, ...]:
        return self.found.collectives[:MOST_SHOWN] if self.found else ()


def shown(made: Compilation, config: ExperimentConfig | None) -> Compiled:
    check = made.value
    if check is None or config is None:
        return Compiled(made, check, None, [])
    axes = predicted.by_axis(config, check) if check.outcome == "fits" else []
    return Compiled(made, check, predicted.memory_bytes(config), axes)


def by_proposal(
    rows: Mapping[int | None, Compilation], configs: Mapping[int | None, ExperimentConfig | None]
) -> dict[int | None, Compiled]:
    """In the order of their ranks, the baseline first."""
    ordered = sorted(rows.items(), key=lambda item: item[1].proposal.rank if item[1].proposal else 0)
    return {key: shown(made, configs.get(key)) for key, made in ordered}
