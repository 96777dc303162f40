"""Pipeline bubble."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from diagnosis.analyzer.axes import positions
from diagnosis.analyzer.facts import Facts, keys, total_exposed
from diagnosis.analyzer.kpis import own_work_s
from diagnosis.analyzer.quantity import evidence
from diagnosis.analyzer.rules.base import EXPOSED, OPS, WORTH_SAYING, Claim, claim
from experiments.sentences import say

_OWN_WORK = "busy time − exposed communication, mean over the stage's cores"


def pipeline_bubble(facts: Facts) -> Iterator[Claim]:
    """Stages that wait for the first and last micro-batches: (p − 1) ÷ (v·m + p − 1) of the step (book 5.5)."""
    if facts.config is None:
        return
    stages = facts.config.mesh.size("pipeline")
    if stages < 2:
        return
    training = facts.config.training
    micro, virtual = max(1, training.grad_accum), max(1, training.virtual_stages)
    expected = (stages - 1) / (virtual * micro + stages - 1)
    idle = facts.shares.get("idle", 0.0)
    waits = facts.where(
        lambda op: (
            op.collective is not None
            and (op.collective.tensor == "activations between stages" or op.collective.kind == "send/recv")
        )
    )
    seen = idle + total_exposed(waits)
    if seen < WORTH_SAYING:  # a bubble that the schedule promises and nobody measured is none
        return
    bubble = evidence(
        "bubble of the schedule",
        expected,
        "share",
        "computed",
        "(p − 1) ÷ (v·m + p − 1)",
        "configuration; scaling book 5.5",
    )
    measured = evidence(
        "idle and waiting between stages", seen, "share", "measured", "idle + exchange between stages", OPS, keys(waits)
    )
    p = evidence("stages", float(stages), "count", "measured", source="configuration")
    m = evidence("micro-batches", float(micro), "count", "measured", source="configuration")
    text = say(
        "{} stages with {} micro-batches imply a pipeline bubble of {}; {} {} was idle or ",
        p,
        m,
        bubble,
        measured,
        facts.base,
    )
    text += "waiting between stages in the profile."
    if seen > 1.5 * expected and seen - expected > 0.05:
        text += " That exceeds the schedule's bubble: stages are uneven, or the transfers between them are slow."
    work = _stage_work(facts)
    if work is not None:
        heaviest, mean, number = work
        most = evidence(
            "busy time of the heaviest stage per step", heaviest, "s", "measured", _OWN_WORK, "intervals of the trace"
        )
        usual = evidence(
            "mean busy time of a stage per step", mean, "s", "measured", _OWN_WORK, "intervals of the trace"
        )
        which = evidence("the heaviest stage", float(number), "count", "measured", source="intervals of the trace")
        text += say(" Stage {} is the heaviest: {} per step against a mean of {}", which, most, usual)
        text += "; the others wait for it." if heaviest > 1.05 * mean else ", so the stages are even."
    yield claim(
        facts, "pipeline_bubble", "Pipeline bubble", text,
        "Use more micro-batches per step or interleaved (virtual) stages, fewer stages with a larger batch or "
        "tensor axis, and balance the stages (embedding and output head cost as much as a few layers).",
        min(seen, max(expected, idle)), ops=waits, part=EXPOSED, stalls=("idle",), axis=_axis(facts),
    )  # fmt: skip


def _stage_work(facts: Facts) -> tuple[float, float, int] | None:
    """(own work of the heaviest stage, mean over stages, its number from 1), s per step; None where cores are unknown.

    Cores are assumed to be numbered in the order of the mesh's devices, hosts in the order of the files.
    """
    cores = facts.profile.cores
    if facts.config is None or not cores:
        return None
    stage_of = positions(facts.config.mesh, "pipeline", len(cores))
    own = [own_work_s(core) for core in cores]
    if stage_of is None or any(value is None for value in own):
        return None
    work: dict[int, list[float]] = {}
    for stage, value in zip(stage_of.tolist(), own, strict=True):
        work.setdefault(stage, []).append(value or 0.0)
    means = {stage: fmean(values) for stage, values in work.items()}
    heaviest = max(means, key=lambda stage: means[stage])
    return means[heaviest], fmean(means.values()), heaviest + 1


def _axis(facts: Facts) -> str | None:
    if facts.config is None:
        return None
    axes = [
        axis
        for axis, size in (*facts.config.mesh.ici, *facts.config.mesh.dcn)
        if facts.role_of(axis) == "pipeline" and size > 1
    ]
    return axes[0] if axes else None
