"""What limits the step, decided over all ops and KPIs together.

1. Stalls and exposed communication: the share of the step they take (XProf's thresholds: input or idle 10 %,
   collectives 30 %).  The largest of those above its threshold wins: nothing else can be faster than it waits.
2. Where the KPI and the ops disagree about communication, the ops are believed unless they are a sample that the KPI
   explains: a list that holds all collective time the KPI states leaves no room for more.
3. Otherwise compute against memory, by four witnesses: time by roofline label, work done at each roof, the largest
   ops, and how near the whole program is to either roof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp

from diagnosis.analyzer import statement
from diagnosis.analyzer.facts import Facts, OpFacts, total_share
from diagnosis.analyzer.links import wire_bytes
from diagnosis.report import Bottleneck

STALL_THRESHOLD = 0.10
COMMUNICATION_THRESHOLD = 0.30
#: A collective that moves HBM at this share of its peak or more streams large tensors; below it, it waits for wires or
#: for other cores.  A ring at full speed on any TPU's links reads and writes HBM at 5–20 % of its peak.
STREAMING_COLLECTIVE = 0.05
#: Real programs surprise more often than generated ones.
MOST_CONFIDENT = 0.97
#: Largest ops looked at when the whole is unclear: as many as the paper's reports print.
LARGEST = 5


@dataclass(frozen=True)
class Witness:
    """One line of evidence on memory (1) against compute (0), with its weight."""

    name: str
    memory: float
    weight: float


@dataclass(frozen=True)
class Verdict:
    """primary with the scores behind it.  communication: the share believed, and how it was arrived at.

    by: which rule decided, `threshold`, `largest ops` or `witnesses`; empty for unknown.  reconciled: the listed
    collectives account for the communication KPI.  dominated: the largest ops are collectives that do no work.
    bubble: share of the step that pipeline stages wait inside their exchange, counted as idle.
    """

    primary: str
    margin: float
    quality: float
    communication: float
    reconciled: bool
    dominated: bool
    witnesses: tuple[Witness, ...] = ()
    secondary: str | None = None
    by: str = ""
    bubble: float = 0.0

    @property
    def confidence(self) -> float:
        """How often a verdict like this is right, 0–1.

        Measured on generated steps (docs/accuracy-diagnosis.md): a threshold passed by a tenth of itself holds in 97 of
        100, witnesses that agree within a tenth in 76, and twice that surely.  Thin data pulls towards one half.  Where
        the largest ops alone decide, generated steps say nothing, and what is said is no more than a leaning.
        """
        match self.by:
            case "threshold":
                # Input, host and idle time are KPIs; collectives are added up from ops.
                stated = self.primary != "communication"
                right = 1.0 - 0.5 * exp(-self.margin / 0.14)
                quality = 0.5 + 0.5 * self.quality if stated else self.quality
            case "witnesses":
                right, quality = 1.0 - 0.4 * exp(-self.margin / 0.12), self.quality
            case _:
                return round(self.quality * (0.55 + 0.45 * self.margin), 2)
        return round(min(MOST_CONFIDENT, 0.5 + (right - 0.5) * quality), 2)


def _useful(ops: Sequence[OpFacts]) -> float:
    """Share of the ops' time at work on a roof: time times efficiency, over time."""
    total = total_share(ops)
    return sum(op.share * (op.efficiency or op.op.roofline_efficiency or 0.0) for op in ops) / total if total else 0.0


def _limits(op: OpFacts) -> tuple[float, float]:
    """(compute, memory) weight of one op's label."""
    if op.collective:
        # XProf's roofline knows no wires, so it calls every collective memory-bound; only one that streams is.
        reached = op.op.memory_bandwidth_utilization or op.op.roofline_efficiency or 0.0
        return (0.0, 1.0) if reached >= STREAMING_COLLECTIVE and "hbm" in (op.op.bound_by or "").lower() else (0.0, 0.0)
    # What a category usually is limited by counts half of what was measured.
    weight = 1.0 if op.limit_source == "roofline" else 0.5
    if op.limit == "compute":
        return weight, 0.0
    if op.limit == "hbm":
        return 0.0, weight
    return (0.0, 0.5) if op.limit == "on-chip" else (0.0, 0.0)


def _ratio(memory: float, compute: float) -> float | None:
    return memory / (memory + compute) if memory + compute > 0 else None


def memory_witnesses(facts: Facts) -> tuple[Witness, ...]:
    """Compute (0) against memory (1), each witness only where it was measured."""
    found = []
    labels = [(op, *_limits(op)) for op in facts.ops]
    memory = sum(op.share * m for op, _, m in labels)
    compute = sum(op.share * c for op, c, _ in labels)
    if (ratio := _ratio(memory, compute)) is not None:
        found.append(Witness("time by roofline label", ratio, 0.45))
    memory = sum(op.share * m * (op.efficiency or 0.0) for op, _, m in labels)
    compute = sum(op.share * c * (op.efficiency or 0.0) for op, c, _ in labels)
    if facts.has_roofline and (ratio := _ratio(memory, compute)) is not None:
        found.append(Witness("work at each roof", ratio, 0.20))
    largest = labels[:LARGEST]
    memory = sum(op.share * m for op, _, m in largest)
    compute = sum(op.share * c for op, c, _ in largest)
    if (ratio := _ratio(memory, compute)) is not None:
        found.append(Witness("the largest ops", ratio, 0.20))
    hbm, flops = facts.kpis.get("hbm_utilization"), facts.kpis.get("flops_utilization")
    if hbm is not None and flops is not None and (ratio := _ratio(hbm, flops)) is not None:
        found.append(Witness("nearest roof of the whole program", ratio, 0.15))
    # Where all ops are listed, the time itself says what limits the step; of a sample, the other witnesses say as much.
    by_time = 0.45 + 0.35 * min(1.0, max(0.0, (facts.coverage - 0.8) / 0.2))
    rest = (1.0 - by_time) / 0.55
    return tuple(replace(one, weight=by_time if one.weight == 0.45 else one.weight * rest) for one in found)


def communication_share(facts: Facts) -> tuple[float, bool]:
    """(exposed communication as a share of the step, whether the ops explain the KPI)."""
    bars = sum(value for bar, value in facts.shares.items() if bar.startswith("ici") or bar == "dcn")
    if facts.kpis.get("communication_exposed") is not None and facts.kpis.get("communication_overlapped") is not None:
        return min(bars, facts.kpis["communication_exposed"] or 0.0) if bars else 0.0, True
    stated = facts.profile.kpis.get("communication")
    if stated is None:
        return bars, not facts.thin
    # XProf's KPI counts only what its op categories call a collective; fusions and -done ops escape it.
    reconciled = not facts.thin or total_share(facts.collectives) >= 0.7 * stated
    return max(bars, stated), reconciled


def bubble_wait(facts: Facts) -> float:
    """Share of the step that stages of a pipeline wait inside their exchange: its time beyond what its bytes need, at
    most the bubble of the schedule.  The profiler counts it as communication; nothing is communicated then.
    """
    stages = facts.axis_size("pipeline")
    if facts.config is None or stages < 2:
        return 0.0
    training = facts.config.training
    bubble = (stages - 1) / (max(1, training.virtual_stages) * max(1, training.grad_accum) + stages - 1)
    waited = 0.0
    for op in facts.collectives:
        found = op.collective
        if found is None or found.tensor != "activations between stages" or op.op.self_time_s <= 0:
            continue
        if found.payload_bytes and found.participants and found.possible_bytes_per_s:
            moved = wire_bytes(found.kind, found.payload_bytes, found.participants) * op.op.occurrences
            waited += op.share * max(0.0, 1.0 - moved / found.possible_bytes_per_s / op.op.self_time_s)
    return min(bubble, waited)


def decide(facts: Facts) -> Verdict:
    """The primary bottleneck with its margin (0–1) and the quality of the data (0–1)."""
    shares = facts.shares
    communication, reconciled = communication_share(facts)
    quality = _quality(facts)
    largest = facts.ops[:LARGEST]
    talking = total_share(op for op in largest if op.collective)
    dominated = (
        talking > 0
        and talking >= 0.6 * total_share(largest)
        and _useful([op for op in largest if op.collective]) < STREAMING_COLLECTIVE
        and _useful(largest) < 0.2
    )
    candidates: dict[str, tuple[float, float]] = {}
    bubble = bubble_wait(facts)
    communication = max(0.0, communication - bubble)
    for name in ("input", "host", "idle"):
        share = shares.get(name, 0.0) + (bubble if name == "idle" else 0.0)
        if share >= STALL_THRESHOLD:
            candidates[name] = (share, STALL_THRESHOLD)
    if communication >= COMMUNICATION_THRESHOLD:
        candidates["communication"] = (communication, COMMUNICATION_THRESHOLD)
    witnesses = memory_witnesses(facts)
    weight = sum(witness.weight for witness in witnesses)
    memory = sum(witness.memory * witness.weight for witness in witnesses) / weight if weight else None
    work = None if memory is None else ("memory" if memory > 0.5 else "compute")
    if candidates:
        primary = max(candidates, key=lambda name: candidates[name][0])
        share, threshold = candidates[primary]
        margin = min(1.0, 0.4 + (share - threshold) / max(threshold, 0.3))
        rest = sorted((value, name) for name, (value, _) in candidates.items() if name != primary)
        secondary = rest[-1][1] if rest else work
        return Verdict(
            primary, margin, quality, communication, reconciled, dominated, witnesses, secondary, "threshold", bubble
        )
    if dominated and _communication_is_open(facts, communication, reconciled):
        share = talking / total_share(largest)
        margin = min(1.0, share) * (0.6 if facts.thin else 0.15)
        return Verdict(
            "communication", margin, quality, communication, reconciled, True, witnesses, work, "largest ops"
        )
    if memory is None or work is None:
        return Verdict("unknown", 0.0, min(quality, 0.3), communication, reconciled, dominated, witnesses)
    margin = abs(memory - 0.5) * 2.0
    # Near the threshold of communication the verdict is as unsure as the threshold.
    if communication > 0.6 * COMMUNICATION_THRESHOLD:
        margin *= max(0.0, COMMUNICATION_THRESHOLD - communication) / (0.4 * COMMUNICATION_THRESHOLD)
    labelled = sum(op.share for op in facts.ops if sum(_limits(op)) > 0)
    if not facts.thin and labelled < 0.02 * facts.coverage:
        return Verdict("unknown", 0.0, 0.4, communication, reconciled, dominated, witnesses, work)
    secondary = "communication" if communication >= 0.1 else ("memory" if work == "compute" else "compute")
    return Verdict(work, margin, quality, communication, reconciled, dominated, witnesses, secondary, "witnesses")


def _communication_is_open(facts: Facts, communication: float, reconciled: bool) -> bool:
    """Whether communication may be more than the shares show.

    In a sample of the ops: the KPI is not explained by them, or there is none, or what it states is noticeable.  In a
    complete list: it is noticeable, and matrix units and HBM stand idle for half of the time or more, so that the many
    small ops that make up the rest do not show a program near one of its roofs.
    """
    noticeable = communication >= 0.03
    if facts.thin:
        return noticeable or not reconciled or facts.profile.kpis.get("communication") is None
    busy, streaming = facts.kpis.get("flops_utilization"), facts.kpis.get("hbm_utilization")
    if busy is not None:
        return noticeable and busy < 0.5 and (streaming is None or streaming < 0.5)
    # Without a roofline "does no work" is only that nothing was measured: the time itself has to say it.
    return noticeable if facts.has_roofline else communication >= 0.15


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


def judge(facts: Facts) -> Bottleneck:
    """The contract's bottleneck: verdict, statement, evidence, contradictions resolved."""
    verdict = decide(facts)
    text, rows = statement.state(facts, verdict)
    resolved, more = statement.contradictions(facts, verdict)
    return Bottleneck(
        primary=verdict.primary,
        confidence=verdict.confidence,
        statement=text,
        evidence=(*rows, *more),
        contradictions=resolved,
        secondary=verdict.secondary,
    )
