"""Sentences about figures: what a number is, how it was computed, and how it compares with a stated one."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence

from experiments.step_profile import MODEL, PROFILE
from formatting import listed, plain
from proposals.agents import words
from proposals.agents.capabilities.answer_context import Answer, AnswerContext
from proposals.agents.capabilities.common import get, how
from proposals.agents.conversation import Said
from proposals.agents.diagnosed import EvidenceRow
from proposals.agents.figures import numbers_in_text
from proposals.agents.tools import FigureTools, OpTools, RunTools, StepTools
from proposals.agents.tools.figures import FigureFound, Figures, NumberFound

FIGURES = {
    "step_time_s": "step time", "mfu": "MFU", "flops_utilization": "FLOPs utilisation",
    "hbm_utilization": "HBM bandwidth utilisation", "mxu_utilization": "MXU utilisation", "duty_cycle": "duty cycle",
    "communication": "communication", "communication_exposed": "exposed communication", "idle": "idle",
    "input": "input", "host": "host", "goodput": "goodput", "stragglers": "stragglers",
    "memory_peak_share": "peak memory", "memory": "peak memory",
}  # fmt: skip


#: Figures with one number that are named beside the likeliest.
ALSO = 2


def whole_message(ctx: AnswerContext, text: str) -> str:
    """The message that a form's text was read in, so that no number of its other sentences is lost; else the text."""
    return ctx.message if text and " ".join(text.split()) in " ".join(ctx.message.split()) else text


def figures_in_text(ctx: AnswerContext, text: str) -> Generator[Said, None, Figures]:
    """Which figures a text means; empty where it says nothing."""
    if not text.strip():
        return Figures()
    return (yield from get(ctx, FigureTools.figures, text=text[:600]))


def explain(row: FigureFound) -> str:
    """A figure in a sentence or two."""
    origin = {"sourced": "stated, not measured"}.get(row.origin, row.origin)
    said = f"**{row.text}**: {words.lower_first(row.figure)} ({row.place}), {origin}"
    if row.counted:
        said += f", {words.lower_first(row.counted.rstrip('.'))}"
    if row.formula:
        said += f". Computed as {_first_line(row.formula)}"
    if row.inputs:
        said += f", with {listed([_input(**item) for item in row.inputs])}"
    return f"{said}."


def _input(name: str = "", value: str = "") -> str:
    return f"{words.lower_first(name)} {value}"


def _first_line(text: str) -> str:
    return words.lower_first(text.strip().splitlines()[0].rstrip("."))


def numbers(ctx: AnswerContext, rows: Sequence[NumberFound], relations: Sequence[str] = ()) -> Answer:
    """The numbers of a message, each as the figure that it is, or as one that this run does not have."""
    items, told = [], set()
    for row in rows:
        if row.found:
            first, *others = row.found
            if (first.figure, first.text) in told:
                continue
            told.add((first.figure, first.text))
            also = [words.lower_first(item.figure) for item in others[:ALSO]]
            tail = f" The same value: {listed(also)}." if also else ""
            items.append(explain(first) + tail)
        else:
            items.append(_absent(row))
    yield from ctx.bullets(items)
    yield from ctx.say(*(words.capital(text) for text in relations))


#: Areas and capabilities whose answers are about figures of the run; elsewhere a number is a value to compute with.
EXPLAINED = frozenset(
    ("ops", "communication", "run", "memory", "findings", "judging", "mfu", "throughput", "model_size")
)


def left_over(ctx: AnswerContext) -> Answer:
    """The figures that the message names by their numbers and that the answer has not taken up."""
    if not numbers_in_text(ctx.message):
        return
    named = yield from figures_in_text(ctx, ctx.message)
    # A number that was not found may be on a page that is not searched: it is not mentioned here.
    rows = [row for row in named.numbers if row.kind != "bare" and row.found and row.found[0].text not in ctx.text]
    if rows:
        yield from ctx.say("Numbers in your message:")
        yield from numbers(ctx, rows, named.relations)


def _absent(row: NumberFound) -> str:
    near, times = row.nearest, row.times_the_nearest
    if row.follows:
        return f"{row.said}: it follows from the other figures, {row.follows}."
    if near is None:
        return f"{row.said}: not found among this run's figures, so it is taken as yours."
    beside = f", {plain(times, 'speedup')} the nearest" if times and (times >= 1.02 or times <= 0.98) else ""
    return (
        f"{row.said}: not found among this run's figures{beside}. The nearest in this unit: "
        f"{words.lower_first(near.figure)} **{near.text}** ({near.origin}, {near.place})."
    )


def basis(ctx: AnswerContext) -> str:
    """Basis of this run's numbers, if that is not a complete profile of all its chips."""
    profile = ctx.bench.profile
    if profile.basis == MODEL:
        return (
            "Nothing was measured: all of this is predicted by the performance model; only a profile would settle it."
        )
    if profile.basis != PROFILE:
        return (
            "Only the step time was measured; its parts are predicted by the performance model and scaled to it. A "
            "profile of this configuration would settle it."
        )
    return ""


def recorded(ctx: AnswerContext) -> Generator[Said, None, str]:
    """That only a part of the chips was recorded, in a sentence; empty where all were."""
    steps = yield from get(ctx, StepTools.steps)
    cores, chips = steps.recorded_cores, steps.chips
    if ctx.bench.profile.basis != PROFILE or not cores or not chips or cores >= chips:
        return ""
    return (
        f"Only {cores:,} of {chips:,} chips were recorded: statements about cores, stragglers and waiting hold for "
        "these alone, and time in collectives includes waiting for the others."
    )


def breakdown(ctx: AnswerContext) -> Answer:
    """Where the time of a step goes, by resource."""
    data = yield from get(ctx, RunTools.kpis)
    shares, seconds = data.breakdown_share, data.breakdown_s
    parts = sorted((part for part, value in shares.items() if value >= 0.002), key=lambda part: -shares[part])
    if not parts:
        return
    name = {part: words.part_name(part) for part in parts}
    how = "predicted, not measured" if data.breakdown_origin else "measured"
    yield from ctx.say(f"Where the time of a step goes, {how}:")
    if seconds:
        rows = [[name[p], words.time(seconds[p]), words.share(shares[p])] for p in parts]
        yield from ctx.table(["Part", "Time per step", "Share"], rows)
    else:
        yield from ctx.table(["Part", "Share of device time"], [[name[p], words.share(shares[p])] for p in parts])


def predicted_instead(ctx: AnswerContext, error: str) -> Answer:
    """In the place of what no profile measured: that it is so, and the predicted breakdown."""
    yield from ctx.say(f"{error.partition(';')[0].removesuffix('.')}.")
    yield from breakdown(ctx)


def no_profile(ctx: AnswerContext) -> bool:
    return ctx.bench.profile.basis != PROFILE


def figure_key(text: str) -> str:
    """The key of the key figure that a text names; empty where it names none."""
    lower = text.lower().replace("utilization", "utilisation")
    key = next((key for key, name in FIGURES.items() if key in lower or name.lower() in lower), "")
    return key or ("communication_exposed" if "exposed" in lower else "")


#: What a part of the breakdown includes besides the time of its ops.
CONTENTS = {
    "other": "Other is the remainder: ops that are neither matmuls nor bound by HBM bandwidth nor collectives, and "
    "what the performance model leaves unexplained",
    "idle": "Idle is the time in which no op ran: gaps between ops, and what a predicted step adds for pipeline "
    "bubbles and launches",
    "hbm-bound": "HBM-bound is the time of ops whose arithmetic intensity lies below the ridge point: their bytes, not "
    "their FLOPs, set it",
    "compute": "Compute is the time of ops above the ridge point, matmuls above all",
}


def what_it_contains(ctx: AnswerContext, rows: Sequence[FigureFound]) -> Answer:
    """The longest ops of a part of the step, if a profile lists them; else what the part includes."""
    for row in rows:
        if row.place == "collectives" and row.of:
            data = yield from get(ctx, RunTools.collectives, axis=row.of[0] if row.of[0] != "not matched" else "")
            ops = [op for each in data.rows if each.kind == row.of[-1] for op in each.ops]
            if ops:
                yield from ctx.say(f"Its ops: {listed([f'`{op}`' for op in ops[:5]])}.")
            return
        if not row.field.startswith("term-"):
            continue
        part = row.field.removeprefix("term-")
        name = words.part_name(part)
        if name.lower() in CONTENTS:
            yield from ctx.say(f"{CONTENTS[name.lower()]}.")
        resource = {"compute": "compute", "hbm": "hbm", "other": "other", "dcn": "dcn"}.get(part)
        if resource and not no_profile(ctx):
            found = yield from get(ctx, OpTools.ops, resource=resource, top=5)
            items = [f"`{op.name}` {words.time(op.time_s)}" for op in found.rows if op.time_s]
            if items:
                yield from ctx.say(f"Its longest ops: {listed(items)}.")
        return


def unmeasured(ctx: AnswerContext, text: str) -> Answer:
    """Key figures that a message names and that were not measured, with the reason."""
    data = yield from get(ctx, RunTools.kpis)
    lower = text.lower()
    for key, why in data.not_measured.items():
        name = FIGURES.get(key, "")
        if name and set(name.lower().split()) & set(re.findall(r"\w+", lower)):
            yield from ctx.say(f"{words.capital(name)} was not measured: {why.rstrip('.')}.")


def one_figure(ctx: AnswerContext, key: str) -> Answer:
    """A key figure with how it is computed, the evidence that holds it, and for utilisations what keeps them low."""
    data = yield from get(ctx, RunTools.kpis)
    value = data.step_time_s if key == "step_time_s" else data.shares.get(key)
    if value is None:
        why = data.not_measured.get(key, "it is not reported")
        yield from ctx.say(f"{words.capital(FIGURES[key])} was not measured: {why}.")
        return
    shown = words.time(value) if key == "step_time_s" else words.share(value)
    origin = how(ctx) if key == "step_time_s" or no_profile(ctx) else "measured"
    yield from ctx.say(f"{words.capital(FIGURES[key])} is **{shown}**, {origin}.")
    figures = yield from get(ctx, FigureTools.figures, text=FIGURES[key])
    formula = next((item.formula for item in figures.named if item.field == f"kpi-{key}"), "")
    if formula:
        yield from ctx.more(f"Computed as {_first_line(formula)}.")
    if key == "mfu":
        yield from ctx.say(f"It is {data.mfu_convention}.")
    verdict = yield from get(ctx, RunTools.bottleneck)
    findings = yield from get(ctx, RunTools.findings)
    rows = [*verdict.evidence, *(each for item in findings for each in item.evidence)]
    stem = FIGURES[key].split()[0].lower()
    lines = [_evidence(row) for row in rows if stem in row.label.lower() and words.evidence_text(row)]
    if lines:
        yield from ctx.say("Evidence from the diagnosis:")
        yield from ctx.bullets(list(dict.fromkeys(lines))[:4])
    if key in ("mfu", "flops_utilization"):
        yield from ctx.say("It is limited by where the rest of the step goes:")
        yield from breakdown(ctx)


def _evidence(row: EvidenceRow) -> str:
    how = f", computed as {row.formula}" if row.formula else ""
    return f"{row.label}: {words.evidence_text(row)} ({row.origin}{how})"
