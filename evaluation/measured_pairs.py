"""Pairs of measured configurations of one workload: what a proposal claims, one against the other, was measured.

Sources: published runs of one model on the same chips and OptiCo's hand-tuned runs (evaluation/data/published), and the
measured sweeps (evaluation/data/sweeps).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from itertools import combinations
from math import log
from statistics import median_low

from evaluation import sweeps
from evaluation.optico import tuned_runs
from evaluation.published import PublishedRun, load_published
from evaluation.sweeps import SweepRun, load_sweeps
from perfmodel.config import ExperimentConfig
from perfmodel.config_file import config_to_json

SOURCES = ("published", "optico", *sweeps.SOURCES)
#: Of each workload of a sweep so many runs are compared, drawn by a hash: 120 runs would make 7,140 pairs.
MOST_RUNS = 6


@dataclass(frozen=True)
class MeasuredRun:
    """A configuration and the step time measured of it."""

    config: ExperimentConfig
    step_time_s: float

    @property
    def time_per_token_s(self) -> float:
        """Seconds per token of the global batch."""
        tokens = self.config.training.global_batch_tokens
        assert tokens is not None
        return self.step_time_s / tokens


@dataclass(frozen=True)
class Pair:
    """Two runs of one workload on the same chips, in no particular direction.

    group: runs that were compared with each other; family: groups that share a model and a source, which are left out
    together when something is fitted on pairs; weight: a group of n runs counts as n − 1 comparisons, however many
    pairs it makes.
    """

    source: str
    group: str
    family: str
    one: MeasuredRun
    other: MeasuredRun
    weight: float

    @property
    def changes(self) -> tuple[str, ...]:
        """What differs: `mesh`, `batch`, `micro_batch`, `remat`, `virtual_stages`, `weight_sharding`."""
        a, b = self.one.config, self.other.config
        kinds = ["mesh"] if (a.mesh.ici, a.mesh.dcn) != (b.mesh.ici, b.mesh.dcn) else []
        for name, key in (
            ("batch", "global_batch"),
            ("micro_batch", "micro_batch"),
            ("remat", "remat"),
            ("virtual_stages", "virtual_stages"),
            ("weight_sharding", "weight_sharding"),
        ):
            if getattr(a.training, key) != getattr(b.training, key):
                kinds.append(name)
        return tuple(kinds)


def log_gain(before: MeasuredRun, after: MeasuredRun) -> float:
    """Logarithm of the measured speed-up per token."""
    return log(before.time_per_token_s / after.time_per_token_s)


@cache
def measured_pairs() -> tuple[Pair, ...]:
    """All pairs of all sources; of large sweeps a sample, the same one each time."""
    return (*_published(), *_optico(), *_sweeps())


def _published() -> Iterable[Pair]:
    groups: dict[str, dict[str, list[PublishedRun]]] = defaultdict(lambda: defaultdict(list))
    for run in load_published().runs:
        training, hardware = run.config.training, run.config.hardware
        key = f"{run.shape.name} {hardware.chip} x{hardware.chips} S{training.seq_len} {training.precision}"
        groups[key][run.configuration].append(run)
    for group, configurations in groups.items():
        runs = list(configurations.values())
        for first, second in combinations(runs, 2):
            one, other = _nearest_in_software(first, second)
            yield Pair("published", group, f"published {one.shape.name}", _run(one), _run(other), 2 / len(runs))


def _nearest_in_software(
    first: Sequence[PublishedRun], second: Sequence[PublishedRun]
) -> tuple[PublishedRun, PublishedRun]:
    """Of a configuration measured under several releases, the runs whose releases lie nearest; the later of equals."""

    def apart(a: PublishedRun, b: PublishedRun) -> tuple[float, float]:
        years = [float(run.config.extra.get("software_year") or 0.0) for run in (a, b)]
        return abs(years[0] - years[1]), -max(years)

    return min(((a, b) for a in first for b in second), key=lambda pair: apart(*pair))


def _run(run: PublishedRun) -> MeasuredRun:
    return MeasuredRun(run.config, run.step_time_s)


def _optico() -> Iterable[Pair]:
    runs = {repr(run.config): MeasuredRun(run.config, run.step_time_s) for run in tuned_runs() if run.step_time_s}
    for one, other in combinations(runs.values(), 2):
        yield Pair("optico", "OptiCo Figure 5", "optico", one, other, 2 / len(runs))


def _sweeps() -> Iterable[Pair]:
    groups: dict[tuple[str, str], list[SweepRun]] = defaultdict(list)
    for run in load_sweeps():
        if run.usable:
            groups[run.source, run.work].append(run)
    for (source, workload), members in groups.items():
        runs = sorted(distinct(members), key=lambda run: _digest(run.config.name or ""))[:MOST_RUNS]
        pairs = list(combinations(runs, 2))
        family = f"{source} {members[0].model}"
        for one, other in pairs:
            yield Pair(source, workload, family, one, other, (len(runs) - 1) / len(pairs))


def distinct(runs: Iterable[SweepRun]) -> list[MeasuredRun]:
    """One run of every configuration: the median of those that were repeated, the faster of two."""
    repeats: dict[str, list[MeasuredRun]] = defaultdict(list)
    for run in runs:
        if run.step_time_s is not None:
            repeats[configuration_of(run.config)].append(MeasuredRun(run.config, run.step_time_s))
    middle = [median_low([run.step_time_s for run in same]) for same in repeats.values()]
    return [
        next(run for run in same if run.step_time_s == time)
        for same, time in zip(repeats.values(), middle, strict=True)
    ]


def configuration_of(config: ExperimentConfig) -> str:
    """The same text for runs of one configuration, whatever they are called."""
    data = config_to_json(config)
    return json.dumps({key: value for key, value in data.items() if key not in ("name", "notes")}, sort_keys=True)


def _digest(*names: str) -> str:
    return sha256(" ".join(names).encode()).hexdigest()
