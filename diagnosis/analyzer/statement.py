"""The verdict in words, with the number behind each, and the KPIs that pointed elsewhere."""

from __future__ import annotations

from diagnosis.analyzer.breakdown import costliest_axis
from diagnosis.analyzer.facts import Facts, OpFacts, keys, total_share
from diagnosis.analyzer.host_copies import host_copies, host_link_rate
from diagnosis.analyzer.quantity import evidence
from diagnosis.analyzer.verdict import Verdict
from diagnosis.report import Evidence

_SOURCE_KPI = "XProf overview"
_SOURCE_OPS = "op profile"
_GROUP_WORDS = {
    "compute": "compute",
    "memory": "HBM bandwidth",
    "communication": "communication",
    "input": "input",
    "host": "host",
    "idle": "idle",
}
_LIMIT_WORDS = {"compute": "Compute", "memory": "HBM bandwidth", "communication": "Communication"}


def bar_words(bar: str) -> str:
    """``ici:data+seq`` as ``the data and seq axes``."""
    if bar == "dcn":
        return "DCN"
    axes = bar.partition(":")[2].split("+")
    if axes == [""]:
        return "the interconnect"
    return f"the {axes[0]} axis" if len(axes) == 1 else f"the {', '.join(axes[:-1])} and {axes[-1]} axes"


def state(facts: Facts, verdict: Verdict) -> tuple[str, tuple[Evidence, ...]]:
    """(one or two sentences, the numbers in them)."""
    if verdict.by == "sample":
        return _sample(facts, verdict)
    match verdict.primary:
        case "communication":
            return _communication(facts, verdict)
        case "compute" | "memory":
            return _roofline(facts, verdict)
        case "idle" if verdict.bubble > 0:
            return _bubble(facts, verdict)
        case "host" if facts.shares.get("host_transfer", 0.0) > facts.shares.get("host", 0.0):
            return _offload(facts)
        case "input" | "host" | "idle":
            return _stall(facts, verdict.primary)
        case _:
            return _unknown(facts, verdict)


def _unknown(facts: Facts, verdict: Verdict) -> tuple[str, tuple[Evidence, ...]]:
    listed = evidence("ops in the profile", float(len(facts.ops)), "count", "measured", source=_SOURCE_OPS)
    if not facts.ops:
        return f"The bottleneck cannot be determined: the profile contains no ops ({listed} ops).", (listed,)
    unlabelled = evidence(
        "time without a known limit", verdict.groups.get("other", 0.0), "share", "computed",
        "1 − Σ all other terms of the breakdown", _SOURCE_OPS,
    )  # fmt: skip
    rows = [listed, unlabelled]
    known = []
    for name, words in _GROUP_WORDS.items():
        if (value := verdict.groups.get(name, 0.0)) >= 0.0005:
            rows.append(evidence(words, value, "share", "computed", "term of the breakdown", _SOURCE_OPS))
            known.append(f"{words} {rows[-1]}")
    text = (
        f"The bottleneck cannot be determined: of {listed} ops, {unlabelled} {facts.base} has no roofline "
        "label or category that shows what limits it."
    )
    return f"{text} Known: {', '.join(known)}." if known else text, tuple(rows)


def _sample(facts: Facts, verdict: Verdict) -> tuple[str, tuple[Evidence, ...]]:
    """What the listed ops say, and how much of the step they are: a leaning, not a finding."""
    listed = evidence("listed ops", facts.coverage, "share", "computed", "Σ time share of the listed ops", _SOURCE_OPS)
    part = evidence(
        f"of the listed ops, {_GROUP_WORDS[verdict.primary]}", verdict.sample[verdict.primary], "share", "computed",
        "Σ self time of listed ops by what limits them ÷ Σ self time of listed ops with a known limit", _SOURCE_OPS,
    )  # fmt: skip
    rows = [listed, part]
    text = (
        f"The listed ops point to {_GROUP_WORDS[verdict.primary]}: {part} of those with a known limit. They account "
        "for "
        f"{listed} of op time; the rest is not in the profile, so the breakdown of the step is unknown."
    )
    if verdict.primary == "communication":
        row = evidence(
            "known communication of the step", verdict.communication, "share", "computed",
            "larger of the communication KPI and Σ exposed time of listed collectives", _SOURCE_KPI,
        )  # fmt: skip
        rows.append(row)
        text += f" Known communication takes {row} {facts.base}, which bounds what removing it can save."
    return text, tuple(rows)


def _communication(facts: Facts, verdict: Verdict) -> tuple[str, tuple[Evidence, ...]]:
    talking = facts.collectives
    costly = costliest_axis(facts.ops)
    over = "over DCN" if costly and costly[0] == "dcn" else "between chips"
    share = evidence(
        "exposed communication",
        verdict.communication,
        "share",
        "computed",
        "Σ exposed time of collectives ÷ step time",
        _SOURCE_OPS,
        keys(talking),
    )
    # Exposed time, as the whole is, and no more than it: what a pipeline waits there is not in the whole either.
    exposed = min(facts.shares.get(costly[0], 0.0), verdict.communication) if costly else 0.0
    text = f"Exposed communication {over} takes {share} {facts.base}"
    if not costly or exposed <= 0:
        return f"{text}.", (share,)
    if exposed >= 0.995 * verdict.communication:
        return f"{text}, nearly all of it on {bar_words(costly[0])}.", (share,)
    part = evidence(
        f"collectives on {bar_words(costly[0])}",
        exposed,
        "share",
        "computed",
        "Σ exposed time ÷ step time",
        _SOURCE_OPS,
        keys(op for op in talking if op.axes or op.over_dcn),
    )
    return f"{text}, mostly on {bar_words(costly[0])} ({part}).", (share, part)


def _labelled(facts: Facts, limit: str) -> tuple[OpFacts, ...]:
    return facts.where(lambda op: op.resource == limit)


def _roofline(facts: Facts, verdict: Verdict) -> tuple[str, tuple[Evidence, ...]]:
    memory = verdict.primary == "memory"
    limit, label = ("hbm", "HBM bandwidth") if memory else ("compute", "compute")
    other_limit, other_label = ("compute", "compute") if memory else ("hbm", "HBM bandwidth")
    ops = _labelled(facts, limit)
    share = evidence(
        f"{label}-bound ops",
        facts.shares.get(limit, 0.0),
        "share",
        "computed",
        f"Σ self time of {label}-bound ops without collectives ÷ step time",
        _SOURCE_OPS,
        keys(ops),
    )
    rows = [share]
    text = f"{_LIMIT_WORDS[verdict.primary]} limits the step: ops bound by it take {share} {facts.base}"
    inferred = [op for op in ops if op.limit_source == "category"]
    if inferred and len(inferred) == len(ops):
        text += ", classified by category (no roofline was recorded)"
    elif total_share(inferred) >= 0.1 * total_share(ops):
        row = evidence(
            "of it, classified by op category (no FLOPs recorded)", total_share(inferred), "share", "computed",
            "Σ self time ÷ step time", _SOURCE_OPS, keys(inferred),
        )  # fmt: skip
        rows.append(row)
        text += f", {row} of it classified by op category since no FLOPs were recorded"
    if (against := facts.shares.get(other_limit, 0.0)) >= 0.0005:
        row = evidence(
            f"{other_label}-bound ops", against, "share", "computed",
            f"Σ self time of {other_label}-bound ops without collectives ÷ step time", _SOURCE_OPS,
            keys(_labelled(facts, other_limit)),
        )  # fmt: skip
        rows.append(row)
        text += f"; ops bound by {other_label} take {row}"
    if (unlabelled := facts.shares.get("other", 0.0)) >= 0.1:
        row = evidence(
            "ops without a known limit", unlabelled, "share", "computed", "1 − Σ all other terms of the breakdown",
            _SOURCE_OPS,
        )  # fmt: skip
        rows.append(row)
        text += f"; {row} has no known limit"
    best = max(ops, key=lambda op: op.share * (op.efficiency or 0.0), default=None)
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
        text += f". {best.op.name} reaches {roof} of that roof"
    return f"{text}.", tuple(rows)


def _offload(facts: Facts) -> tuple[str, tuple[Evidence, ...]]:
    """Waiting for tensors that travel between HBM and host memory, with the rate against the host link."""
    ops = host_copies(facts)
    share = evidence(
        "exposed host transfers", facts.shares.get("host_transfer", 0.0), "share", "computed",
        "Σ exposed time of copies to and from host memory ÷ step time", _SOURCE_OPS, keys(ops),
    )  # fmt: skip
    text = f"Host transfers limit the step: waiting for tensors to and from host memory takes {share} {facts.base}"
    rates = host_link_rate(facts)
    if rates is None:
        return f"{text}.", (share,)
    achieved, possible = rates
    text += f". The busier direction reaches {achieved} per core"
    if possible is None:
        return f"{text}.", (share, achieved)
    return f"{text} of {possible} host-link bandwidth.", (share, achieved, possible)


def _bubble(facts: Facts, verdict: Verdict) -> tuple[str, tuple[Evidence, ...]]:
    """Idle time of a pipeline, part of which shows as communication."""
    inside = evidence(
        "waiting inside transfers between stages",
        verdict.bubble,
        "share",
        "computed",
        "Σ (self time − bytes ÷ bandwidth of the links) ÷ step time, at most the bubble of the schedule",
        _SOURCE_OPS,
        keys(op for op in facts.collectives if op.collective and op.collective.tensor == "activations between stages"),
    )
    whole = evidence(
        "waiting stages",
        facts.shares.get("idle", 0.0) + verdict.bubble,
        "share",
        "computed",
        "idle + waiting inside transfers",
        _SOURCE_OPS,
    )
    text = f"Pipeline stages wait for each other {whole} {facts.base}; {inside} {facts.base} shows as communication"
    return f"{text}, but the bytes transferred need far less time.", (whole, inside)


def unexplained(facts: Facts) -> str:
    """What is known of the cause of idle time: that input and host time do not explain it, as far as they were told."""
    known = [name for name in ("input", "host") if facts.kpis.get(name) is not None or facts.shares.get(name)]
    if len(known) == 2:
        return ", and neither input nor host time explains it"
    if not known:
        return "; input and host time were not measured, so the cause is unknown"
    other = "host" if known == ["input"] else "input"
    return f", and {known[0]} time does not explain it; {other} time was not measured"


def _stall(facts: Facts, name: str) -> tuple[str, tuple[Evidence, ...]]:
    share = evidence(
        f"{name} time", facts.shares.get(name, 0.0), "share", "measured", f"{name} time ÷ step time", _SOURCE_KPI
    )
    text = {
        "input": f"The device waits for input {share} {facts.base}.",
        "host": f"The device waits for the host (dispatch, transfers, callbacks) {share} {facts.base}.",
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
        }.get(verdict.primary, "it counts every op, including waiting")
        texts.append(f"The duty cycle is {row}, but the step is not compute-bound: {what}.")
    stated = facts.profile.kpis.get("communication")
    if verdict.primary == "communication" and verdict.by == "threshold" and stated is not None and stated < 0.3:
        row = evidence("communication KPI", stated, "share", "measured", "", _SOURCE_KPI)
        rows.append(row)
        texts.append(f"The communication KPI is {row}; it covers only some of the collectives in the op profile.")
    if verdict.primary in ("compute", "memory") and facts.collectives and stated is not None and facts.thin:
        found = total_share(facts.collectives)
        if 0.7 * stated <= found and found >= 0.3 * total_share(facts.ops):
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
                f"Collectives are among the largest ops, but those listed take {part} and account for the "
                f"communication KPI of {row}; the rest of the step is other ops."
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
            f"XProf labels {first.op.name} HBM-bound, but it reaches {row} of HBM bandwidth: it waits for links or "
            "other cores and counts as communication."
        )
    if verdict.primary == "compute" and duty is not None and duty < 0.9:
        row = evidence("duty cycle", duty, "share", "measured", "busy time ÷ step time", _SOURCE_KPI)
        rows.append(row)
        texts.append(f"The duty cycle is only {row}; while busy, the device is still compute-bound.")
    if not facts.has_flops and facts.ops:
        texts.append("No op reports FLOPs, so there are no roofline labels; ops are classified by category.")
    elif not facts.has_roofline and facts.ops:
        texts.append("The device's peaks are unknown, so there is no roofline; ops are classified by category.")
    return tuple(texts), tuple(rows)
