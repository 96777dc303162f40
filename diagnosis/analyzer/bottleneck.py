"""What limits the step: what its exclusive breakdown says.

1. Where the device loses 30 % of the step or more, to input, host (host transfers included), idle time and exposed
   communication together, the largest of these.  Idle time of which nothing shows that it comes back is no part of the
   step; where it is nearly all of a recording, nothing is concluded from the rest.
2. Otherwise the larger of compute and HBM time: a device that works for most of the step is limited by its work, and
   smaller losses are findings.
3. Where the profile lists only some of the ops, most of the breakdown is open.  What is listed is then read as a
   sample: each op counts for what limits it, and the answer is a leaning that says how much of the step it is based on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from diagnosis.analyzer import statement
from diagnosis.analyzer.breakdown import group_of
from diagnosis.analyzer.facts import Facts, OpFacts, total_share
from diagnosis.analyzer.links import wire_bytes
from diagnosis.analyzer.verdict import LEAST_LEFT, Verdict
from diagnosis.report import Bottleneck, Finding
from experiments.sentences import say

#: Share of the step from which losses are what limits it.
LOST = 0.30
LOSSES = ("input", "host", "idle", "communication")
#: A smaller share is no second bottleneck.
NOTABLE = 0.05
#: A collective of a sample that moves HBM at this share of its peak or more streams large tensors; below it, it waits
#: for links or for other cores.  A ring at full speed on any TPU's links reads and writes HBM at 5–20 % of its peak.
STREAMING_COLLECTIVE = 0.05
#: Compute and HBM time below this part of the time without a known limit say nothing of the step.
UNKNOWN_FROM = 0.5
#: A sample of whose time less than this has a known limit, beside the time without one, leans nowhere.
SAMPLE_KNOWN = 0.1
#: A finding's bound beyond the bottleneck's share by this factor is no rounding; the verdict is then a matter of order.
CLEARLY_LARGER = 1.01
#: From this factor on, the confidence is at most one half.
FAR_LARGER, MOST_CONFIDENT_BELOW_ANOTHER = 2.0, 0.5


def grouped(facts: Facts) -> dict[str, float]:
    """The breakdown's shares by what they say limits the step."""
    by_group: dict[str, float] = {}
    for bar, value in facts.shares.items():
        by_group[group_of(bar)] = by_group.get(group_of(bar), 0.0) + value
    return by_group


def bubble_wait(facts: Facts) -> float:
    """Share of the step that stages of a pipeline wait inside their exchange: its time beyond what its bytes need, at
    most the bubble of the schedule.  The profiler counts it as communication; nothing is communicated then.
    """
    bubble = facts.bubble
    if bubble is None:
        return 0.0
    waited = 0.0
    for op in facts.collectives:
        collective = op.collective
        if collective is None or collective.tensor != "activations between stages" or op.op.self_time_s <= 0:
            continue
        if collective.payload_bytes and collective.participants and collective.possible_bytes_per_s:
            moved = wire_bytes(collective.kind, collective.payload_bytes, collective.participants) * op.op.occurrences
            waited += op.exposed_share * max(0.0, 1.0 - moved / collective.possible_bytes_per_s / op.op.self_time_s)
    return min(bubble, waited)


def decide(facts: Facts) -> Verdict:
    """The primary bottleneck with its margin (0–1) and the quality of the data (0–1)."""
    groups, quality = grouped(facts), _quality(facts)
    bubble = min(bubble_wait(facts), groups.get("communication", 0.0))
    if bubble:
        groups["communication"] -= bubble
        groups["idle"] = groups.get("idle", 0.0) + bubble
    losses = {name: groups[name] for name in LOSSES if groups.get(name, 0.0) > 0}
    lost, left = sum(losses.values()), 1.0 - facts.once
    threshold = LOST * left
    work = max(("compute", "memory"), key=lambda name: groups.get(name, 0.0))
    if left < LEAST_LEFT:
        return Verdict("unknown", 0.0, min(quality, 0.4), groups)
    if lost >= threshold:
        primary, *others = sorted(losses, key=lambda name: -losses[name])
        margin = min(1.0, 0.4 + (lost - threshold) / threshold)
        if others:  # the second is nearly as large: it may be the first
            margin = min(margin, (losses[primary] - losses[others[0]]) / losses[primary] + 0.1)
        second = max((work, *others), key=lambda name: groups.get(name, 0.0))
        return Verdict(
            primary, margin, quality, groups, second if groups.get(second, 0.0) > 0 else None, "threshold", bubble
        )
    compute, memory = groups.get("compute", 0.0), groups.get("memory", 0.0)
    if facts.thin and abs(compute - memory) <= groups.get("other", 0.0):
        return _of_a_sample(facts, groups, quality)
    other = max(0.0, groups.get("other", 0.0) - facts.once)
    if max(compute, memory) <= UNKNOWN_FROM * other:
        return Verdict("unknown", 0.0, min(quality, 0.4), groups, work if max(compute, memory) > 0 else None)
    margin = abs(compute - memory) / (compute + memory)
    # Near the threshold the verdict is as unsure as the threshold; what no label judges may be either.
    if lost > 0.6 * threshold:
        margin *= (threshold - lost) / (0.4 * threshold)
    margin = min(margin, max(0.0, (max(compute, memory) - other) / (compute + memory)))
    rest = sorted((value, name) for name, value in groups.items() if name not in (work, "other") and value >= NOTABLE)
    return Verdict(work, margin, quality, groups, rest[-1][1] if rest else None, "larger", bubble)


def _of_a_sample(facts: Facts, groups: Mapping[str, float], quality: float) -> Verdict:
    """The leaning of a profile that lists only some ops: none of their time is the step's, so each counts in itself."""
    sample: dict[str, float] = {}
    for op in facts.ops:
        for name, weight in _limits(op, facts).items():
            sample[name] = sample.get(name, 0.0) + op.share * weight
    total = sum(sample.values())
    unknown = total_share(op for op in facts.ops if not op.collective and not _limits(op, facts))
    if total <= SAMPLE_KNOWN * unknown:
        return Verdict("unknown", 0.0, min(quality, 0.3), groups)
    ranked = sorted(sample, key=lambda name: -sample[name])
    first, second = ranked[0], ranked[1] if len(ranked) > 1 else None
    margin = (sample[first] - (sample[second] if second else 0.0)) / total
    shares = {name: value / total for name, value in sample.items()}
    return Verdict(first, margin, quality, groups, second, "sample", sample=shares)


def _limits(op: OpFacts, facts: Facts) -> dict[str, float]:
    """What an op of a sample counts for.  XProf's roofline knows no links and calls every collective HBM-bound; one
    that streams through HBM is, any other waits for links.  A limit told by category alone counts half.
    """
    if op.collective:
        reached = op.op.memory_bandwidth_utilization or op.op.roofline_efficiency or 0.0
        streams = STREAMING_COLLECTIVE <= reached and "hbm" in (op.op.bound_by or "").lower()
        return {"memory" if streams else "communication": 1.0} if _stands_for_more(op, facts) or streams else {}
    weight = 1.0 if op.limit_source == "roofline" else 0.5
    return {"compute": {"compute": weight}, "hbm": {"memory": weight}}.get(op.limit, {})


def _stands_for_more(op: OpFacts, facts: Facts) -> bool:
    """Whether communication of a sample may be more than is known: no KPI says how much there is, or most of what is
    listed are collectives, and that is all there is to go by.
    """
    if facts.profile.kpis.get("communication") is None:
        return True
    return total_share(facts.collectives) >= 0.6 * total_share(facts.ops)


def _quality(facts: Facts) -> float:
    """How far the data carries a verdict: a complete roofline 1, a few ops or categories only less."""
    if not facts.ops:
        return 0.5 if facts.shares else 0.0
    quality = 1.0 if facts.has_roofline else 0.5
    if facts.has_roofline:
        judged = total_share(op for op in facts.ops if op.collective or op.limit_source == "roofline")
        quality *= 0.2 + 0.8 * min(1.0, judged / max(total_share(facts.ops), 1e-12))
    if facts.thin:
        quality *= 0.6 + 0.4 * facts.coverage / 0.8
    if facts.step_time_s is None:
        quality *= 0.85
    return quality


def judge(facts: Facts, findings: Sequence[Finding] = ()) -> Bottleneck:
    """The contract's bottleneck: verdict, statement, evidence, contradictions resolved.

    findings: those of the same page, one of which may save more than the bottleneck itself takes.
    """
    if not facts.recording.is_program:
        return Bottleneck("unknown", 0.0, statement.no_program(facts)).numbered()
    verdict = decide(facts)
    largest = _larger(verdict, findings)
    text, confidence = statement.state(facts, verdict), verdict.confidence
    if facts.once >= NOTABLE or facts.profile.recorded.start_up_s > 0:
        text = say("{} {}", text, statement.left_out(facts))
    if largest is not None:
        text = say("{} {}", text, statement.larger(facts, verdict, largest))
        if (largest.saving_share or 0.0) >= FAR_LARGER * verdict.groups.get(verdict.primary, 0.0):
            confidence = min(confidence, MOST_CONFIDENT_BELOW_ANOTHER)
    return Bottleneck(
        primary=verdict.primary,
        confidence=confidence,
        statement=text,
        contradictions=statement.contradictions(facts, verdict),
        secondary=verdict.secondary,
    ).numbered()


def _larger(verdict: Verdict, findings: Sequence[Finding]) -> Finding | None:
    """The finding with the largest bound, if that exceeds the share of what is named; of a sample nothing is known."""
    largest = max(findings, key=lambda finding: finding.saving_share or 0.0, default=None)
    if largest is None or verdict.by not in ("threshold", "larger"):
        return None
    share = verdict.groups.get(verdict.primary, 0.0)
    return largest if (largest.saving_share or 0.0) > CLEARLY_LARGER * share else None
