"""What stands over the single costs: communication as a whole, little to gain, too little recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diagnosis.analyzer.breakdown import axis_label
from diagnosis.analyzer.facts import Facts, keys, total_exposed, total_share
from diagnosis.analyzer.quantity import evidence
from diagnosis.analyzer.rules.base import EXPOSED, SMALLER_TENSOR_AXIS, Claim, claim, exposed_of, lines, time_of
from diagnosis.analyzer.statement import bar_words
from diagnosis.report import Finding, SourcedValue
from experiments.sentences import join, say


def unplaced_collectives(facts: Facts) -> Iterator[Claim]:
    """Collectives that lead the profile without a known axis: no HLO text, or no configuration."""
    ops = facts.where(lambda op: op.collective is not None and not op.axes and not op.over_dcn)
    share = total_exposed(ops)
    listed = total_share(facts.ops)
    if share <= 0 or (share < 0.03 and not (facts.thin and share >= 0.3 * listed)):
        return
    cost = exposed_of("collectives without a known axis", ops)
    count = evidence("such ops", float(len(ops)), "count", "measured", source="op profile")
    kinds = list(dict.fromkeys(op.collective.kind for op in ops if op.collective))
    text = say("{} collectives ({}) take {} {}", count, ", ".join(kinds[:4]), cost, facts.base)
    advice: tuple[str, ...] = ()
    roles = _wide_axes(facts)
    if facts.thin:
        part = evidence(
            "of the time of the listed ops",
            share / listed,
            "share",
            "computed",
            "Σ self time ÷ Σ self time",
            "op profile",
        )
        text += say(", {} of the time of the listed ops", part)
    text += ". The profile does not report their mesh axis"
    action = (
        "Record a full XSpace: its HLO text lists the replica groups of each collective, and so the costliest axis."
        if facts.of_xla
        else "Record one trace per rank with the ranks of each process group, so that collectives have an axis."
    )
    if facts.config is None:
        action = "Add a configuration with the run's mesh, so that each collective can be attributed to an axis."
    if roles:
        name, size, role = roles[0]
        chips = evidence(f"size of axis {name}", float(size), "count", "measured", source="configuration")
        text += say("; of the axes in use, {} ({} chips) communicates in every layer", name, chips)
        if role == "model":
            advice = (SMALLER_TENSOR_AXIS,)
            action = (
                f"Reduce the {name} axis in favour of a batch axis: tensor-parallel collectives run in every layer, "
                "forward and backward; gradient reductions run once per step. " + action
            )
    yield claim(
        facts, "collectives_of_unknown_axis", "Collectives on an unknown mesh axis", text + ".", action, share,
        ops=ops, part=EXPOSED, advice=advice,
    )  # fmt: skip


def _wide_axes(facts: Facts) -> list[tuple[str, int, str]]:
    """Axes larger than one whose collectives run in every layer: tensor first."""
    if facts.config is None:
        return []
    order = {"model": 0, "expert": 1, "seq": 2}
    axes = [(axis, size, facts.role_of(axis)) for axis, size in facts.config.mesh.ici if size > 1]
    return sorted((item for item in axes if item[2] in order), key=lambda item: order[item[2]])


def all_communication(facts: Facts) -> Iterator[Claim]:
    """All exposed collectives together: what hiding or removing every one of them could give."""
    ops = facts.collectives
    bars = {bar: value for bar, value in facts.shares.items() if bar.startswith("ici") or bar == "dcn"}
    share = sum(bars.values())
    if facts.thin or share < 0.05 or max(bars.values()) > 0.95 * share:
        return  # one axis alone: its own rule says it
    total = evidence(
        "exposed collectives",
        share,
        "share",
        "computed",
        "Σ exposed time of collectives ÷ step time",
        "op profile",
        keys(ops),
    )
    rows: list[SourcedValue] = []
    parts: list[str] = []
    for bar, part in sorted(bars.items(), key=lambda item: -item[1])[:4]:
        row = evidence(
            f"collectives on {bar_words(bar)}",
            part,
            "share",
            "computed",
            "Σ exposed time ÷ step time",
            "op profile",
            keys(op for op in ops if axis_label(op) == bar),
        )
        rows.append(row)
        parts.append(say("{} on {}", row, bar_words(bar)))
    yield claim(
        facts, "exposed_communication", "Exposed communication on several axes",
        say("Collectives expose {} {}: {}.", total, facts.base, join(", ", parts)),
        "Start with the costliest axis: reduce it, map it to faster links, or overlap it; a different sharding "
        "saves at most all of this time.",
        share, ops=ops, part=EXPOSED, stalls=tuple(bars), parts=rows, whole=total,
    )  # fmt: skip


def little_to_gain(facts: Facts, findings: Sequence[Finding]) -> Iterator[Claim]:
    """The truth when it is so: matmuls near the peak take the step, and nothing else costs much."""
    if facts.thin or not facts.has_roofline:
        return
    matmuls = [op for op in facts.ops if op.limit == "compute" and op.efficiency is not None and not op.collective]
    share = total_share(matmuls)
    if share < 0.70 or any((one.saving_share or 0.0) >= 0.10 for one in findings):
        return
    mean = sum(op.share * (op.efficiency or 0.0) for op in matmuls) / share
    if mean < 0.65:
        return
    cost = time_of("compute-bound ops", matmuls)
    reached = evidence("their mean efficiency", mean, "share", "computed", "Σ time × efficiency ÷ Σ time", "roofline")
    outside = evidence(
        "all but compute-bound ops", max(0.0, 1.0 - share), "share", "computed",
        "1 − share of compute-bound ops", "op profile",
    )  # fmt: skip
    yield claim(
        facts, "little_to_gain", "Little headroom left in sharding",
        say("Compute-bound ops take {} {} and run at {} of peak FLOP/s{}.", cost, facts.base, reached, lines(matmuls)),
        "Keep the current configuration. The remaining levers are in the matmuls: lower precision, better kernels, "
        "or fewer FLOPs (less recompute, a smaller model).",
        None, ops=matmuls,
        impact=say("A better mesh saves at most the {} that is not compute-bound.", outside),
    )  # fmt: skip


def record_more(facts: Facts) -> Iterator[Claim]:
    """What this profile cannot tell, and what to record next time."""
    wants = facts.recording.missing
    if not wants:
        return
    listed = evidence(
        "listed ops' share of op time",
        round(facts.coverage, 4),  # idle time is known no better
        "share",
        "computed",
        "Σ time share",
        "op profile",
    )
    count = evidence("ops in the profile", float(len(facts.ops)), "count", "measured", source="op profile")
    lacking = [want.what for want in wants]
    text = say(
        "The profile contains {} ops that account for {} of op time. Missing: {}.", count, listed, "; ".join(lacking)
    )
    yield claim(
        facts, "record_more", "Missing profile data", text, " ".join(want.action for want in wants),
        None, impact="Raises the confidence of the diagnosis; saves no time by itself.",
    )  # fmt: skip
