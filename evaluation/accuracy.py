"""How accurate the time model is, from out-of-fold predictions, as numbers: asapweb/explore/accuracy.json."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from evaluation import scores
from evaluation.accuracy_numbers import Ablation, Accuracy, ErrorScores, FarOff, NewerScores, Noise, Point, Rankings
from evaluation.fit_time import FOLD_STEPS, fitted
from evaluation.held_out import Evaluation, HeldOut, naive_error
from evaluation.optico import agreement
from evaluation.published import load_published
from evaluation.ranges import Errors, errors_at
from evaluation.time_rows import TimeRow
from perfmodel.efficiency import DISTANCES

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

#: Sources in the order of the report, with what they are.
SOURCES: Mapping[str, str] = {
    "recipes": "published recipes (MaxText on TPUs; Megatron-Bridge on GPUs), well tuned",
    "selene": "Megatron-LM on A100, 2022",
    "ultrascale": "nanotron on 8–512 H100, all meshes tried",
    "vtrain-single": "Megatron-DeepSpeed on 2–8 A100, all meshes tried",
    "vtrain-multi": "Megatron-DeepSpeed on 64 and 256 A100",
    "simumax": "Megatron-LM on 8 B200, truncated models",
    "llm-foundry": "PyTorch FSDP on A100 and H100",
}
#: The latest releases are predicted from those before this date.
NEWER = 2026.0


def part_of(row: TimeRow) -> str:
    """The line of the report a row belongs to."""
    if row.source == "recipes":
        return f"recipes, {row.chip.kind.upper()}, {'MoE' if row.mixture else 'dense'}"
    if row.source == "ultrascale":
        return f"ultrascale, {'with a pipeline' if row.pipelined else 'no pipeline'}"
    return row.source


def report(evaluations: Mapping[str, Evaluation], ablation: tuple[Ablation, ...] | None = None) -> Accuracy:
    """Everything docs/accuracy.md says of step times, as numbers.  evaluations: by kind of chip."""
    rows = [row for one in evaluations.values() for row in one.rows]
    errors = {kind: errors_at(one.rows, one.by_distance) for kind, one in evaluations.items()}
    return Accuracy(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        rows=len(rows),
        configurations=len({row.configuration for row in rows}),
        workloads=len({(row.source, row.workload) for row in rows}),
        distances={
            kind: {name: _of(one, np.ones(len(one.rows), dtype=bool)) for name, one in by_distance.items()}
            for kind, by_distance in errors.items()
        },
        parts=_by_part(errors),
        chips=_by_chip(errors),
        ranking=_ranking(evaluations),
        architecture=_rule(evaluations, "architecture"),
        newer={kind: newer for kind, one in evaluations.items() if (newer := newer_releases(one))},
        noise=noise(rows),
        worst=worst(evaluations),
        points=_points(evaluations),
        optico=agreement(),
        unmapped=dict(load_published().unmapped),
        ablation=ablation,
    )


def _of(errors: Errors, chosen: Mask) -> ErrorScores:
    held = errors.held
    return scores.errors(held.log_error[chosen], held.naive_error[chosen], errors.inside[chosen])


def _by_part(errors: Mapping[str, Mapping[str, Errors]]) -> dict[str, dict[str, ErrorScores]]:
    """Scores by part of the report and distance."""
    by_part: dict[str, dict[str, ErrorScores]] = defaultdict(dict)
    for by_distance in errors.values():
        for distance in DISTANCES:
            one = by_distance.get(distance)
            if one is None:
                continue
            parts = np.array([part_of(row) for row in one.rows])
            for part in sorted(set(parts)):
                by_part[part][distance] = _of(one, parts == part)
    order = list(SOURCES)
    return dict(sorted(by_part.items(), key=lambda item: order.index(item[0].split(",")[0])))


def _by_chip(errors: Mapping[str, Mapping[str, Errors]]) -> dict[str, dict[str, ErrorScores]]:
    """Scores by chip: models left out, and the chip itself left out."""
    by_chip: dict[str, dict[str, ErrorScores]] = defaultdict(dict)
    for by_distance in errors.values():
        for distance in ("model", "chip"):
            one = by_distance.get(distance)
            if one is None:
                continue
            chips = np.array([row.chip.name for row in one.rows])
            for chip in sorted(set(chips)):
                by_chip[chip][distance] = _of(one, chips == chip)
    return dict(sorted(by_chip.items()))


def _ranking(evaluations: Mapping[str, Evaluation]) -> dict[str, Rankings]:
    """By source: every workload ranked by predictions whose fit had seen none of its runs, and by the naive model."""
    ours: dict[str, list[scores.Ranked]] = defaultdict(list)
    naive: dict[str, list[scores.Ranked]] = defaultdict(list)
    for one in evaluations.values():
        held = one.by_rule["workload"]
        measured = np.array([one.rows[int(i)].step_time_s for i in held.index])
        names = [f"{one.rows[int(i)].source}: {one.rows[int(i)].workload}" for i in held.index]
        for by_source, error in ((ours, held.log_error), (naive, held.naive_error)):
            for ranked in scores.rank_all(names, measured * np.exp(error), measured):
                by_source[ranked.workload.split(":")[0]].append(ranked)
    summed = {source: (scores.summary(ours[source]), scores.summary(naive[source])) for source in SOURCES}
    return {source: Rankings(mine, plain) for source, (mine, plain) in summed.items() if mine and plain}


def _rule(evaluations: Mapping[str, Evaluation], rule: str) -> dict[str, ErrorScores]:
    """Scores of all rows of recipes with everything of one value of a rule left out."""
    rules = {}
    for kind, one in evaluations.items():
        held = one.by_rule.get(rule)
        if held is None:
            continue
        recipes = np.array([one.rows[int(i)].source == "recipes" for i in held.index])
        if recipes.any():
            rules[kind] = scores.errors(held.log_error[recipes], held.naive_error[recipes])
    return rules


def newer_releases(one: Evaluation) -> NewerScores | None:
    """Recipes of the latest software predicted from everything older; None where no row names a later release."""
    p = one.whole.problem
    years = np.array([float(row.config.extra.get("software_year") or np.nan) for row in p.rows])
    late = years >= NEWER
    if late.sum() < scores.FEWEST:
        return None
    fit = fitted(p, ~late, one.whole.x, FOLD_STEPS)
    errors = scores.errors(fit.log_error[late], naive_error(p, ~late)[late])
    return NewerScores(**asdict(errors), since=NEWER)


def noise(rows: Sequence[TimeRow]) -> dict[str, Noise]:
    """What repeated configurations differ by: median and 90 % quantile of max/min − 1, by source."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        groups[row.source, row.configuration].append(row.step_time_s)
    by_kind: dict[str, Noise] = {}
    for source in SOURCES:
        spread = [max(t) / min(t) - 1.0 for (name, _), t in groups.items() if name == source and len(t) > 1]
        if spread:
            by_kind[source] = Noise(len(spread), float(np.median(spread)), float(np.quantile(spread, 0.9)))
    return by_kind


def worst(evaluations: Mapping[str, Evaluation], each: int = 4) -> tuple[FarOff, ...]:
    """The rows of each source whose prediction, their workload left out, is farthest off."""
    rows = []
    for one in evaluations.values():
        held = one.by_rule["workload"]
        parts = np.array([part_of(one.rows[int(i)]) for i in held.index])
        for part in dict.fromkeys(parts):
            mine = np.flatnonzero(parts == part)
            for at in mine[np.argsort(-np.abs(held.log_error[mine]))[:each]]:
                rows.append(_row(one, held, int(at), str(part)))
    return tuple(sorted(rows, key=lambda row: -abs(np.log1p(row.error))))


def _row(one: Evaluation, held: HeldOut, at: int, part: str) -> FarOff:
    row = one.rows[int(held.index[at])]
    return FarOff(
        id=row.id,
        part=part,
        model=row.shape.name,
        chip=row.chip.name,
        precision=row.precision,
        mesh=row.config.mesh.text(),
        micro_batch=row.config.training.micro_batch,
        software=str(row.config.extra.get("software_framework", "")),
        measured_s=row.step_time_s,
        estimate_s=row.step_time_s * float(np.exp(held.log_error[at])),
        error=float(np.expm1(held.log_error[at])),
        why=why(one, held, at),
    )


def why(one: Evaluation, held: HeldOut, at: int) -> str:
    """What the other rows say about a large error, in words."""
    row = one.rows[int(held.index[at])]
    smooth, stall = float(held.smooth_s[at]), float(held.stall_s[at])
    if stall > 0 and abs(np.log((smooth + stall) / row.step_time_s)) < 0.35 < abs(held.log_error[at]):
        return f"stalled (predicted probability {100 * held.stall_chance[at]:.0f} %)"
    if stall > 0 and abs(np.log(smooth / row.step_time_s)) < 0.35 < abs(held.log_error[at]):
        return f"did not stall (predicted probability {100 * (1 - held.stall_chance[at]):.0f} %)"
    same = [r.step_time_s for r in one.rows if r.configuration == row.configuration and r.id != row.id]
    if same and abs(np.log(row.step_time_s / np.median(same))) > 0.15:
        ratio = row.step_time_s / float(np.median(same))
        less = "less" if ratio > 1 else "more"
        return f"the same configuration took {100 * abs(ratio - 1):.0f} % {less} in its other runs"
    near = [
        i
        for i, index in enumerate(held.index)
        if i != at and (one.rows[int(index)].workload, one.rows[int(index)].source) == (row.workload, row.source)
    ]
    if len(near) >= scores.FEWEST:
        median = float(np.median(held.log_error[near]))
        if abs(median) > 0.5 * abs(held.log_error[at]) and np.sign(median) == np.sign(held.log_error[at]):
            return "all meshes of this workload have errors of the same sign"
        return "other meshes of this workload have smaller errors"
    return "no other run of this workload"


def _points(evaluations: Mapping[str, Evaluation]) -> tuple[Point, ...]:
    points = []
    for kind, one in evaluations.items():
        held = one.by_rule["workload"]
        for index, log_error in zip(held.index, held.log_error, strict=True):
            row = one.rows[int(index)]
            estimate_s = row.step_time_s * float(np.exp(log_error))
            points.append(
                Point(row.id, row.source, row.shape.name, row.chip.name, kind, row.mixture, row.step_time_s, estimate_s)
            )
    return tuple(points)
