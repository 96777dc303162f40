"""How far the proposals can be trusted: confidence, risks, what would change their order, accuracy."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator

from agent.tools import NoArguments, ToolError
from proposals import facts
from proposals.agents import words
from proposals.agents.capabilities import verdict
from proposals.agents.capabilities.answer_context import Answer, AnswerContext
from proposals.agents.capabilities.capability import capability
from proposals.agents.capabilities.common import About, get, name_of, proof, unknown_facts, which, whole
from proposals.agents.capabilities.configured import Configured, predict_arguments
from proposals.agents.capabilities.explaining import figures_in_text, numbers
from proposals.agents.conversation import Said
from proposals.agents.priced import Priced
from proposals.agents.tools import FigureTools, ModelTools, RetrievalTools, RunTools
from proposals.agents.tools.figures import Figures


@capability(
    "Confidence",
    "How sure are you?",
    "How confident are you that it will be faster?",
    "The interval includes 1, is the gain real?",
    "How certain is this prediction, and what could make it wrong?",
    "What is the probability that this gains anything?",
)
def confidence(ctx: AnswerContext, given: Configured) -> Answer:
    """Calibrated probability that a proposal or configuration is faster, its interval, and what raises or lowers it."""
    named = yield from figures_in_text(ctx, ctx.message)
    number = given.proposal or (None if given.named else _proposal_of(named) or 1)
    name, row = yield from _meant(ctx, given, number or 1)
    if row.violations:
        broken = row.violations[0].reason
        raise ToolError(f"{words.capital(name)} is not legal, so there is no gain to be confident of: {broken}")
    if words.keeps(row) or row.kind == "keep":
        yield from ctx.say(
            f"**{words.confidence(row)}** is the probability that keeping the current configuration, "
            f"{words.mesh(row)}, is right: no legal candidate gains enough to justify a change."
        )
    else:
        yield from ctx.say(*_interval(row, name))
        yield from ctx.say(f"**{words.confidence(row)}** is the calibrated probability that {name} {words.gains(row)}.")
    yield from _noise(ctx, row)
    for heading, texts in (("Raises it:", row.raises_confidence), ("Lowers it:", row.lowers_confidence)):
        if texts:
            yield from ctx.say(heading)
            yield from ctx.bullets(list(texts))
    yield from proof(ctx, row)
    yield from ctx.say(
        "It is calibrated on predicted and measured gains of published pairs of runs and of this team's trials. "
        "Proposals are ranked by expected gain minus the cost of a failed run, not by confidence alone."
    )
    yield from _named_shares(ctx)
    yield from unknown_facts(ctx, row.not_known)


def _meant(ctx: AnswerContext, given: Configured, number: int) -> Generator[Said, None, tuple[str, Priced]]:
    """The name of the configuration that is given, else of a proposal, and what is predicted of it."""
    if given.named and given != Configured(proposal=given.proposal):
        configurations = yield from predict_arguments(ctx, given)
        row = yield from get(ctx, ModelTools.predict, **configurations[0])
        return words.configuration(row), row
    return f"proposal {number}", (yield from whole(ctx, number))


def _interval(row: Priced, name: str) -> Iterator[str]:
    """Whether a predicted gain is distinguishable from none, in words."""
    low, high = row.speedup_low80, row.speedup_high80
    if not low or not high or not row.speedup_per_token:
        return
    if low < 1 < high:
        yield (
            f"**Within the prediction error**: {name} is predicted {words.speed(row)}, and the interval "
            "contains 1, so it may be slower: *inconclusive* until measured."
        )
    elif low >= 1:
        yield f"**A gain is expected**: {name} is predicted {words.speed(row)}; the whole interval lies above 1."
    else:
        yield f"**A loss is expected**: {name} is predicted {words.speed(row)}; the whole interval lies below 1."


#: How somebody states how much a measurement varies by itself.
_NOISE = r"noise|jitter|run[- ]to[- ]run|variation|varies|spread|repeatab\w+"
_PERCENT = r"(\d+(?:\.\d+)?)\s?%"
_VARIES = re.compile(
    rf"(?:±|\+-|\+/-|plus[- ]minus)\s?{_PERCENT}|(?:{_NOISE})[^.?!\d]{{0,40}}{_PERCENT}|"
    rf"{_PERCENT}[^.?!\d]{{0,30}}(?:{_NOISE})",
    re.IGNORECASE,
)


def _noise(ctx: AnswerContext, row: Priced) -> Answer:
    """The interval beside the noise that the user states, else beside the spread of the recorded steps."""
    match, speed = _VARIES.search(ctx.message), row.speedup_per_token
    low = row.speedup_low80
    if match is None or not speed or not low or abs(speed - 1) < words.SAME / 10:
        return
    noise = float(next(group for group in match.groups() if group)) / 100
    gain, least = speed - 1, low - 1
    beyond = (
        "even the low end of the interval lies above it, so one pair of runs would show the gain" if least > noise else
        "the estimate lies above it, but the low end of the interval does not: several runs of each are needed" if
        gain > noise else
        "the gain is no larger than it: a single pair of runs could not show it"
    )  # fmt: skip
    yield from ctx.say(
        f"Against your run-to-run noise of {words.share(noise)}: the predicted gain is "
        f"{words.share(gain, 'predicted')}, {words.share(least, 'predicted')} at the low end; {beyond}. Measure both "
        "over the same number of steady steps, alternating them."
    )


def _proposal_of(named: Figures) -> int | None:
    """The proposal whose speed-up or confidence a message gives."""
    for row in named.numbers:
        for item in row.found:
            number = re.search(r"(?:speed-up per token|confidence) of proposal (\d+)$", item.figure)
            if number:
                return int(number[1])
    return None


def _named_shares(ctx: AnswerContext) -> Answer:
    """Percentages and factors of the message that no figure of this run has, beside ours."""
    named = yield from figures_in_text(ctx, ctx.message)
    absent = [row for row in named.numbers if not row.found and row.nearest]
    yield from numbers(ctx, [row for row in absent if row.kind in ("share", "ratio")][:2])


@capability(
    "Risks",
    "What could go wrong with this proposal?",
    "What are the risks and trade-offs?",
    "What is the downside of the recommendation?",
    "Is it safe to try this?",
)
def risks(ctx: AnswerContext, given: Configured) -> Answer:
    """Risks of a proposal or configuration: low end of the interval, memory, trade-offs, failed precedents."""
    name, row = yield from _meant(ctx, given, given.proposal or 1)
    if row.violations:
        raise ToolError(f"{words.capital(name)} is not legal: {row.violations[0].reason}")
    items, low = [], row.speedup_low80
    if low and low < 1 - words.SAME:
        items.append(
            f"**It may be slower**: the 80 % interval extends down to {words.ratio(low)} per token; confidence that "
            f"it {words.gains(row)}: {words.confidence(row)}"
        )
    elif low:
        items.append(f"a loss is unlikely: the low end of the 80 % interval is {words.ratio(low)} per token")
    held, room = row.hbm_per_chip_bytes, row.memory_headroom_bytes
    if held and room is not None:
        tight = "tight" if room < 0.1 * held.capacity else "no risk"
        items.append(f"memory is {tight}: {words.memory(row)} per chip predicted, headroom {words.size(room)}")
    elif row.not_known:
        items.append("memory per chip cannot be predicted while facts are missing")
    items += [*row.trade_offs, *row.lowers_confidence]
    yield from ctx.say(f"{words.capital(name)}, {words.configuration(row)}:")
    yield from ctx.bullets(items)
    if row.number:
        similar_runs = yield from ctx.look(RetrievalTools.similar_runs, proposal=row.number, top=5)
        bad = [
            r for r in (similar_runs.data.records if similar_runs.data else ())
            if r.outcome in ("failed", "slower") and any("move" in w for w in r.why)
        ]  # fmt: skip
        if bad:
            yield from ctx.say(
                f"A similar change did not pay off: record `{bad[0].id}`, "
                f"{words.lower_first(bad[0].effect.rstrip('.'))}."
            )
    yield from ctx.say(
        "To limit the risk, compile it ahead of time, which shows its memory without using a chip; then run a few "
        "dozen steps."
    )


@capability(
    "Check the recommendation",
    "Do you still stand by your recommendation?",
    "Are you sticking with proposal 1?",
    "You are wrong about the first proposal.",
    "If I add nothing more, is it still the same?",
)
def stand(ctx: AnswerContext, given: NoArguments) -> Answer:
    """Re-evaluates proposal 1 against the others and its neighbours under the conversation's constraints and facts."""
    data = yield from get(ctx, ModelTools.proposals)
    first, *others = data.proposals
    own = f"proposal {first.number}"
    told = data.stated_by_user or data.fixed_by_user
    better = [row for row in others if verdict.case(first, row) == "better"] if first.kind != "keep" else []
    if better:
        best = max(better, key=lambda row: row.gain)
        yield from ctx.say(
            f"**Only because it is cheaper to try**: {words.title(first)} leads because the ranking also weighs the "
            f"cost of a trial; by gain and confidence {name_of(best)} is ahead."
        )
    else:
        why = "what you stated is included" if told else "no fact was added, so no number changed"
        yield from ctx.say(f"**Yes**: {words.title(first)} is still ranked first; {why}.")
    yield from ctx.more(
        f"Keeping it is right with {words.confidence(first)} confidence."
        if first.kind == "keep"
        else f"Predicted {words.speed(first)}, confidence {words.sure(first)}."
    )
    if others:
        row = max(others, key=lambda item: item.gain)
        yield from ctx.say(*list(verdict.argued(f"proposal {row.number}", row, own, first))[:1])
    yield from _neighbours(ctx, first.number)
    if data.not_known:
        yield from ctx.say(f"Still unknown: {facts.in_words(data.not_known)}.")


@capability(
    "What would change the recommendation",
    "What would change your mind?",
    "Which measurement would make you pick another proposal?",
    "What would it take for proposal 2 to be the better one?",
    "How sensitive is the ranking?",
    "At what step time is proposal 1 not worth it?",
)
def change_mind(ctx: AnswerContext, given: NoArguments) -> Answer:
    """Values at which the ranking would change: step times, missing facts, memory, neighbours."""
    data = yield from get(ctx, ModelTools.proposals)
    rows, first, unknown = data.proposals, data.proposals[0], data.not_known
    own, items = f"proposal {first.number}", []
    now, time = data.current.step_time_s, first.step_time_s
    if first.kind != "keep" and now and time:
        inside = f"; its interval reaches {words.time(time.high80, 'predicted')}" if time.high80 > now else ""
        items.append(f"**its measurement**: at {words.time(now)} per step or more {own} gains nothing{inside}")
    items += [text for row in rows[1:3] if (text := verdict.turns(f"proposal {row.number}", row, own, first))]
    if unknown:
        items.append(f"**a missing fact**: {facts.in_words(unknown)}")
    if first.hbm_per_chip_bytes:
        items.append(f"**memory**: it is predicted to need {words.memory(first)} per chip; less than that rules it out")
    yield from ctx.bullets(items)
    yield from _neighbours(ctx, first.number)
    yield from unknown_facts(ctx, unknown)


@capability(
    "Sensitivity around a configuration",
    "What lies one step away from this proposal?",
    "Show the neighbouring configurations.",
    "Which axis matters most around this point?",
    "How far is this from the optimum?",
)
def neighbours(ctx: AnswerContext, given: About) -> Answer:
    """Neighbouring configurations of a proposal: one axis doubled against another, batch, remat policy; time and
    legality of each."""
    number = which(ctx, given)
    data = yield from get(ctx, ModelTools.sensitivity, number=number)
    lines = [
        [words.step_text(r), words.ratio(r.speedup_over_this) if r.speedup_over_this else "–",
         words.size(r.hbm_total_bytes) if r.hbm_total_bytes else "–",
         f"no: {words.rule(r.rule)}" if r.rule else "yes"]
        for r in data.neighbours[:12]
    ]  # fmt: skip
    if not lines:
        raise ToolError("No neighbouring configuration can be priced.")
    yield from ctx.say(f"Around proposal {number}, {words.mesh(data.of)}:")
    yield from ctx.table(["Step", f"Speed over proposal {number}, predicted", "Memory per chip", "Legal"], lines)


@capability(
    "Accuracy of the predictions",
    "How accurate are your predictions?",
    "How far off is the performance model usually?",
    "Can I trust these numbers?",
    "Has the model been validated on this chip?",
)
def accuracy(ctx: AnswerContext, given: NoArguments) -> Answer:
    """The intervals and confidences of the proposals, what widens them, and where measured errors are published."""
    data = yield from get(ctx, ModelTools.proposals)
    rows, unknown = data.proposals, data.not_known
    errors = yield from get(ctx, FigureTools.figures, text="median error of the performance model on held-out runs")
    error = next((row for row in errors.named if row.place == "accuracy"), None)
    if error:
        runs = next((f" over {item['value']} {item['name']}" for item in error.inputs), "")
        yield from ctx.say(
            f"**{error.text}** is the median error of a predicted step time{runs} as far from the fit as this one: "
            f"{error.counted}."
        )
    alone = yield from get(ctx, FigureTools.figures, text="step time that the performance model alone predicts")
    own = next((row for row in alone.named if "model alone" in row.figure), None)
    kpis = yield from get(ctx, RunTools.kpis)
    if own and kpis.step_time_s:
        yield from ctx.say(
            f"For this run, the model alone predicts {own.text} against {words.time(kpis.step_time_s)} measured; "
            "proposals are scaled to the measured step, so only the change between two configurations is predicted."
        )
    lines = [
        [str(r.number), words.step(r), words.gain(r), words.span(r), words.confidence(r)]
        for r in rows
        if r.speedup_low80
    ]
    yield from ctx.say("Each prediction has an 80 % interval, and a confidence fitted on measured pairs of runs:")
    if lines:
        head = ["Proposal", "Step, predicted", "Per token, predicted", "80 % interval", "Confidence"]
        yield from ctx.table(head, lines)
    yield from ctx.say(
        f"The intervals are wide because {facts.not_known(unknown)}." if unknown
        else "Model, batch and sequence length are known: every term is computed, then calibrated on this run."
    )  # fmt: skip
    row = yield from whole(ctx, rows[0].number or 1)
    if row.lowers_confidence:
        yield from ctx.say("What lowers the confidence of proposal 1:")
        yield from ctx.bullets(list(row.lowers_confidence))
    yield from ctx.say("Errors by chip, model and kind of run are published on the accuracy page.")


def _neighbours(ctx: AnswerContext, number: int | None) -> Answer:
    around = yield from get(ctx, ModelTools.sensitivity, number=number)
    near = [(each.speedup_over_this, each) for each in around.neighbours if not each.rule and each.speedup_over_this]
    if near:
        gain, best = max(near, key=lambda item: item[0])
        if gain > 1 + words.SAME:
            yield from ctx.say(
                f"The neighbour {words.step_text(best)} is predicted at {words.ratio(gain)} the "
                f"speed of proposal {number}, so it is the next to try."
            )
        else:
            yield from ctx.say("No legal neighbouring configuration is predicted to be faster.")
