"""The verdict in words, with the number behind each, and the KPIs that pointed elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnosis.analyzer.breakdown import costliest_axis
from diagnosis.analyzer.facts import Facts, OpFacts, keys, total_share
from diagnosis.analyzer.quantity import evidence
from diagnosis.report import Evidence

if TYPE_CHECKING:
    from diagnosis.analyzer.bottleneck import Verdict

_SOURCE_KPI = "XProf overview"
_SOURCE_OPS = "op profile"


def bar_words(bar: str) -> str:
    """``ici:data+seq`` as ``the data and seq axes``."""
    if bar == "dcn":
        return "the network between slices"
    axes = bar.partition(":")[2].split("+")
    if axes == [""]:
        return "the interconnect"
    return f"the {axes[0]} axis" if len(axes) == 1 else f"the {', '.join(axes[:-1])} and {axes[-1]} axes"


def state(facts: Facts, verdict: Verdict) -> tuple[str, tuple[Evidence, ...]]:
    """(one or two sentences, the numbers in them)."""
    match verdict.primary:
        case "communication":
            return _communication(facts, verdict)
        case "compute" | "memory":
            return _roofline(facts, verdict)
        case "input" | "host" | "idle":
            if verdict.primary == "idle" and verdict.bubble > 0:
                return _bubble(facts, verdict)
            return _stall(facts, verdict.primary)
        case _:
            listed = evidence("ops in the profile", float(len(facts.ops)), "count", "measured", source=_SOURCE_OPS)
            why = (
                "no op carries a roofline label or a category that tells what limits it"
                if facts.ops
                else "it holds no ops"
            )
            return f"The bottleneck cannot be told from this profile: {why} ({listed} ops).", (listed,)


def _communication(facts: Facts, verdict: Verdict) -> tuple[str, tuple[Evidence, ...]]:
    talking = facts.collectives
    costly = costliest_axis(facts.ops)
    where = f", mostly on {bar_words(costly[0])}" if costly and len({op.op.key for op in talking}) else ""
    over = "over the network between slices" if costly and costly[0] == "dcn" else "between chips"
    if verdict.communication >= 0.3:
        share = evidence(
            "communication over all ops",
            verdict.communication,
            "share",
            "computed",
            "Σ exposed time of collectives ÷ step time",
            _SOURCE_OPS,
            keys(talking),
        )
        rows = [share]
        text = f"Communication {over} takes {share} {facts.base}{where}."
        # Exposed time, as the whole is, and no more than it: what a pipeline waits there is not in the whole either.
        exposed = min(facts.shares.get(costly[0], 0.0), verdict.communication) if costly else 0.0
        if costly and exposed >= 0.995 * verdict.communication > 0:
            text = f"Communication {over} takes {share} {facts.base}, as good as all of it on {bar_words(costly[0])}."
        elif costly and exposed > 0:
            part = evidence(
                f"collectives on {bar_words(costly[0])}",
                exposed,
                "share",
                "computed",
                "Σ exposed time ÷ step time",
                _SOURCE_OPS,
                keys(op for op in talking if op.axes or op.over_dcn),
            )
            rows.append(part)
            text = f"Communication {over} takes {share} {facts.base}{where} ({part})."
        return text, tuple(rows)
    largest = facts.ops[:5]
    of_largest = [op for op in largest if op.collective]
    costly = costliest_axis(of_largest)
    where = f", mostly on {bar_words(costly[0])}" if costly else ""
    over = "over the network between slices" if costly and costly[0] == "dcn" else "between chips"
    count = evidence(
        "collectives among the largest ops",
        float(len(of_largest)),
        "count",
        "measured",
        source=_SOURCE_OPS,
        ops=keys(of_largest),
    )
    looked = evidence(
        "largest ops looked at", float(len(largest)), "count", "measured", source=_SOURCE_OPS, ops=keys(largest)
    )
    part = evidence(
        "their share of the time of the largest ops",
        total_share(of_largest) / total_share(largest),
        "share",
        "computed",
        "Σ self time of collectives ÷ Σ self time of the largest ops",
        _SOURCE_OPS,
        keys(of_largest),
    )
    limits = f"Communication {over} limits the step{where}"
    if len(of_largest) == len(largest):
        text = f"{limits}: the {looked} largest ops are all collectives that do next to no work while they run."
        return text, (looked,)
    text = (
        f"{limits}: {count} of the {looked} largest ops are collectives ({part} of their time), and they do next to no "
        "work while they run."
    )
    return text, (count, looked, part)


def _labelled(facts: Facts, limit: str) -> tuple[OpFacts, ...]:
    return facts.where(lambda op: not op.collective and op.limit == limit)


def _roofline(facts: Facts, verdict: Verdict) -> tuple[str, tuple[Evidence, ...]]:
    memory = verdict.primary == "memory"
    limit = "hbm" if memory else "compute"
    ops = _labelled(facts, limit)
    inferred = all(op.limit_source == "category" for op in ops)
    origin = "by their category (no roofline was recorded)" if inferred else "by the roofline"
    rows = []
    label = "HBM bandwidth" if memory else "compute"
    share = evidence(
        f"{label}-bound ops",
        total_share(ops),
        "share",
        "computed",
        f"Σ self time of {label}-bound ops without collectives ÷ step time",
        _SOURCE_OPS,
        keys(ops),
    )
    rows.append(share)
    listed = ""
    if facts.thin:
        seen = evidence(
            "listed ops", facts.coverage, "share", "computed", "Σ time share of the listed ops", _SOURCE_OPS
        )
        rows.append(seen)
        listed = f" (the list holds {seen} of all op time)"
    best = max(ops, key=lambda op: op.share * (op.efficiency or 0.0), default=None)
    reached = ""
    if best and best.efficiency:
        roof = evidence(
            f"{best.op.name}: share of the {label} roof",
            best.efficiency,
            "share",
            "measured",
            "",
            "roofline",
            (best.key,),
        )
        rows.append(roof)
        reached = f"; {best.op.name} reaches {roof} of that roof"
    if memory:
        streaming = facts.where(lambda op: bool(op.collective) and (op.op.roofline_efficiency or 0.0) >= 0.05)
        extra = ""
        if streaming and total_share(streaming) >= 0.01:
            moved = evidence(
                "collectives that stream through HBM",
                total_share(streaming),
                "share",
                "computed",
                "Σ self time of collectives at 5 % of HBM peak or more ÷ step time",
                _SOURCE_OPS,
                keys(streaming),
            )
            rows.append(moved)
            extra = f", and the collectives themselves stream large tensors through HBM (another {moved})"
        return (
            f"HBM bandwidth limits the step: ops bound by it take {share} {facts.base} "
            f"{origin}{listed}{reached}{extra}.",
            tuple(rows),
        )
    return f"Compute limits the step: ops bound by it take {share} {facts.base} {origin}{listed}{reached}.", tuple(rows)


def _bubble(facts: Facts, verdict: Verdict) -> tuple[str, tuple[Evidence, ...]]:
    """Idle time of a pipeline, part of which shows as communication."""
    inside = evidence(
        "waiting inside the exchange between stages",
        verdict.bubble,
        "share",
        "computed",
        "Σ (self time − bytes ÷ bandwidth of the wires) ÷ step time, at most the bubble of the schedule",
        _SOURCE_OPS,
        keys(op for op in facts.collectives if op.collective and op.collective.tensor == "activations between stages"),
    )
    whole = evidence(
        "stages that wait",
        facts.shares.get("idle", 0.0) + verdict.bubble,
        "share",
        "computed",
        "idle + waiting inside the exchange",
        _SOURCE_OPS,
    )
    text = f"Pipeline stages wait for each other {whole} {facts.base}; {inside} {facts.base} shows as communication"
    return f"{text}, but its bytes need far less.", (whole, inside)


def unexplained(facts: Facts) -> str:
    """What is known of the cause of idle time: that input and host time do not explain it, as far as they were told."""
    known = [name for name in ("input", "host") if facts.kpis.get(name) is not None or facts.shares.get(name)]
    if len(known) == 2:
        return ", and neither input nor host time explains it"
    if not known:
        return "; input and host time were not measured, so what it waits for is open"
    other = "host" if known == ["input"] else "input"
    return f", and {known[0]} time does not explain it; {other} time was not measured"


def _stall(facts: Facts, name: str) -> tuple[str, tuple[Evidence, ...]]:
    share = evidence(
        f"{name} time", facts.shares.get(name, 0.0), "share", "measured", f"{name} time ÷ step time", _SOURCE_KPI
    )
    text = {
        "input": f"The device waits for its input: {share} {facts.base}.",
        "host": f"The device waits for the host (dispatch, transfers, callbacks): {share} {facts.base}.",
        "idle": f"The device is idle {share} {facts.base}{unexplained(facts)}.",
    }[name]
    return text, (share,)


def contradictions(facts: Facts, verdict: Verdict) -> tuple[tuple[str, ...], tuple[Evidence, ...]]:
    """Each KPI or label that points elsewhere, and why it does not hold."""
    texts: list[str] = []
    rows: list[Evidence] = []
    duty = facts.kpis.get("duty_cycle")
    if duty is not None and duty >= 0.95 and verdict.primary not in ("compute", "unknown"):
        row = evidence("duty cycle", duty, "share", "measured", "busy time ÷ step time", _SOURCE_KPI)
        rows.append(row)
        what = {
            "communication": "a core that waits inside a collective counts as busy",
            "memory": "a core that waits for HBM counts as busy",
        }.get(verdict.primary, "it counts every op, waiting ones too")
        texts.append(f"Duty cycle is {row}, yet that does not make the step compute-bound: {what}.")
    stated = facts.profile.kpis.get("communication")
    if verdict.primary == "communication" and stated is not None and stated < 0.3:
        row = evidence("communication KPI", stated, "share", "measured", "", _SOURCE_KPI)
        rows.append(row)
        if verdict.communication >= 0.3:
            texts.append(
                f"The communication KPI says {row}; it counts only part of the collectives that the op profile lists."
            )
        elif not facts.thin:
            texts.append(
                f"The communication KPI says {row}, which looks small, yet no other op costs as much as the largest "
                "collectives; what remains is spread over many smaller ops away from their roofs."
            )
        elif verdict.reconciled:
            texts.append(
                f"The communication KPI says {row} and the listed collectives account for it, yet no other op "
                "costs as much "
                "as any of them."
            )
        else:
            texts.append(
                f"The communication KPI says {row}; the listed collectives do not account for it, so the list is "
                "a sample, "
                "and in that sample collectives come first."
            )
    if verdict.primary in ("compute", "memory") and verdict.reconciled and facts.collectives and stated is not None:
        found = total_share(facts.collectives)
        if facts.thin and found >= 0.3 * total_share(facts.ops):
            row = evidence("communication KPI", stated, "share", "measured", "", _SOURCE_KPI)
            part = evidence(
                "collectives among the listed ops",
                found,
                "share",
                "computed",
                "Σ self time ÷ step time",
                _SOURCE_OPS,
                keys(facts.collectives),
            )
            rows += [row, part]
            texts.append(
                "Collectives are among the largest ops, yet they are not the bottleneck: the listed ones take "
                f"{part} and "
                f"account for the communication KPI of {row}, which leaves the rest of the step to other ops."
            )
    waiting = [
        op
        for op in facts.ops[:20]
        if op.collective
        and "hbm" in (op.op.bound_by or "").lower()
        and op.op.roofline_efficiency is not None
        and op.op.roofline_efficiency < 0.01
    ]
    if waiting:
        first = waiting[0]
        row = evidence(
            f"{first.op.name}: share of the HBM roof",
            first.op.roofline_efficiency,
            "share",
            "measured",
            "",
            "roofline",
            (first.key,),
        )
        rows.append(row)
        texts.append(
            f"XProf labels {first.op.name} HBM-bound, yet it moves {row} of what HBM could: it waits for the "
            "wires or for "
            "other cores, and counts as communication."
        )
    if verdict.primary == "compute" and duty is not None and duty < 0.9:
        row = evidence("duty cycle", duty, "share", "measured", "busy time ÷ step time", _SOURCE_KPI)
        rows.append(row)
        texts.append(f"Duty cycle is only {row}; what the device does when busy is still bound by compute.")
    if not facts.has_flops and facts.ops:
        texts.append("No op carries FLOPs, so roofline labels say nothing here; limits are judged by category.")
    elif not facts.has_roofline and facts.ops:
        texts.append("The device's peaks are not known, so there is no roofline; limits are judged by category.")
    return tuple(texts), tuple(rows)
