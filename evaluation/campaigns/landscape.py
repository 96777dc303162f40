"""A recorded landscape: trials that were run once, read again.

A JSON list of objects: `mesh` ({"ici": {…}, "dcn": {…}}), `changes` (training keys), `step_time_s` or `step_times_s`,
`peak_memory_bytes`, and for what failed its `log`.  Several runs of one configuration are one, with the step times of
all that ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any

from campaigns.backends.backend import Outcome, Stop
from campaigns.engine.candidates import TrialCandidates, price
from campaigns.engine.space import key_of, settings_of
from perfmodel.config import ConfigError, ExperimentConfig
from perfmodel.config_file import read_training
from perfmodel.efficiency import Efficiencies, EfficiencyTable
from perfmodel.workload import from_config, stack
from proposals.candidate import Candidate, candidate

#: Configurations of one landscape.
MOST_ROWS = 20_000
_KEYS = {"mesh", "changes", "step_time_s", "step_times_s", "peak_memory_bytes", "log"}


@dataclass(frozen=True)
class Landscape:
    """configs and outcomes, side by side."""

    configs: Sequence[ExperimentConfig]
    outcomes: Sequence[Outcome]

    @cached_property
    def by_key(self) -> Mapping[str, Outcome]:
        return {key_of(config): outcome for config, outcome in zip(self.configs, self.outcomes, strict=True)}

    def measure(self, config: ExperimentConfig, stop: Stop) -> Outcome:
        return self.by_key.get(key_of(config), Outcome(log="The landscape contains no run of this configuration."))


def read_landscape(config: ExperimentConfig, rows: Any) -> Landscape:
    """rows: the parsed JSON.  config: what all of them share.  Raises ConfigError that names the row at fault."""
    if not isinstance(rows, list) or not rows:
        raise ConfigError("landscape", "must be a list of recorded runs, each with its mesh and step time")
    if len(rows) > MOST_ROWS:
        raise ConfigError("landscape", f"has {len(rows):,} runs; at most {MOST_ROWS:,} can be taken")
    known = set(settings_of(config))
    runs: dict[str, tuple[ExperimentConfig, list[Outcome]]] = {}
    for number, row in enumerate(rows):
        made, outcome = _read(config, row, f"landscape[{number}]", known)
        runs.setdefault(key_of(made), (made, []))[1].append(outcome)
    return Landscape([made for made, _ in runs.values()], [_together(outcomes) for _, outcomes in runs.values()])


def _together(outcomes: Sequence[Outcome]) -> Outcome:
    """Of the runs of one configuration: what those that ran measured, else the first failure."""
    ran = [outcome for outcome in outcomes if outcome.step_times_s]
    if len(ran) <= 1:
        return ran[0] if ran else outcomes[0]
    peaks = [outcome.peak_bytes for outcome in ran if outcome.peak_bytes is not None]
    return Outcome(tuple(time for outcome in ran for time in outcome.step_times_s), max(peaks, default=None))


def _read(config: ExperimentConfig, row: Any, field: str, known: set[str]) -> tuple[ExperimentConfig, Outcome]:
    if (
        not isinstance(row, dict)
        or not isinstance(row.get("mesh"), dict)
        or not isinstance(row["mesh"].get("ici"), dict)
    ):
        raise ConfigError(
            field, 'must be an object with a mesh, such as {"mesh": {"ici": {"data": 8}}, "step_time_s": 1.2}'
        )
    if unknown := sorted(map(str, set(row) - _KEYS)):
        raise ConfigError(field, f"has the unknown key {unknown[0][:40]!r}; the keys are {', '.join(sorted(_KEYS))}")
    changes = row.get("changes", {})
    if not isinstance(changes, dict) or set(changes) - known:
        raise ConfigError(f"{field}.changes", f"takes {', '.join(sorted(known))}")
    on_mesh = candidate(config, Candidate(_sizes(row["mesh"], field)))
    read = read_training(on_mesh, changes)
    made = candidate(on_mesh, Candidate(on_mesh.mesh.to_json(), {key: getattr(read, key) for key in changes}))
    times = row.get("step_times_s", [row["step_time_s"]] if row.get("step_time_s") is not None else [])
    if not isinstance(times, list) or not all(_positive(value) for value in times):
        raise ConfigError(f"{field}.step_time_s", "must be a positive number of seconds, or absent where it failed")
    peak = row.get("peak_memory_bytes")
    if peak is not None and not _positive(peak):
        raise ConfigError(f"{field}.peak_memory_bytes", "must be a positive number of bytes, or absent")
    log = row.get("log", "")
    return made, Outcome(tuple(map(float, times)), peak, log if isinstance(log, str) else "")


def _sizes(mesh: Mapping[str, Any], field: str) -> dict[str, dict[str, int]]:
    by_network: dict[str, dict[str, int]] = {"ici": {}, "dcn": {}}
    for place in by_network:
        sizes = mesh.get(place, {})
        if not isinstance(sizes, dict) or not all(
            isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in sizes.values()
        ):
            raise ConfigError(f"{field}.mesh.{place}", "must give every axis a whole number from 1 on")
        by_network[place] = {str(axis): size for axis, size in sizes.items()}
    return by_network


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value > 0


def listed(
    configs: Sequence[ExperimentConfig], efficiencies: Efficiencies | EfficiencyTable | None = None
) -> TrialCandidates:
    """Return the configurations of a recorded landscape as candidates, priced by the model alone."""
    return price(configs, stack([from_config(config) for config in configs]), efficiencies=efficiencies)
