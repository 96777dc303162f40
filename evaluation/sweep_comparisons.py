"""What a sweep teaches in few comparisons: for each workload a handful of its runs, one against another.

Rules, without a look at whether the outcome pleases:

- the fastest run against typical starts: the median run, the fastest without tensor and pipeline axes, the fastest with
  the widest tensor axis and no pipeline, the fastest with the deepest pipeline and no tensor axis;
- single steps, which change one setting: two axes by a factor of two, the micro-batch by two, the weight sharding, the
  precision.  Runs that took the same step with other settings are its repeats; of every trade between two axes and of
  every other setting the step that brought most and the one that cost most are chosen by the median of these and shown
  by the run that is it, so that one odd run decides nothing;
- for each of these a failure one such step away from a run, of which the fastest counts.

Workloads of one source that differ in depth and batch only (80 of vTrain's) are one group: that with most runs stands
for it, beside it those whose batch or depth is four times larger or smaller, and the others are a range.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import log
from statistics import median, median_low

from evaluation.measured_pairs import configuration_of, distinct
from evaluation.sweeps import SweepRun, load_sweeps

#: Most times that a baseline is slower than the fastest run, but for weight sharding: what lies beyond is broken.
SLOW = 3.0
#: Steps that change the time by less are not worth a record.
LEAST = log(1.05)
#: Share of the repeats of a step that go the way of their median; else it says nothing.
AGREE = 2.0 / 3.0
#: Comparisons of one workload.
MOST = 20

#: Factor in batch or depth from which two workloads of a group are looked up apart.
APART = 4.0

AXES = ("pipeline", "data", "fsdp", "context", "model")


@dataclass(frozen=True)
class Setting:
    """One run of a sweep with what may differ between two of its workload."""

    run: SweepRun
    repeats: int = 1

    @cached_property
    def sizes(self) -> dict[str, int]:
        return {axis: size for axis, size in self.run.config.mesh.ici if size > 1}

    def size(self, axis: str) -> int:
        return self.sizes.get(axis, 1)

    @property
    def micro_batch(self) -> int:
        return self.run.config.training.micro_batch or 1

    @property
    def time_per_token_s(self) -> float | None:
        tokens = self.run.config.training.global_batch_tokens
        return self.run.step_time_s / tokens if self.run.step_time_s and tokens else None

    @property
    def change_key(self) -> tuple[object, ...]:
        training = self.run.config.training
        return (tuple(self.sizes.items()), self.micro_batch, training.weight_sharding, training.precision)


@dataclass(frozen=True)
class Comparison:
    """why: what the two runs are among those of their workload.  repeats: log gains of the same step with other
    settings; siblings: of the same change in the other workloads of the group."""

    workload: str
    why: str
    before: Setting
    after: Setting
    repeats: tuple[float, ...] = ()
    siblings: tuple[float, ...] = ()

    @property
    def log_gain(self) -> float | None:
        """None where the run after the change failed."""
        one, other = self.before.time_per_token_s, self.after.time_per_token_s
        return log(one / other) if one and other else None


@cache
def comparisons() -> tuple[Comparison, ...]:
    """Of all sweeps, in the order of their files."""
    groups: dict[tuple[object, ...], dict[str, list[SweepRun]]] = defaultdict(lambda: defaultdict(list))
    for run in load_sweeps():
        if run.consistent and run.status != "unclear":
            groups[_group(run)][_workload(run)].append(run)
    return tuple(one for group in groups.values() for one in _of_group(list(group.values())))


def _group(run: SweepRun) -> tuple[object, ...]:
    """Workloads that differ in depth, batch and number of micro-batches only."""
    shape, hardware = run.config.model, run.config.hardware
    assert shape is not None
    return run.source, shape.d_model, hardware.chip, hardware.chips, run.config.training.seq_len


def _workload(run: SweepRun) -> str:
    """`SweepRun.workload`, but that tables of llm-foundry hold several models and batches."""
    shape, training = run.config.model, run.config.training
    assert shape is not None
    if run.source != "llm-foundry":
        return run.workload
    return f"{run.workload} D{shape.d_model} L{shape.layers} S{training.seq_len} B{training.global_batch}"


def _of_group(workloads: Sequence[Sequence[SweepRun]]) -> Iterator[Comparison]:
    def tried(runs: Sequence[SweepRun]) -> tuple[int, int]:
        return len(runs), max(run.config.training.global_batch or 0 for run in runs)

    chosen: list[Sequence[SweepRun]] = []
    for runs in sorted(workloads, key=tried, reverse=True):
        if all(_apart(runs[0], other[0]) for other in chosen):
            chosen.append(runs)
    others = [settings_that_ran(runs) for runs in workloads if runs not in chosen]
    for runs in chosen:
        for one in _of_workload(runs):
            yield replace(one, siblings=tuple(_same_change(one, others)) if runs is chosen[0] else ())


def _apart(one: SweepRun, other: SweepRun) -> bool:
    """Whether two workloads of a group are situations of their own: batch or depth differ by `APART`."""
    sizes = [(run.config.training.global_batch or 1, run.config.model.layers if run.config.model else 1)
             for run in (one, other)]  # fmt: skip
    return any(max(a / b, b / a) >= APART for a, b in zip(*sizes, strict=True))


def settings_that_ran(runs: Sequence[SweepRun]) -> list[Setting]:
    """Every configuration that ran, once."""
    by_name = {run.id: run for run in runs}
    kept = [by_name[run.config.name or ""] for run in distinct([run for run in runs if run.usable])]
    names = [configuration_of(run.config) for run in runs if run.usable]
    return [Setting(run, names.count(configuration_of(run.config))) for run in kept]


def _failed(runs: Sequence[SweepRun]) -> list[Setting]:
    """Every configuration that failed and never ran, once."""
    ran = {configuration_of(run.config) for run in runs if run.status == "ran"}
    found = {configuration_of(run.config): Setting(run) for run in runs if run.status == "failed"}
    return [one for name, one in found.items() if name not in ran]


def _of_workload(runs: Sequence[SweepRun]) -> list[Comparison]:
    ran, failed = sorted(settings_that_ran(runs), key=_time), _failed(runs)
    if len(ran) < 2:
        return []
    found: dict[frozenset[str], Comparison] = {}
    for one in (*_typical(ran), *_single(ran, failed)):
        key = frozenset((one.before.run.id, one.after.run.id))
        if key not in found and len(found) < MOST:
            found[key] = one
    return list(found.values())


def _typical(ran: Sequence[Setting]) -> Iterator[Comparison]:
    """ran: fastest first."""
    best = ran[0]
    for why, start in _starts(ran):
        if start is not best:
            yield Comparison(_workload(best.run), f"From {why} to the fastest of {len(ran)}", start, best)


def _single(ran: Sequence[Setting], failed: Sequence[Setting]) -> Iterator[Comparison]:
    """Of every trade between two axes, and of every other setting, the step that cost and the one that brought most,
    and a failure; the mesh first: a workload has room for `MOST`."""
    steps: dict[str, list[tuple[Comparison, float]]] = defaultdict(list)
    for step, effect in _steps(ran):
        steps[_what(step.why, step.before, step.after)].append((step, effect))
    broken: dict[str, Comparison] = {}
    for a in ran:
        for b in failed:
            if kind := step_of(a, b):
                what = _what(kind, a, b)
                why = f"A {what} that failed, from the fastest run with such a failure"
                broken.setdefault(what, Comparison(_workload(a.run), why, a, b))
    for what in sorted({*steps, *broken}, key=lambda what: (not what.startswith("mesh"), what)):
        costs = [(step, effect) for step, effect in steps[what] if effect <= -LEAST]
        gains = [(step, effect) for step, effect in steps[what] if effect >= LEAST]
        if gains:
            yield replace(max(gains, key=lambda item: item[1])[0], why=f"The {what} with the largest gain")
        if costs:
            yield replace(min(costs, key=lambda item: item[1])[0], why=f"The {what} with the largest loss")
        if what in broken:
            yield broken[what]


def _what(kind: str, a: Setting, b: Setting) -> str:
    """`mesh change from model to data`; of other settings their name."""
    if kind != "mesh":
        return f"{kind} change"
    less, more = (next(axis for axis in AXES if b.size(axis) / a.size(axis) == ratio) for ratio in (0.5, 2.0))
    return f"mesh change from {less} to {more}"


def _steps(ran: Sequence[Setting]) -> list[tuple[Comparison, float]]:
    """Every kind of step between runs, with its log gain: the median of its repeats.  `why` is what it changes."""
    slow = SLOW * _time(ran[0])
    same: dict[tuple[object, ...], list[tuple[float, Comparison]]] = defaultdict(list)
    for a in ran:
        for b in ran:
            kind = step_of(a, b)
            if kind and (_time(a) <= slow or kind == "weight-sharding") and _forward(a, b):
                gain = log(_time(a) / _time(b))
                same[kind, *_step_key(kind, a, b)].append((gain, Comparison(_workload(a.run), kind, a, b)))
    repeated = {key[0] for key, found in same.items() if len(found) > 1}
    chosen = []
    for key, found in same.items():
        gains = [gain for gain, _ in found]
        effect = median(gains)
        agree = sum(gain * effect > 0 for gain in gains) / len(gains)
        if agree >= AGREE and (len(found) > 1 or key[0] not in repeated):
            gain, middle = min(found, key=lambda item: (round(abs(item[0] - effect), 9), abs(item[0])))
            others = sorted(gain for gain, one in found if one is not middle)
            chosen.append((replace(middle, repeats=tuple(others)), effect))
    return chosen


def _forward(a: Setting, b: Setting) -> bool:
    """Steps that are not recorded in both directions: to more sharded weights, to the narrower precision."""
    one, other = a.run.config.training, b.run.config.training
    order = ("none", "zero1", "fsdp", "fp32", "bf16", "fp16", "fp8")
    return all(
        order.index(old) <= order.index(new)
        for old, new in ((one.weight_sharding, other.weight_sharding), (one.precision, other.precision))
    )


def _step_key(kind: str, a: Setting, b: Setting) -> tuple[object, ...]:
    """Common properties of runs that took the same step; of weight sharding whether stages and replicas meet, of all
    meshes."""
    if kind == "weight-sharding":
        return a.size("pipeline") > 1 and a.size("data") > 1, b.run.config.training.weight_sharding
    return tuple(a.sizes.items()), tuple(b.sizes.items()), b.micro_batch / a.micro_batch


def _starts(ran: Sequence[Setting]) -> Iterator[tuple[str, Setting]]:
    middle = median_low([_time(one) for one in ran])
    yield "the median run", next(one for one in ran if _time(one) == middle)

    def plain(*axes: str) -> list[Setting]:
        return [one for one in ran if all(one.size(axis) == 1 for axis in axes)]

    if data := plain("model", "pipeline", "context"):
        yield "the fastest run without tensor, pipeline and context axes", data[0]
    for axis, others, words in (
        ("model", ("pipeline",), "the fastest run with the widest tensor axis"),
        ("pipeline", ("model",), "the fastest run with the deepest pipeline"),
    ):
        widest = max((one.size(axis) for one in plain(*others)), default=1)
        if widest > 1:
            yield words, next(one for one in plain(*others) if one.size(axis) == widest)


def _time(one: Setting) -> float:
    assert one.time_per_token_s is not None
    return one.time_per_token_s


def step_of(a: Setting, b: Setting) -> str:
    """What a single step from one run to the other changes; empty where it is none, or more than one step."""
    one, other = a.run.config.training, b.run.config.training
    if one.remat != other.remat or one.global_batch != other.global_batch:
        return ""
    mesh = sorted(b.size(axis) / a.size(axis) for axis in AXES if b.size(axis) != a.size(axis))
    changed = {
        "mesh": mesh == [0.5, 2.0] if mesh else None,
        "micro-batch": b.micro_batch / a.micro_batch in (0.5, 2.0) if a.micro_batch != b.micro_batch else None,
        "weight-sharding": True if one.weight_sharding != other.weight_sharding else None,
        "precision": True if one.precision != other.precision else None,
    }
    touched = [(kind, single) for kind, single in changed.items() if single is not None]
    return touched[0][0] if len(touched) == 1 and touched[0][1] else ""


def _same_change(one: Comparison, others: Sequence[Sequence[Setting]]) -> Iterator[float]:
    for ran in others:
        by_key = {setting.change_key: setting for setting in ran}
        before, after = by_key.get(one.before.change_key), by_key.get(one.after.change_key)
        if before and after:
            yield log(_time(before) / _time(after))
