"""The verdict in words, and the KPIs that pointed elsewhere."""

from __future__ import annotations

from diagnosis.analyzer.breakdown import costliest_axis
from diagnosis.analyzer.facts import HOST_TRANSFER, Facts, OpFacts, total_share
from diagnosis.analyzer.host_copies import MIGRATION, host_copies
from diagnosis.analyzer.ops import idle_share
from diagnosis.analyzer.quantity import OPS, count_of, evidence, share_of
from diagnosis.analyzer.verdict import LEAST_LEFT, Verdict
from diagnosis.recording import KINDS
from diagnosis.report import Finding
from experiments.sentences import Sentence, join, say
from formatting import listed

#: Share of the time from which one op is what a recording shows.
UNKNOWN_FROM = 0.3
_SOURCE_KPI = "XProf overview"
#: The host's part of a recording without a device: nothing was launched, and nothing waited for it.
BETWEEN_OPS = "Between its ops, the processor spends {} {} on dispatch and on the program's own code."
_SOURCES = {
    "category": "op category",
    "launch": "the size of the launch",
    "tile": "the kernels' tiles",
    "shapes": "shapes",
    "iteration": "the requests per iteration",
}
_GROUP_WORDS = {
    "compute": "compute",
    "memory": "HBM bandwidth",
    "communication": "communication",
    "input": "input",
    "host": "host",
    "idle": "idle",
}


def bar_words(bar: str) -> str:
    """``ici:data+seq`` as ``the data and seq axes``."""
    if bar == "dcn":
        return "DCN"
    axes = bar.partition(":")[2].split("+")
    if axes == [""]:
        return "the interconnect"
    return f"the {listed(axes)} {'axis' if len(axes) == 1 else 'axes'}"


def state(facts: Facts, verdict: Verdict) -> Sentence:
    """One or two sentences."""
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


def no_program(facts: Facts) -> Sentence:
    """Return why this recording has no bottleneck."""
    recording = facts.recording
    if recording.kind == "few_launches":
        return _few_launches(facts)
    return say("{}: {}. A bottleneck needs one run of a program.", KINDS[recording.kind], recording.kind_evidence)


def _few_launches(facts: Facts) -> Sentence:
    """Return the shares of the time from the first op to the last, and what limits the largest op."""
    parts = [say("{} {}", op.op.name, share_of(op.op.name, op.share, "Σ self time ÷ profiled time", (op,)))
             for op in facts.ops[:3]]  # fmt: skip
    span = max(op.op.self_time_s / op.op.time_share for op in facts.ops if op.op.time_share > 0)
    row = evidence("from the first op to the last", span, "s", "measured", "", "trace")
    text = say("A few launches show no steady state ({}). Of {} from the first op to the last: {}",
               facts.recording.kind_evidence, row, join(", ", parts))  # fmt: skip
    if idle := idle_share(facts.profile):
        text += say(", and nothing runs for {}", share_of("nothing runs", idle, "1 − busy time ÷ profiled time"))
    text += "."
    if any(op.op.name.startswith(MIGRATION) for op in facts.ops):
        return text + (
            " Pages of unified memory move as they are touched, and kernels wait for them: prefetch them "
            "(cudaMemPrefetchAsync)."
        )
    largest = max(facts.ops, key=lambda op: op.share)
    return say("{} {}", text, _own_limit(largest)) if largest.share >= UNKNOWN_FROM else text


def _own_limit(op: OpFacts) -> str:
    """Return what limits an op that takes most of the time, as far as the recording tells."""
    if op.limit == "latency":
        return f"{op.op.name} runs in so few blocks of threads that most of the device does nothing meanwhile."
    if op.family == HOST_TRANSFER:
        return f"The link to the host limits {op.op.name}."
    return f"The time goes into {op.op.name} itself; FLOPs and bytes, which tell what limits it, were not recorded."


def larger(facts: Facts, verdict: Verdict, finding: Finding) -> Sentence:
    """Return why the bottleneck is named although a finding's bound is larger."""
    own = share_of(f"{verdict.primary} time", verdict.groups.get(verdict.primary, 0.0), "Σ its terms of the breakdown")
    most = share_of(f"bound of: {finding.title}", finding.saving_share, "Amdahl bound", source="findings")
    why = (
        "which is named first because no op is faster than the step waits"
        if verdict.by == "threshold"
        else "which is the largest term that nothing else contains"
    )
    return say(
        "{} has a larger bound ({}) than {} ({}), {}; compare what each costs to change.",
        finding.title, most, _GROUP_WORDS[verdict.primary], own, why,
    )  # fmt: skip


def _unknown(facts: Facts, verdict: Verdict) -> Sentence:
    listed = count_of("ops in the profile", len(facts.ops), OPS)
    if not facts.ops:
        why = facts.not_measured.get("ops", "")
        return say("The bottleneck cannot be determined: no work of a device was recorded ({} ops). {}", listed, why)
    if 1.0 - facts.once < LEAST_LEFT:
        return say("The bottleneck of a steady step cannot be determined: the recording is too short to tell whether "
                   "the gaps that make up most of it come back. Record later steps, after a warm-up.")  # fmt: skip
    unlabelled = share_of(
        "time without a known limit", max(0.0, verdict.groups.get("other", 0.0) - facts.once),
        "1 − Σ all other terms of the breakdown",
    )  # fmt: skip
    known = []
    for name, words in _GROUP_WORDS.items():
        if (value := verdict.groups.get(name, 0.0)) >= 0.0005:
            row = share_of(words, value, "term of the breakdown")
            known.append(say("{} {}", words, row))
    text = say("The bottleneck cannot be determined: of {} ops, {} {} has no roofline label or category that "
               "shows what limits it.", listed, unlabelled, facts.base)  # fmt: skip
    text = say("{} Known: {}.", text, join(", ", known)) if known else text
    largest = max(facts.ops, key=lambda op: op.share)
    if largest.share < UNKNOWN_FROM or largest.resource != "other":
        return text
    row = share_of(largest.op.name, largest.share, "Σ self time ÷ step time", (largest,))
    if facts.recording.platform == "cpu":  # whose calls may wait as well: for a lock, another process, a disk
        return say("{} {} alone takes {}, in which it may compute or wait.", text, largest.op.name, row)
    return say("{} It is not waiting: {} alone takes {}. {}", text, largest.op.name, row, _own_limit(largest))


def _sample(facts: Facts, verdict: Verdict) -> Sentence:
    """What the listed ops say, and how much of the step they are: a leaning, not a finding."""
    listed = share_of("listed ops", facts.coverage, "Σ time share of the listed ops")
    part = share_of(
        f"of the listed ops, {_GROUP_WORDS[verdict.primary]}",
        verdict.sample[verdict.primary],
        "Σ self time of listed ops by what limits them ÷ Σ self time of listed ops with a known limit",
    )
    text = say(
        "The listed ops point to {}: {} of those with a known limit. They account for {} of op time; the "
        "rest is not in the profile, so the breakdown of the step is unknown.",
        _GROUP_WORDS[verdict.primary],
        part,
        listed,
    )
    if verdict.primary == "communication":
        row = share_of(
            "known communication of the step",
            verdict.communication,
            "larger of the communication KPI and Σ exposed time of listed collectives",
            source=_SOURCE_KPI,
        )
        text += say(" Known communication takes {} {}, which bounds what removing it can save.", row, facts.base)
    return text


def _communication(facts: Facts, verdict: Verdict) -> Sentence:
    talking = facts.collectives
    costly = costliest_axis(facts.ops)
    over = "over DCN" if costly and costly[0] == "dcn" else "between chips"
    share = share_of(
        "exposed communication", verdict.communication, "Σ exposed time of collectives ÷ step time", talking
    )
    # Exposed time, as the whole is, and no more than it: what a pipeline waits there is not in the whole either.
    exposed = min(facts.shares.get(costly[0], 0.0), verdict.communication) if costly else 0.0
    text = say("Exposed communication {} takes {} {}", over, share, facts.base)
    if not costly or exposed <= 0:
        return text + "."
    if exposed >= 0.995 * verdict.communication:
        return say("{}, nearly all of it on {}.", text, bar_words(costly[0]))
    part = share_of(
        f"collectives on {bar_words(costly[0])}",
        exposed,
        "Σ exposed time ÷ step time",
        (op for op in talking if op.axes or op.over_dcn),
    )
    return say("{}, mostly on {} ({}).", text, bar_words(costly[0]), part)


def _labelled(facts: Facts, limit: str) -> tuple[OpFacts, ...]:
    return facts.where(lambda op: op.resource == limit)


def _roofline(facts: Facts, verdict: Verdict) -> Sentence:
    memory = verdict.primary == "memory"
    limit, label = ("hbm", "HBM bandwidth") if memory else ("compute", "compute")
    other_limit, other_label = ("compute", "compute") if memory else ("hbm", "HBM bandwidth")
    ops = _labelled(facts, limit)
    share = share_of(
        f"{label}-bound ops",
        facts.shares.get(limit, 0.0),
        f"Σ self time of {label}-bound ops without collectives ÷ step time",
        ops,
    )
    bound, other_bound = ("HBM", "compute") if memory else ("compute", "HBM")
    text = say("The step is {}-bound: {}-bound ops take {} {}", bound, bound, share, facts.base)
    inferred = [op for op in ops if op.limit_source != "roofline"]
    sources = listed([_SOURCES[name] for name in dict.fromkeys(op.limit_source for op in inferred)])
    if inferred and len(inferred) == len(ops):
        text += f", classified by {sources} (no roofline was recorded)"
    elif inferred and total_share(inferred) >= 0.1 * total_share(ops):
        row = share_of(
            f"of it, classified by {sources} (no FLOPs recorded)",
            total_share(inferred),
            "Σ self time ÷ step time",
            inferred,
        )
        text += say(", {} of it classified by {} since no FLOPs were recorded", row, sources)
    if (against := facts.shares.get(other_limit, 0.0)) >= 0.0005:
        row = share_of(
            f"{other_label}-bound ops",
            against,
            f"Σ self time of {other_label}-bound ops without collectives ÷ step time",
            _labelled(facts, other_limit),
        )
        text += say("; {}-bound ops take {}", other_bound, row)
    if (unlabelled := facts.shares.get("other", 0.0) - facts.once) >= 0.1:
        row = share_of("ops without a known limit", unlabelled, "1 − Σ all other terms of the breakdown")
        text += say("; {} has no known limit", row)
    if best := max((op for op in ops if op.efficiency), key=lambda op: op.share, default=None):
        roof = evidence(
            f"{best.op.name}: share of the {label} roof",
            best.efficiency,
            "share",
            "measured",
            "",
            "roofline",
            (best.key,),
        )
        text += say(". The longest op on a known roofline, {}, reaches {} of it", best.op.name, roof)
    return text + "."


def _offload(facts: Facts) -> Sentence:
    """Waiting for tensors that travel between HBM and host memory; its finding has the rate against the host link."""
    ops = host_copies(facts)
    share = share_of(
        "exposed host transfers",
        facts.shares.get("host_transfer", 0.0),
        "Σ exposed time of copies to and from host memory ÷ step time",
        ops,
    )
    words = "Host transfers limit the step: waiting for tensors to and from host memory takes {} {}."
    return say(words, share, facts.base)


def _bubble(facts: Facts, verdict: Verdict) -> Sentence:
    """Idle time of a pipeline, part of which shows as communication."""
    inside = share_of(
        "waiting inside transfers between stages",
        verdict.bubble,
        "Σ (self time − bytes ÷ bandwidth of the links) ÷ step time, at most the bubble of the schedule",
        (op for op in facts.collectives if op.collective and op.collective.tensor == "activations between stages"),
    )
    whole = share_of(
        "waiting stages", facts.shares.get("idle", 0.0) + verdict.bubble, "idle + waiting inside transfers"
    )
    text = say(
        "Pipeline stages wait for each other {} {}; {} {} shows as communication", whole, facts.base, inside, facts.base
    )
    return say("{}, but the bytes transferred need far less time.", text)


def unexplained(facts: Facts) -> str:
    """Cause of idle time, as far as known."""
    gaps = facts.profile.recorded.gaps
    if queued := gaps.get("queued", 0.0):
        row = evidence("launched in time", queued, "share", "measured", "Σ such gaps ÷ profiled time", "trace")
        return say(
            "; {} before ops that were launched in time and, on an idle device, waited for an event or for the driver "
            "(an allocation, the loading of a module)",
            row,
        )
    if gaps.get("unknown"):
        return "; the launches of the ops after these gaps are not in the trace"
    unknown = [name for name in ("input", "host") if facts.kpis.get(name) is None and not facts.shares.get(name)]
    if not unknown:
        return ", and neither input nor host time explains it"
    return f"; {' and '.join(unknown)} time was not measured, so the cause is unknown"


def left_out(facts: Facts) -> Sentence:
    """Return what no share counts, and what the verdict does not: the start-up, and gaps that may not come back."""
    parts: list[Sentence | str] = []
    if (start_up_s := facts.profile.recorded.start_up_s) > 0:
        row = evidence("start-up", start_up_s, "s", "measured", "first kernel until the last long gap", "trace")
        parts.append(say("a start-up of {} (first calls, loading, compilation)", row))
    if facts.once > 0:
        row = evidence("gaps that may not come back", facts.once, "share", "measured", "Σ such gaps ÷ profiled time",
                       "trace")  # fmt: skip
        parts.append(say("{} {} in which modules are loaded, or a few long gaps hold most of the idle time and nothing "
                         "shows that they come back", row, facts.base))  # fmt: skip
    return say("Left out: {}.", join("; ", parts))


def _stall(facts: Facts, name: str) -> Sentence:
    share = evidence(
        f"{name} time", facts.shares.get(name, 0.0), "share", "measured", f"{name} time ÷ step time", _SOURCE_KPI
    )
    if name == "host" and facts.recording.platform == "cpu":
        return say(BETWEEN_OPS, share, facts.base)
    return {
        "input": say("The device waits for input {} {}.", share, facts.base),
        "host": say("The device waits for the host (dispatch, transfers, callbacks) {} {}.", share, facts.base),
        "idle": say("The device is idle {} {}{}.", share, facts.base, unexplained(facts)),
    }[name]


def contradictions(facts: Facts, verdict: Verdict) -> tuple[str, ...]:
    """Each KPI or label that points elsewhere, and why it does not hold."""
    texts: list[str] = []
    duty = facts.kpis.get("duty_cycle")
    if duty is not None and duty >= 0.95 and verdict.primary not in ("compute", "unknown"):
        row = evidence("duty cycle", duty, "share", "measured", "busy time ÷ step time", _SOURCE_KPI)
        what = {
            "communication": "a core that waits inside a collective counts as busy",
            "memory": "a core that waits for HBM counts as busy",
        }.get(verdict.primary, "it counts every op, including waiting")
        texts.append(say("The duty cycle is {}, but the step is not compute-bound: {}.", row, what))
    stated = facts.profile.kpis.get("communication")
    named = verdict.primary == "communication" and verdict.by == "threshold"
    if named and stated is not None and stated < 0.7 * verdict.communication:
        row = evidence("communication KPI", stated, "share", "measured", "", _SOURCE_KPI)
        texts.append(say("The communication KPI is {}; it covers only some of the collectives in the op profile.", row))
    if verdict.primary in ("compute", "memory") and facts.collectives and stated is not None and facts.thin:
        measured = total_share(facts.collectives)
        if 0.7 * stated <= measured and measured >= 0.3 * total_share(facts.ops):
            row = evidence("communication KPI", stated, "share", "measured", "", _SOURCE_KPI)
            part = share_of("collectives among the listed ops", measured, "Σ self time ÷ step time", facts.collectives)
            texts.append(
                say(
                    "Collectives are among the largest ops, but those listed take {} and account for the "
                    "communication KPI of {}; the rest of the step is other ops.",
                    part,
                    row,
                )
            )
    waiting = (op for op in facts.ops[:20] if op.collective and "hbm" in (op.op.bound_by or "").lower())
    reached = ((op, op.op.roofline_efficiency) for op in waiting)
    if first := next(((op, share) for op, share in reached if share is not None and share < 0.01), None):
        op, share = first
        row = evidence(f"{op.op.name}: share of the HBM roof", share, "share", "measured", "", "roofline", (op.key,))
        texts.append(
            say(
                "XProf labels {} HBM-bound, but it reaches {} of HBM bandwidth: it waits for links or other cores"
                " and counts as communication.",
                op.op.name,
                row,
            )
        )
    if verdict.primary == "compute" and duty is not None and duty < 0.9:
        row = evidence("duty cycle", duty, "share", "measured", "busy time ÷ step time", _SOURCE_KPI)
        texts.append(say("The duty cycle is only {}; while busy, the device is still compute-bound.", row))
    if not facts.has_flops and facts.ops:
        texts.append(
            "No op reports FLOPs, so there are no roofline labels: kernel, kind of op and kind of recording tell what "
            "limits an op, where they do."
        )
    elif not facts.has_roofline and facts.ops:
        texts.append("The device's peaks are unknown, so there is no roofline; ops are classified by category.")
    return tuple(texts)
