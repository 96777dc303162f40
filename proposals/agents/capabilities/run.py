"""The run and its figures: what ran, how long a step takes, why, and what a number is."""

from __future__ import annotations

from agent.tools import NoArguments, ToolError
from experiments.step_profile import PROFILE
from proposals import facts
from proposals.agents import words
from proposals.agents.capabilities.capability import Missing, capability
from proposals.agents.capabilities.common import Row, Words, get, how, unknown_facts
from proposals.agents.capabilities.desk import Answer, Desk

PARTS = {
    "compute": "compute", "hbm": "HBM-bound", "dcn": "exposed DCN communication", "host": "host", "input": "input",
    "idle": "idle", "other": "other", "host_transfer": "host transfers", "kernel_launches": "kernel launches",
}  # fmt: skip
FIGURES = {
    "step_time_s": "step time", "mfu": "MFU", "flops_utilization": "FLOPs utilisation",
    "hbm_utilization": "HBM bandwidth utilisation", "mxu_utilization": "MXU utilisation", "duty_cycle": "duty cycle",
    "communication": "communication", "communication_exposed": "exposed communication", "idle": "idle",
    "input": "input", "host": "host", "goodput": "goodput", "stragglers": "stragglers",
    "memory_peak_share": "peak memory", "memory": "peak memory",
}  # fmt: skip


class OneFigure(NoArguments):
    text: Words = ""


@capability(
    "Configuration of the run",
    "What configuration did this run use?",
    "Summarise the setup: model, chips, mesh and batch.",
    "Which remat policy and optimizer are set?",
    "How many devices and hosts took part?",
)
def configuration(desk: Desk, given: NoArguments) -> Answer:
    """The configuration as it ran: chips, mesh, model, batch, sequence length, precision, optimizer, remat, flags."""
    data = yield from get(desk, "run")
    config = data["configuration"]
    hardware, training, model = config["hardware"], config.get("training", {}), config.get("model") or {}
    slices = f" in {hardware['slices']} slices" if hardware.get("slices", 1) > 1 else ""
    yield from desk.say(f"{words.mesh(data)} on {data['chips']:,} {hardware['chip']} chips{slices}.")
    items = []
    if model:
        name = str(model.get("name") or "custom model")
        shape = f", {model['layers']} layers, d_model {model['d_model']:,}" if model.get("layers") else ""
        items.append(f"model: {name}{shape}")
    for key in (
        "global_batch", "seq_len", "precision", "optimizer", "weight_sharding", "remat", "grad_accum", "micro_batch",
    ):  # fmt: skip
        value = training.get(key)
        if value is not None:
            items.append(
                f"{facts.setting(key)}: {value:,}" if isinstance(value, int) else f"{facts.setting(key)}: {value}"
            )
    items.append(f"XLA flags set: {words.listed([f'`{flag}`' for flag in training.get('xla_flags') or ()]) or 'none'}")
    yield from desk.bullets(items)
    yield from unknown_facts(desk, data.get("not_known", ()))


@capability(
    "Step time",
    "How long does one step take?",
    "What is the step time and how much does it vary from step to step?",
    "How many seconds per iteration?",
    "Is the step time stable?",
)
def step_time(desk: Desk, given: NoArguments) -> Answer:
    """Measured time of a training step, its spread over the recorded steps, and how many were recorded."""
    kpis = yield from get(desk, "kpis")
    data = yield from get(desk, "run")
    step = kpis.get("step_time_s")
    if not step:
        yield from desk.say(
            f"The step time was not measured: {kpis['not_measured'].get('step_time_s', 'not reported')}."
        )
        return
    yield from desk.say(f"**{words.time(step)}** per step, {how(desk)}.")
    if kpis.get("step_time_min_s") and kpis.get("step_time_max_s"):
        yield from desk.more(
            f"The shortest step took {words.time(kpis['step_time_min_s'])}, the longest "
            f"{words.time(kpis['step_time_max_s'])}"
            + (
                f", standard deviation {words.time(kpis['step_time_stdev_s'])}."
                if kpis.get("step_time_stdev_s")
                else "."
            )
        )
    steps = (data.get("profile") or {}).get("steps")
    if steps:
        yield from desk.say(f"{steps:,} {'step was' if steps == 1 else 'steps were'} recorded.")


@capability(
    "Key figures of the step",
    "Show me the KPIs of this run.",
    "What are the duty cycle and the HBM bandwidth utilisation?",
    "How busy are the chips?",
    "What is the goodput?",
)
def kpis(desk: Desk, given: NoArguments) -> Answer:
    """Measured shares of the step: duty cycle, communication, idle, input, HBM and FLOPs utilisation, MFU, goodput."""
    data = yield from get(desk, "kpis")
    step, shares = data.get("step_time_s"), data.get("shares_0_to_1") or {}
    if step:
        yield from desk.say(f"A step takes {words.time(step)}, {how(desk)}.")
    rows = [[name, words.share(shares[key])] for key, name in FIGURES.items() if shares.get(key) is not None]
    yield from desk.table(["Figure", "Measured"], rows)
    if data.get("mfu_convention") and shares.get("mfu") is not None:
        yield from desk.say(f"MFU here is {data['mfu_convention']}.")
    missing = [
        f"{FIGURES.get(key, key.replace('_', ' '))}: {why}" for key, why in (data.get("not_measured") or {}).items()
    ]
    if missing:
        yield from desk.say("Not measured:")
        yield from desk.bullets(missing[:6])


@capability(
    "Why the step takes as long as it does",
    "Why is this step slow?",
    "What is the bottleneck?",
    "What limits training speed here: compute, memory bandwidth or communication?",
    "Are we compute bound?",
    "Where does the time go?",
)
def bottleneck(desk: Desk, given: NoArguments) -> Answer:
    """The verdict on what limits the step, the breakdown of its time by resource, and the costliest findings."""
    verdict = yield from get(desk, "bottleneck")
    yield from desk.say(
        f"**{str(verdict['primary']).capitalize()}** is the bottleneck, with "
        f"{words.percent(verdict['confidence_share'])} confidence.",
        str(verdict["statement"]),
    )
    yield from breakdown(desk)
    if verdict.get("contradictions"):
        yield from desk.say("Figures that point elsewhere, and why they do not decide:")
        yield from desk.bullets([str(item) for item in verdict["contradictions"][:2]])
    found = yield from get(desk, "findings")
    if found.get("rows"):
        yield from desk.say("The costliest findings:")
        yield from desk.bullets([f"{item['title']}: {item['insight']}" for item in found["rows"][:3]])


def breakdown(desk: Desk) -> Answer:
    """Where the time of a step goes, by resource."""
    data = yield from get(desk, "kpis")
    shares, seconds = data.get("breakdown_share") or {}, data.get("breakdown_s") or {}
    parts = sorted((part for part, value in shares.items() if value >= 0.002), key=lambda part: -shares[part])
    if not parts:
        return
    name = {part: PARTS.get(part, f"exposed communication on {part.removeprefix('ici:')}") for part in parts}
    how = "predicted, not measured" if data.get("breakdown_origin") else "measured"
    yield from desk.say(f"Where the time of a step goes, {how}:")
    if seconds:
        rows = [[name[p], words.time(seconds[p]), words.share(shares[p])] for p in parts]
        yield from desk.table(["Part", "Time per step", "Share"], rows)
    else:
        yield from desk.table(["Part", "Share of device time"], [[name[p], words.share(shares[p])] for p in parts])


def predicted_instead(desk: Desk, error: str) -> Answer:
    """In the place of what no profile measured: that it is so, and the predicted breakdown."""
    yield from desk.say(f"{error.partition(';')[0].removesuffix('.')}.")
    yield from breakdown(desk)


def no_profile(desk: Desk) -> bool:
    return desk.bench.profile.basis != PROFILE


@capability(
    "Summary for a manager",
    "Summarise this run for my manager in a few sentences.",
    "Give me an executive summary.",
    "Explain the situation in plain words for someone who is not an ML engineer.",
    "What are the key takeaways?",
)
def summary(desk: Desk, given: NoArguments) -> Answer:
    """Step time, the bottleneck, the recommended change with its predicted gain and confidence, in a few sentences."""
    verdict = yield from get(desk, "bottleneck")
    data = yield from get(desk, "proposals")
    ran, first = data["what_runs"], data["proposals"][0]
    step = f"One training step takes {words.estimate(ran)} ({how(desk)}). " if ran.get("step_time_s") else ""
    yield from desk.say(
        f"{step}It is limited by **{verdict['primary']}** ({words.percent(verdict['confidence_share'])} confidence)."
    )
    if first["kind"] == "keep":
        yield from desk.say(
            "Recommendation: keep the current configuration; no legal change is predicted to gain what it costs to try "
            f"({words.percent(first['confidence_share'])} confidence)."
        )
    elif first.get("speedup_per_token"):
        yield from desk.say(
            f"Recommendation: proposal {first['number']}, {words.configuration(first)}: predicted "
            f"{words.speed(first)}, with "
            f"{words.percent(first['confidence_share'])} confidence that it {words.gains(first)}."
        )
    yield from desk.say(
        "A trial of a few dozen steps decides it; nothing changes until a reviewer approves a proposal."
    )


@capability(
    "What the profile does not tell",
    "What is missing from this profile?",
    "How good is the quality of the profile?",
    "Which figures could not be measured, and why?",
    "Are there warnings about the trace?",
)
def missing(desk: Desk, given: NoArguments) -> Answer:
    """Figures that were not measured and why, facts that are not known, and warnings of the analysis."""
    data = yield from get(desk, "run")
    figures = yield from get(desk, "kpis")
    items = [
        f"{FIGURES.get(key, key.replace('_', ' '))}: {why}" for key, why in (figures.get("not_measured") or {}).items()
    ]
    items += [str(text) for text in data.get("warnings") or ()]
    if items:
        yield from desk.bullets(items[:10])
    else:
        yield from desk.say("Every figure was measured, and the analysis gave no warning.")
    yield from unknown_facts(desk, data.get("not_known", ()))


@capability(
    "Where a number comes from",
    "Why is the MFU so low?",
    "How is the duty cycle computed?",
    "Where does this figure come from and how was it calculated?",
    "Explain the number for exposed communication.",
)
def explain_figure(desk: Desk, given: OneFigure) -> Answer:
    """A figure of the run with its origin (measured, computed or predicted), formula and source."""
    data = yield from get(desk, "kpis")
    shares = data.get("shares_0_to_1") or {}
    text = given.text.lower().replace("utilization", "utilisation")
    key = next((key for key, name in FIGURES.items() if key in text or name.lower() in text), "")
    if not key:
        key = "communication_exposed" if "exposed" in text else ""
    if not key:
        names = [name for key, name in FIGURES.items() if shares.get(key) is not None or key == "step_time_s"]
        raise Missing(
            f"Say which figure: {words.listed(names, 'or')}.",
            tuple(f"Where does the {name} come from?" for name in names[:3]),
        )
    value = data.get(key) if key == "step_time_s" else shares.get(key)
    if value is None:
        why = (data.get("not_measured") or {}).get(key, "it is not reported")
        yield from desk.say(f"{FIGURES[key][:1].upper()}{FIGURES[key][1:]} was not measured: {why}.")
        return
    shown = words.time(value) if key == "step_time_s" else words.share(value)
    yield from desk.say(f"{FIGURES[key][:1].upper()}{FIGURES[key][1:]} is **{shown}**, measured.")
    if key == "mfu":
        yield from desk.say(f"It is {data['mfu_convention']}.")
    verdict = yield from get(desk, "bottleneck")
    found = yield from get(desk, "findings")
    rows = [*(verdict.get("evidence") or ()), *(e for item in found.get("rows", ()) for e in item.get("evidence", ()))]
    stem = FIGURES[key].split()[0].lower()
    lines = [_evidence(row) for row in rows if stem in str(row.get("label", "")).lower() and row.get("text")]
    if lines:
        yield from desk.say("Evidence of the diagnosis with it:")
        yield from desk.bullets(list(dict.fromkeys(lines))[:4])
    if key in ("mfu", "flops_utilization"):
        yield from desk.say("What keeps it low is where the rest of the step goes:")
        yield from breakdown(desk)


def _evidence(row: Row) -> str:
    how = f", computed as {row['formula']}" if row.get("formula") else ""
    return f"{row['label']}: {row['text']} ({row['origin']}{how})"


@capability(
    "What to measure next",
    "What should I measure next?",
    "Which profile would make the predictions more certain?",
    "What data do you still need from me?",
    "Should I capture a longer trace?",
)
def measure_next(desk: Desk, given: NoArguments) -> Answer:
    """Measurements that would narrow the predictions most: missing facts, memory, a profile, a trial of a proposal."""
    data = yield from get(desk, "proposals")
    figures = yield from get(desk, "kpis")
    items, unknown = [], data.get("not_known", ())
    if unknown:
        items.append(f"**{facts.in_words(unknown).capitalize()}**: needs no measurement, and narrows every prediction.")
    if no_profile(desk):
        items.append(
            "**A profile of the current configuration**: every prediction here is calibrated with a step time at most."
        )
    first, ran = data["proposals"][0], data["what_runs"]
    if first["kind"] != "keep" and ran.get("step_time_s"):
        items.append(
            f"**A short run of proposal {first['number']} with a profile**: predicted {words.step(first)} per "
            f"step against "
            f"{words.estimate(ran)} {how(desk)}."
        )
    missing_now = figures.get("not_measured") or {}
    items += [f"**Peak memory**: {why}" for key, why in missing_now.items() if key in ("memory", "memory_peak_share")][
        :1
    ]
    items += [f"**More steps**: {why}" for key, why in missing_now.items() if key == "step_time_s"]
    spread, step = figures.get("step_time_stdev_s"), figures.get("step_time_s")
    if spread and step and spread > 0.05 * step:
        items.append(
            f"**The current configuration again**: the standard deviation of the step time is {words.time(spread)}."
        )
    if not items:
        raise ToolError("Nothing decisive is missing: a trial of a proposal is the next measurement.")
    yield from desk.bullets(items)
    yield from unknown_facts(desk, unknown)
