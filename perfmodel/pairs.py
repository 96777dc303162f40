"""Pairs of measured configurations of one workload: what a proposal claims, one against the other, was measured.

Three sources: published runs of one model on the same chips (data/published_runs.json), OptiCo's hand-tuned runs
(data/optico.json), and sweeps of layouts (data/layouts.json).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import log

from perfmodel.config import ExperimentConfig
from perfmodel.layouts import layouts
from perfmodel.optico import tuned_runs
from perfmodel.published import PublishedRun, load_published

SOURCES = ("published", "optico", "layouts")


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
    together when something is fitted on pairs; held_out: the group of `perfmodel.accuracy.foldings` whose efficiencies
    must not have seen these rows, empty where no efficiency is fitted on them; weight: a group of n runs counts as
    n − 1 comparisons, however many pairs it makes.
    """

    source: str
    group: str
    family: str
    held_out: str
    one: MeasuredRun
    other: MeasuredRun
    weight: float

    @property
    def changes(self) -> tuple[str, ...]:
        """What differs: `mesh`, `batch`, `micro_batch`, `remat`, `virtual_stages`, `weight_sharding`."""
        a, b = self.one.config, self.other.config
        found = ["mesh"] if (a.mesh.ici, a.mesh.dcn) != (b.mesh.ici, b.mesh.dcn) else []
        for name, key in (
            ("batch", "global_batch"),
            ("micro_batch", "micro_batch"),
            ("remat", "remat"),
            ("virtual_stages", "virtual_stages"),
            ("weight_sharding", "weight_sharding"),
        ):
            if getattr(a.training, key) != getattr(b.training, key):
                found.append(name)
        return tuple(found)


def log_gain(before: MeasuredRun, after: MeasuredRun) -> float:
    """Logarithm of the measured speed-up per token."""
    return log(before.time_per_token_s / after.time_per_token_s)


@cache
def measured_pairs() -> tuple[Pair, ...]:
    """All pairs of all sources; OptiCo's and the sweeps' with the same kernels only."""
    return (*_published(), *_optico(), *_layouts())


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
            held_out = f"{one.shape.name} on {one.chip.name}"
            yield Pair(
                "published", group, f"published {one.shape.name}", held_out, _run(one), _run(other), 2 / len(runs)
            )


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
        yield Pair("optico", "OptiCo Figure 5", "optico", "", one, other, 2 / len(runs))


def _layouts() -> Iterable[Pair]:
    groups: dict[tuple[str, str, bool], list[MeasuredRun]] = defaultdict(list)
    for run in layouts():
        if run.step_time_s:
            key = (run.workload, run.kernel, bool(run.config.training.sequence_parallel))
            groups[key].append(MeasuredRun(run.config, run.step_time_s))
    for (workload, kernel, parallel), runs in groups.items():
        model = workload.split()[0]
        name = f"{workload} {kernel}{' sequence parallel' if parallel else ''}"
        for one, other in combinations(runs, 2):
            yield Pair("layouts", name, f"layouts {model}", "", one, other, 2 / len(runs))
