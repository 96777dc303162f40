"""The run and its figures: configuration, step time, bottleneck, and what a number is."""

from __future__ import annotations

from agent.tools import NoArguments, ToolError
from formatting import listed
from proposals import facts
from proposals.agents import words
from proposals.agents.capabilities.answer_context import Answer, AnswerContext
from proposals.agents.capabilities.capability import Missing, capability
from proposals.agents.capabilities.common import Words, get, how, unknown_facts
from proposals.agents.capabilities.explaining import (
    FIGURES,
    basis,
    breakdown,
    explain,
    figure_key,
    figures_in_text,
    no_profile,
    numbers,
    one_figure,
    unmeasured,
    what_it_contains,
    whole_message,
)
from proposals.agents.tools import ModelTools, RunTools, StepTools
from proposals.agents.tools.steps import Steps


class OneFigure(NoArguments):
    text: Words = ""


@capability(
    "Configuration of the run",
    "What configuration did this run use?",
    "Summarise the setup: model, chips, mesh and batch.",
    "Which remat policy and optimizer are set?",
    "How many devices and hosts took part?",
)
def configuration(ctx: AnswerContext, given: NoArguments) -> Answer:
    """Configuration of the run: chips, mesh, model, batch, sequence length, precision, optimizer, remat, flags."""
    data = yield from get(ctx, RunTools.run)
    hardware, training = ctx.bench.config.hardware, data.configuration.get("training", {})
    model = data.configuration.get("model")
    slices = f" in {hardware.slices} slices" if hardware.slices > 1 else ""
    yield from ctx.say(f"`{data.mesh_text}` on {data.chips:,} {hardware.chip} chips{slices}.")
    items = []
    if model:
        shape = f", {model['layers']} layers, d_model {model['d_model']:,}" if model.get("layers") else ""
        items.append(f"model: {model.get('name') or 'custom model'}{shape}")
    for key in (
        "global_batch", "seq_len", "precision", "optimizer", "weight_sharding", "remat", "grad_accum", "micro_batch",
    ):  # fmt: skip
        value = training.get(key)
        if value is not None:
            items.append(
                f"{facts.setting(key)}: {value:,}" if isinstance(value, int) else f"{facts.setting(key)}: {value}"
            )
    items.append(f"XLA flags set: {listed([f'`{flag}`' for flag in training.get('xla_flags') or ()]) or 'none'}")
    yield from ctx.bullets(items)
    yield from unknown_facts(ctx, data.not_known)


@capability(
    "Step time",
    "How long does one step take?",
    "What is the step time and how much does it vary from step to step?",
    "How many seconds per iteration?",
    "Is the step time stable?",
)
def step_time(ctx: AnswerContext, given: NoArguments) -> Answer:
    """Measured time of a training step, its spread over the recorded steps, and how many were recorded."""
    kpis = yield from get(ctx, RunTools.kpis)
    data = yield from get(ctx, RunTools.run)
    step = kpis.step_time_s
    if not step:
        why = kpis.not_measured.get("step_time_s", "not reported")
        yield from ctx.say(f"The step time was not measured: {why}.")
        return
    yield from ctx.say(f"**{words.time(step, how(ctx))}** per step, {how(ctx)}.")
    steps = yield from get(ctx, StepTools.steps)
    count = steps.recorded_steps or data.profile.steps
    if steps.median_s:
        yield from ctx.more(
            f"Over {count:,} recorded steps: median {words.time(steps.median_s)}, from "
            f"{words.time(steps.shortest_s)} to {words.time(steps.longest_s)}, standard deviation "
            f"{words.time(steps.standard_deviation_s)} ({words.share(steps.standard_deviation_share)}), "
            f"standard error of the mean {words.time(steps.standard_error_s)}."
        )
        times = ", ".join(words.time(item.time_s) for item in steps.first)
        yield from ctx.say(f"{'Steps' if count <= len(steps.first) else 'The first steps'}, in order: {times}.")
        yield from _settling(ctx, steps)
    elif kpis.step_time_min_s and kpis.step_time_max_s:
        longest = words.time(kpis.step_time_max_s)
        yield from ctx.more(f"The shortest step took {words.time(kpis.step_time_min_s)}, the longest {longest}.")
    elif count:
        yield from ctx.say(f"{count:,} {'step was' if count == 1 else 'steps were'} recorded.")


#: Spread, standard deviation over mean, from which a mean alone says little.
SPREADS = 0.05


def _settling(ctx: AnswerContext, steps: Steps) -> Answer:
    """Whether the steps settle, which number to report, and whether the verdict depends on the slow ones."""
    if steps.trend == "falling":
        yield from ctx.say(
            "Each step was shorter than the one before, as in a warm-up; the cause was not recorded. Without the "
            f"first, the mean is {words.time(steps.mean_excluding_first_s)}: report steady steps after a warm-up, "
            "with their number and spread, from a longer recording."
        )
    elif steps.standard_deviation_share > SPREADS:
        yield from ctx.say(
            "The steps vary so much that the median is more informative than the mean; record more of them."
        )
    if steps.idle_share_of_the_shortest is not None and steps.standard_deviation_share > SPREADS:
        yield from ctx.say(
            f"Busy time is {words.time(steps.busy_s)}: idle is {words.share(steps.idle_share)} of the mean "
            f"step, and would be {words.share(steps.idle_share_of_the_shortest)} of the shortest."
        )


@capability(
    "Key figures of the step",
    "Show me the KPIs of this run.",
    "What are the duty cycle and the HBM bandwidth utilisation?",
    "How busy are the chips?",
    "What is the goodput?",
)
def kpis(ctx: AnswerContext, given: NoArguments) -> Answer:
    """Measured shares of the step: duty cycle, communication, idle, input, HBM and FLOPs utilisation, MFU, goodput."""
    data = yield from get(ctx, RunTools.kpis)
    shares = data.shares
    if data.step_time_s:
        yield from ctx.say(f"A step takes {words.time(data.step_time_s, how(ctx))}, {how(ctx)}.")
    rows = [[name, words.share(shares[key])] for key, name in FIGURES.items() if key in shares]
    yield from ctx.table(["Figure", "Measured"], rows)
    if data.mfu_convention and "mfu" in shares:
        yield from ctx.say(f"MFU here is {data.mfu_convention}.")
    missing = [f"{FIGURES.get(key, key.replace('_', ' '))}: {why}" for key, why in data.not_measured.items()]
    if missing:
        yield from ctx.say("Not measured:")
        yield from ctx.bullets(missing[:6])


@capability(
    "Why the step takes as long as it does",
    "Why is this step slow?",
    "What is the bottleneck?",
    "What limits training speed here: compute, memory bandwidth or communication?",
    "Are we compute bound?",
    "Where does the time go?",
)
def bottleneck(ctx: AnswerContext, given: NoArguments) -> Answer:
    """The verdict on what limits the step, the breakdown of its time by resource, and the costliest findings."""
    verdict = yield from get(ctx, RunTools.bottleneck)
    yield from ctx.say(
        f"**{words.capital(words.bottleneck(verdict))}** is the bottleneck, with "
        f"{words.percent(verdict.confidence_share)} confidence.",
        verdict.statement,
    )
    yield from breakdown(ctx)
    if verdict.contradictions:
        yield from ctx.say("Figures that point elsewhere, and why they do not decide:")
        yield from ctx.bullets(list(verdict.contradictions[:2]))
    findings = yield from get(ctx, RunTools.findings)
    if findings:
        yield from ctx.say("The costliest findings:")
        yield from ctx.bullets([f"{item.title}: {item.insight}" for item in findings[:3]])


@capability(
    "Summary for a manager",
    "Summarise this run for my manager in a few sentences.",
    "Give me an executive summary.",
    "Explain the situation in plain words for someone who is not an ML engineer.",
    "What are the key takeaways?",
)
def summary(ctx: AnswerContext, given: NoArguments) -> Answer:
    """Step time, the bottleneck, the recommended change with its predicted gain and confidence, in a few sentences."""
    verdict = yield from get(ctx, RunTools.bottleneck)
    data = yield from get(ctx, ModelTools.proposals)
    ran, first = data.current, data.proposals[0]
    step = f"One training step takes {words.current_step(ran, how(ctx))} ({how(ctx)}). " if ran.step_time_s else ""
    yield from ctx.say(
        f"{step}It is limited by **{words.bottleneck(verdict)}** "
        f"({words.percent(verdict.confidence_share)} confidence)."
    )
    if first.kind == "keep":
        yield from ctx.say(
            "Recommendation: keep the current configuration; no legal change is predicted to gain more than it costs "
            f"to try ({words.confidence(first)} confidence)."
        )
    elif first.speedup_per_token:
        yield from ctx.say(
            f"Recommendation: proposal {first.number}, {words.configuration(first)}: predicted "
            f"{words.speed(first)}, with {words.confidence(first)} confidence that it "
            f"{words.gains(first)}."
        )
    yield from ctx.say("A trial of a few dozen steps decides it; nothing changes until a reviewer approves a proposal.")


@capability(
    "What the profile does not report",
    "What is missing from this profile?",
    "How good is the quality of the profile?",
    "Which figures could not be measured, and why?",
    "Are there warnings about the trace?",
)
def missing(ctx: AnswerContext, given: NoArguments) -> Answer:
    """Unmeasured figures with reasons, unknown facts, and warnings of the analysis."""
    data = yield from get(ctx, RunTools.run)
    figures = yield from get(ctx, RunTools.kpis)
    items = [f"{FIGURES.get(key, key.replace('_', ' '))}: {why}" for key, why in figures.not_measured.items()]
    items += data.warnings
    if items:
        yield from ctx.bullets(items[:10])
    else:
        yield from ctx.say("Every figure was measured, and the analysis gave no warning.")
    yield from unknown_facts(ctx, data.not_known)


@capability(
    "Where a number comes from",
    "Why is the MFU so low?",
    "How is the duty cycle computed?",
    "Where does this figure come from and how was it calculated?",
    "Explain the number for exposed communication.",
)
def explain_figure(ctx: AnswerContext, given: OneFigure) -> Answer:
    """A figure of the run with its origin (measured, computed or predicted), formula and source."""
    said = whole_message(ctx, given.text)
    named = yield from figures_in_text(ctx, said)
    key = figure_key(said)
    if named.numbers:
        yield from numbers(ctx, named.numbers, named.relations)
        rows = [item for row in named.numbers for item in row.found[:1]]
        if any(item.origin == "predicted" for item in rows) or not rows:
            yield from ctx.say(basis(ctx))
        yield from what_it_contains(ctx, rows)
        yield from unmeasured(ctx, said)
        return
    if key:
        yield from one_figure(ctx, key)
        return
    if named.named:
        yield from ctx.bullets([explain(row) for row in named.named])
        yield from ctx.say(basis(ctx))
        return
    shares = (yield from get(ctx, RunTools.kpis)).shares
    names = [name for key, name in FIGURES.items() if key in shares or key == "step_time_s"]
    raise Missing(
        f"Name a figure: {listed(names, 'or')}.", tuple(f"Where does the {name} come from?" for name in names[:3])
    )


@capability(
    "What to measure next",
    "What should I measure next?",
    "Which profile would make the predictions more certain?",
    "What data do you still need from me?",
    "Should I capture a longer trace?",
)
def measure_next(ctx: AnswerContext, given: NoArguments) -> Answer:
    """Measurements that would narrow the predictions most: missing facts, memory, a profile, a trial of a proposal."""
    data = yield from get(ctx, ModelTools.proposals)
    figures = yield from get(ctx, RunTools.kpis)
    items, unknown, ran, first = [], data.not_known, data.current, data.proposals[0]
    if unknown:
        items.append(f"**{facts.in_words(unknown).capitalize()}**: needs no measurement, and narrows every prediction.")
    if no_profile(ctx):
        items.append(
            "**A profile of the current configuration**: so far, every prediction is calibrated with a step time at "
            "best."
        )
    if first.kind != "keep" and ran.step_time_s:
        items.append(
            f"**A short run of proposal {first.number} with a profile**: predicted {words.step(first)} per step "
            f"against {words.current_step(ran, how(ctx))} {how(ctx)}."
        )
    lacking = figures.not_measured
    memory = [why for key, why in lacking.items() if key in ("memory", "memory_peak_share")]
    items += [f"**Peak memory**: {why}" for why in memory[:1]]
    items += [f"**More steps**: {lacking['step_time_s']}"] if "step_time_s" in lacking else []
    spread, step = figures.step_time_stdev_s, figures.step_time_s
    if spread and step and spread > 0.05 * step:
        items.append(
            f"**The current configuration again**: the standard deviation of the step time is {words.time(spread)}."
        )
    if not items:
        raise ToolError("Nothing decisive is missing: a trial of a proposal is the next measurement.")
    yield from ctx.bullets(items)
    yield from unknown_facts(ctx, unknown)
