"""Cores, stages, experts and steps that take longer than others: what the rest waits for."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from diagnosis.analyzer.axes import positions
from diagnosis.analyzer.facts import Facts, OpFacts, keys, total_exposed, total_share
from diagnosis.analyzer.kpis import own_work_s, slow_host, straggler_lag_s
from diagnosis.analyzer.quantity import OPS, count_of, evidence, share_of
from diagnosis.analyzer.rules.base import WORTH_SAYING, Claim, claim, lines, time_of
from experiments.sentences import say

_TRACE, _POD, _OVERVIEW = "intervals of the trace", "pod viewer", "XProf overview"
_OWN_WORK = "busy time − exposed communication, mean over the stage's cores"


def stragglers(facts: Facts) -> Iterator[Claim]:
    """One core that works longer while the others wait for it in collectives."""
    step = facts.step_time_s
    lag = straggler_lag_s(facts.profile.cores)
    if not step or not lag or not WORTH_SAYING <= lag[0] / step <= 1.0:
        return
    behind, core, middle = lag
    late = evidence(f"lag of {core.name}", behind, "s", "measured", "slowest − median own time per step", _POD)
    usual = evidence("median own time per step", middle, "s", "measured", "", _POD)
    part = share_of("lag of the step", behind / step, "lag ÷ step time", source=_POD)
    cores = count_of("cores compared", len(facts.profile.cores), _POD)
    without = evidence("step without this lag", step - behind, "s", "computed", "step time − lag", _POD)
    where = f" on host {core.host}" if core.host else ""
    together = slow_host(facts.profile.cores, core)
    more = ""
    if together is not None:
        row = count_of(f"cores of host {core.host}", together, _POD)
        more = say(" All {} cores of that host lag: the cause is the host, not the core.", row)
    yield claim(
        facts, "stragglers", "Straggling core" if together is None else "Straggling host",
        say(
            "Of {} cores, {}{} enters its collectives {} per step later than the median of {} (its work, and what it "
            "waits for host and input); the others wait for it there, {} of the step. Without it a step would take "
            "{}.{}",
            cores, core.name, where, late, usual, part, without, more),
        "Look at that host first (thermal throttling, another process, a failing link); if the same core is slow in "
        "every run, replace the host; if it varies, look for uneven work (sequence packing, experts, pipeline "
        "stages).",
        behind / step,
    )  # fmt: skip


def _excess(facts: Facts, ops: tuple[OpFacts, ...]) -> tuple[float, float] | None:
    """(share of the step, mean time as a share) by which the fullest core exceeds the mean, op by op.

    Every op is followed by an exchange, so each waits for its own fullest core: the sum of the maxima counts.
    """
    cores = facts.profile.device.measured_cores
    timed = [op for op in ops if op.op.core_max_s is not None and op.op.core_count and op.op.self_time_s > 0]
    if not timed or cores < 2:
        return None
    mean = total_share(timed)
    most = sum(op.share * (op.op.core_max_s or 0.0) * (op.op.core_count or 0) / op.op.self_time_s for op in timed)
    return max(0.0, most - mean), mean


def expert_imbalance(facts: Facts) -> Iterator[Claim]:
    """Cores whose experts got more tokens than others': the rest wait for them in the exchange that follows."""
    experts = facts.where(lambda op: op.module == "experts" and not op.collective)
    excess_and_mean = _excess(facts, experts)
    # In a single step, one slow first call looks the same.
    if len(facts.profile.steps) < 2 or excess_and_mean is None or excess_and_mean[1] <= 0:
        return
    excess, mean = excess_and_mean
    other = facts.where(lambda op: op.module != "experts" and not op.collective and op.limit == "compute")
    usual = _excess(facts, other)
    # A core that is slow in everything is a straggler, not a full expert.
    general = usual[0] / usual[1] if usual and usual[1] > 0 else 0.0
    lost = excess - general * mean
    # What the others wait for shows in the exchange that follows.  A wait longer than that was not recorded as one.
    waits = facts.where(lambda op: op.collective is not None)
    if lost < WORTH_SAYING or lost > total_share(waits) + facts.shares.get("idle", 0.0) + WORTH_SAYING:
        return
    largest = max(experts, key=lambda op: op.share)
    load = evidence(
        "time on the most loaded core ÷ mean", 1.0 + excess / mean, "speedup", "measured",
        "Σ longest time on a core ÷ Σ mean time over cores, expert ops", _TRACE, keys(experts),
    )  # fmt: skip
    cost = time_of("expert ops", experts)
    formula = "Σ (longest − mean) ÷ step time, less the spread of other matmuls"
    wait = share_of("waiting for the most loaded core", lost, formula, experts)
    text = say(
        "Expert matmuls take {} {} on average and {} as long on the most loaded core{}; the others wait "
        "for it in the all-to-all that follows, {} {}.", cost, facts.base, load, lines(experts), wait, facts.base,
    )  # fmt: skip
    if largest.op.slowest_core:
        text += f" {largest.op.name} takes longest on {largest.op.slowest_core}."
    yield claim(
        facts, "expert_imbalance", "Expert load imbalance", text,
        "Raise the weight of the load-balancing loss or use a bias per expert, lower the capacity factor so that "
        "full experts drop or reroute tokens, and place experts that are often used together on different chips.",
        lost, ops=experts, axis=facts.axis_of("expert"),
    )  # fmt: skip


def pipeline_bubble(facts: Facts) -> Iterator[Claim]:
    """Stages that wait for the first and last micro-batches: (p − 1) ÷ (v·m + p − 1) of the step (book 5.5)."""
    stages, expected = facts.axis_size("pipeline"), facts.bubble
    if expected is None:
        return
    idle = facts.shares.get("idle", 0.0)
    waits = facts.where(
        lambda op: (
            op.collective is not None
            and (op.collective.tensor == "activations between stages" or op.collective.kind == "send/recv")
        )
    )
    seen = min(1.0, idle + total_exposed(waits))
    if seen < WORTH_SAYING:  # a bubble that the schedule promises and nobody measured is none
        return
    formula, source = "(p − 1) ÷ (v·m + p − 1)", "configuration; scaling book 5.5"
    bubble = share_of("bubble of the schedule", expected, formula, source=source)
    measured = evidence(
        "idle and waiting between stages", seen, "share", "measured", "idle + exchange between stages", OPS, keys(waits)
    )
    text = say(
        "{} stages with {} micro-batches imply a pipeline bubble of {}; {} {} was idle or ", count_of("stages", stages),
        count_of("micro-batches", max(1, facts.configured.training.grad_accum)), bubble, measured, facts.base,
    )  # fmt: skip
    text += "waiting between stages in the profile."
    if seen > 1.5 * expected and seen - expected > 0.05:
        text += " That exceeds the schedule's bubble: stages are uneven, or the transfers between them are slow."
    work = _stage_work(facts)
    if work is not None:
        heaviest, mean, number = work
        most = evidence("busy time of the heaviest stage per step", heaviest, "s", "measured", _OWN_WORK, _TRACE)
        usual = evidence("mean busy time of a stage per step", mean, "s", "measured", _OWN_WORK, _TRACE)
        which = count_of("the heaviest stage", number, _TRACE)
        text += say(" Stage {} is the heaviest: {} per step against a mean of {}", which, most, usual)
        text += "; the others wait for it." if heaviest > 1.05 * mean else ", so the stages are even."
    yield claim(
        facts, "pipeline_bubble", "Pipeline bubble", text,
        "Use more micro-batches per step or interleaved (virtual) stages, fewer stages with a larger batch or "
        "tensor axis, and balance the stages (embedding and output head cost as much as a few layers).",
        min(seen, max(expected, idle)), ops=waits, axis=facts.axis_of("pipeline"),
    )  # fmt: skip


def _stage_work(facts: Facts) -> tuple[float, float, int] | None:
    """(own work of the heaviest stage, mean over stages, its number from 1), s per step; None where cores are unknown.

    Cores are assumed to be numbered in the order of the mesh's devices, hosts in the order of the files.
    """
    cores = facts.profile.cores
    if not cores:
        return None
    stage_of = positions(facts.configured.mesh, "pipeline", len(cores))
    own = [own_work_s(core) for core in cores]
    if stage_of is None or any(value is None for value in own):
        return None
    work: dict[int, list[float]] = {}
    for stage, value in zip(stage_of.tolist(), own, strict=True):
        work.setdefault(stage, []).append(value or 0.0)
    means = {stage: fmean(values) for stage, values in work.items()}
    heaviest = max(means, key=lambda stage: means[stage])
    return means[heaviest], fmean(means.values()), heaviest + 1


def uneven_steps(facts: Facts) -> Iterator[Claim]:
    """Steps of very different length: what the slow ones cost."""
    profile = facts.profile
    spread, step, least = facts.kpis.get("step_time_spread"), profile.step_time_s, profile.step_time_min_s
    if spread is None or not step or not least or not 0.05 <= spread <= 1.0 or least >= step:
        return
    part = evidence("spread of the step time", spread, "share", "measured", "standard deviation ÷ mean", _OVERVIEW)
    fastest = evidence("fastest step", least, "s", "measured", source=_OVERVIEW)
    mean = evidence("mean step", step, "s", "measured", source=_OVERVIEW)
    yield claim(
        facts, "uneven_steps", "Uneven step times",
        say("Step times have a standard deviation of {} of their mean of {}; the fastest step took {}.",
            part, mean, fastest),
        "Compare the slowest step with the fastest on the timeline: checkpointing, evaluation, recompilation, garbage "
        "collection of the input pipeline, or other jobs on the network.",
        (step - least) / step,
    )  # fmt: skip
