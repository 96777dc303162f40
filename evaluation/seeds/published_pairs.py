"""Pairs of the published runs in `evaluation/data/published`: two runs of the same model on the same chips.

Rules.  A pair shares model, chip, number of chips and sequence length, and differs in at most two kinds of setting
(three, where the software release is one of them).  It goes

- within one release, towards the narrower precision, the lighter remat, or else the faster run; where later releases
  repeat the pair, the latest is kept and the others are a caveat;
- from one release to the next one that has the workload, where the configuration changed, too: a release alone is no
  optimisation of a run; a workload that the release before had at one other precision only counts where nothing but
  precision and software changed.

Nothing is chosen by its outcome, so changes for the worse are among them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

from evaluation.published import PublishedRun, load_published
from perfmodel.config_file import config_to_json

#: Kinds of setting that may differ, without and with a change of release.
KINDS, KINDS_WITH_RELEASE = 2, 3
_PRECISIONS = ("fp32", "bf16", "fp16", "int8", "fp8", "mxfp8", "nvfp4")
_REMATS = ("full", "offload", "minimal", "none")
_KIND_OF = {
    "global_batch": "batch",
    "micro_batch": "batch",
    "precision": "precision",
    "remat": "remat",
    "weight_sharding": "weight_sharding",
    "xla_flags": "xla_flags",
    "virtual_stages": "other",
    "sequence_parallel": "other",
}


@dataclass(frozen=True)
class Run:
    """A published run with what may differ between two of them."""

    published: PublishedRun

    @property
    def row(self) -> Mapping[str, Any]:
        return self.published.row

    @cached_property
    def data(self) -> dict[str, Any]:
        return config_to_json(self.published.config)

    @property
    def release(self) -> str:
        match = re.match(r"(\d\d\.\d\d(?:\.\d+)?) NeMo", self.row["notes"])
        return match[1] if match else ""

    @property
    def workload(self) -> tuple[Any, ...]:
        hardware = self.data["hardware"]
        return (self.row["model"], hardware["chip"], self.published.config.hardware.chips, self.row["seq_len"])

    @cached_property
    def axes(self) -> dict[str, int]:
        """Every axis larger than one; those between slices are marked."""
        mesh = self.data["mesh"]
        sizes = {axis: size for axis, size in mesh["ici"].items() if size > 1}
        return sizes | {f"{axis} across slices": size for axis, size in mesh["dcn"].items() if size > 1}

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What was configured; flags count as one setting."""
        training = self.data["training"]
        keys = ("global_batch", "micro_batch", "precision", "remat", "weight_sharding", "virtual_stages")
        settings = {key: training[key] for key in (*keys, "sequence_parallel") if training.get(key) is not None}
        return settings | {"xla_flags": tuple(sorted(training["xla_flags"]))}

    @property
    def saved(self) -> Mapping[str, str]:
        """Where the recipe keeps each named activation (`mlpwo`: `offload`); empty where it names none."""
        remat = self.row["remat"] or {}
        return {name: where for name, where in remat.items() if where in ("device", "offload")}

    @property
    def configuration(self) -> tuple[Any, ...]:
        """The same for runs that a source prints alike; what only its scripts say is left out."""
        settings = [item for item in self.settings.items() if item[0] != "remat" or self.row["remat"]]
        return (tuple(self.axes.items()), tuple(settings), tuple(self.data["hardware"]["topology"]))

    @property
    def tokens_per_s_per_chip(self) -> float | None:
        return self.row["tokens_per_s_per_chip"]


@dataclass(frozen=True)
class Pair:
    before: Run
    after: Run
    repeats: tuple[float, ...] = ()
    drift: tuple[float, ...] = ()
    leap: tuple[float, str] | None = None
    """repeats: the same pair's speed-ups in earlier releases.  drift: of unchanged workloads on this chip over the two
    releases.  leap: the unchanged workload of any chip that these releases moved most, and its name, where it moved
    further than those of this chip."""

    @cached_property
    def differing(self) -> tuple[str, ...]:
        """Settings that differ; a remat policy only where it is known of both runs."""
        one, other = self.before.settings, self.after.settings
        unknown = {"remat"} - (set(one) & set(other))
        keys = {key for key in {*one, *other} - unknown if one.get(key) != other.get(key)}
        if "remat" not in unknown and self.before.saved != self.after.saved:
            keys.add("remat")
        return tuple(sorted(keys))

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        before, after = self.before, self.after
        kinds = ["mesh"] if before.axes != after.axes else []
        if before.data["hardware"]["topology"] != after.data["hardware"]["topology"] and not kinds:
            kinds.append("mesh")
        kinds += [_KIND_OF[key] for key in self.differing]
        if before.release != after.release:
            kinds.append("software")
        return tuple(dict.fromkeys(kinds))

    @property
    def few(self) -> bool:
        kinds = [kind for kind in self.kinds if kind not in ("weight_sharding", "xla_flags")]
        return 1 <= len(kinds) <= (KINDS_WITH_RELEASE if "software" in kinds else KINDS)

    @property
    def measure(self) -> str:
        rows = (self.before.row, self.after.row)
        if all(row["tokens_per_s_per_chip"] for row in rows):
            return "tokens/s per chip"
        return "step time" if all(row["step_time_s"] for row in rows) else "TFLOP/s per chip"

    @cached_property
    def speedup(self) -> float:
        """Time per token before / after, from what both rows publish."""
        before, after = self.before.row, self.after.row
        if self.measure == "tokens/s per chip":
            return float(after["tokens_per_s_per_chip"] / before["tokens_per_s_per_chip"])
        if self.measure == "TFLOP/s per chip":
            return float(after["tflops_per_chip"] / before["tflops_per_chip"])
        times = [row["step_time_s"] / (row["global_batch"] * row["seq_len"]) for row in (before, after)]
        return float(times[0] / times[1])


def pairs() -> list[Pair]:
    """All pairs by the rules above, in the order of the table."""
    groups: dict[tuple[Any, ...], list[Run]] = defaultdict(list)
    for published in load_published().runs:
        run = Run(published)
        groups[run.workload].append(run)
    runs = [run for group in groups.values() for run in group]
    candidates = [pair for group in groups.values() for pair in (*_within(group), *_across(group))]
    return [_with_drift(runs, pair) if "software" in pair.kinds else pair for pair in candidates]


def _within(group: list[Run]) -> Iterator[Pair]:
    """Pairs of one release; of repeats, the latest."""
    by_settings: dict[tuple[Any, ...], list[Pair]] = defaultdict(list)
    for first, second in combinations(group, 2):
        if first.release != second.release:
            continue
        pair = _directed(first, second)
        if pair.few:
            by_settings[(pair.before.configuration, pair.after.configuration)].append(pair)
    for same in by_settings.values():
        same.sort(key=lambda pair: pair.before.release)
        yield replace(same[-1], repeats=tuple(pair.speedup for pair in same[:-1]))


def _directed(first: Run, second: Run) -> Pair:
    forward = Pair(first, second)
    for key, order in (("precision", _PRECISIONS), ("remat", _REMATS)):
        one, other = first.settings.get(key), second.settings.get(key)
        if one != other and one in order and other in order:
            return forward if order.index(one) < order.index(other) else Pair(second, first)
    return forward if forward.speedup >= 1 else Pair(second, first)


def _across(group: list[Run]) -> Iterator[Pair]:
    """From each release to the next that has the workload, at the same precision where both have it."""
    releases = sorted({run.release for run in group if run.release})
    for run in group:
        earlier = [r for r in releases if r < run.release]
        if not earlier:
            continue
        before = [other for other in group if other.release == earlier[-1]]
        same = [other for other in before if other.settings["precision"] == run.settings["precision"]]
        candidates = same or before
        if len(candidates) != 1:
            continue
        pair = Pair(candidates[0], run)
        if not same and pair.kinds != ("precision", "software"):
            continue
        if pair.few and pair.kinds != ("software",):
            yield pair


def _with_drift(runs: Iterable[Run], pair: Pair) -> Pair:
    """The pair with what its two releases did to workloads whose configuration stayed."""
    of: dict[str, dict[Any, Run]] = {release: {} for release in (pair.before.release, pair.after.release)}
    for run in runs:
        if run.release in of:
            of[run.release][(run.workload, run.configuration)] = run
    old, new = of[pair.before.release], of[pair.after.release]
    ours = (pair.before.workload, pair.before.configuration)
    stayed = [Pair(old[key], new[key]) for key in old if key in new and key != ours]
    chip = pair.before.data["hardware"]["chip"]
    drift = tuple(other.speedup for other in stayed if other.before.data["hardware"]["chip"] == chip)
    furthest = max(stayed, key=lambda other: abs(other.speedup - 1), default=None)
    if furthest is None or abs(furthest.speedup - 1) <= max((abs(each - 1) for each in drift), default=0.0):
        return replace(pair, drift=drift)
    name = f"{furthest.after.published.shape.name} on {furthest.after.published.config.hardware.chips} × "
    return replace(pair, drift=drift, leap=(furthest.speedup, name + furthest.after.data["hardware"]["chip"]))
