"""Throughput and what it costs: tokens per second, MFU beside others', dollars, hours."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from agent.tools import Arguments, NoArguments
from formatting import large, listed, plain, significant
from proposals.agents import amounts, words
from proposals.agents.amounts import Amounts
from proposals.agents.capabilities.answer_context import Answer, AnswerContext
from proposals.agents.capabilities.capability import Capability, Missing, capability, command, registry
from proposals.agents.capabilities.common import Chips, Numbers, get, how, unknown_facts
from proposals.agents.conversation import Said
from proposals.agents.tools import EconomicsTools, MachineTools, WhatIfTools
from proposals.agents.tools.economics import Costs, Deadline, PredictedMfu, Spent
from proposals.agents.words import chip_hours, days

Price = Annotated[float | None, Field(gt=0, le=1e4, description="USD per chip-hour.")]
Tokens = Annotated[float | None, Field(gt=0, le=1e18, description="Tokens of the whole run, such as 1e12.")]


class Duration(Arguments):
    """How much is to be trained; the words of the message are read for what is left out."""

    tokens: Tokens = None
    steps: Annotated[float | None, Field(gt=0, le=1e12, description="Remaining steps at the current batch.")] = None
    days: Annotated[float | None, Field(gt=0, le=1e5, description="Deadline in days.")] = None
    chips: Chips = None
    proposals: Numbers = ()


class Spending(Duration):
    usd_per_chip_hour: Price = None


@capability(
    "Throughput",
    "How many tokens per second do we process?",
    "What is the throughput per chip?",
    "Tokens/s/GPU?",
    "How many samples or sequences per second?",
)
def throughput(ctx: AnswerContext, given: NoArguments) -> Answer:
    """Tokens per second of the current configuration, total and per chip."""
    data = yield from get(ctx, EconomicsTools.throughput)
    step, each = words.time(data.step_time_s or 0.0), data.tokens_per_s_per_chip
    if not data.tokens_per_s or not each:
        if data.steps_per_s:
            yield from ctx.say(f"{significant(data.steps_per_s)} steps/s, {step} each.")
        yield from ctx.say("Tokens per second cannot be computed: the tokens per step or the step time are unknown.")
        yield from unknown_facts(ctx, [name for name in data.not_known if name != "model"])
        return
    yield from ctx.say(
        f"**{each:,.0f} tokens/s per chip**, {data.tokens_per_s:,.0f} tokens/s on {data.chips:,} chips: "
        f"{data.tokens_per_step:,} tokens per step of {step}, measured."
    )


@capability(
    "MFU, and published MFU",
    "What is my MFU?",
    "What MFU do others get on this chip?",
    "Is this MFU good compared with published runs?",
    "What is the hardware FLOPs utilisation (HFU)?",
    "What is a realistic utilisation target?",
)
def mfu(ctx: AnswerContext, given: NoArguments) -> Answer:
    """MFU and HFU of this run, with the convention, compared with published runs on the same chip."""
    data = yield from get(ctx, EconomicsTools.throughput)
    if data.mfu is not None:
        yield from ctx.say(f"MFU is **{words.share(data.mfu)}** for the current configuration.")
        if data.model_flops_per_s_per_chip:
            yield from ctx.more(f"That is {words.flops(data.model_flops_per_s_per_chip)} per chip.")
    else:
        yield from ctx.say(f"MFU was not measured: {data.not_measured.get('mfu', 'it is not reported')}.")
    if data.flops_utilization is not None:
        yield from ctx.more(
            f"All FLOPs that ran, recompute included (HFU), reach {words.share(data.flops_utilization)} of peak."
        )
    if data.mfu_convention:
        yield from ctx.say(f"MFU is {data.mfu_convention}.")
    yield from ctx.bullets([_predicted_mfu(row) for row in data.proposals])
    others = data.published
    if not others.rows:
        yield from ctx.say(f"No published run on {others.chip or 'this chip'} reports enough to compute an MFU.")
    else:
        yield from ctx.say(
            f"Published runs on {others.chip}, under the same convention: median {words.share(others.mfu_median)}, "
            f"from {words.share(others.mfu_lowest)} to {words.share(others.mfu_highest)}."
        )
        yield from ctx.table(
            ["Model", "Chips", "Precision", "Sequence length", "MFU"],
            [[r.model, f"{r.chips:,}", r.precision, f"{r.seq_len:,}", words.share(r.mfu)] for r in others.rows],
        )
    yield from unknown_facts(ctx, [] if data.mfu is not None else data.not_known)


def _predicted_mfu(row: PredictedMfu) -> str:
    text, low, high = words.share(row.mfu, "predicted"), row.mfu_low80, row.mfu_high80
    if low and high:
        text += f" (80 % interval {words.share(low, 'predicted')} to {words.share(high, 'predicted')})"
    return f"proposal {row.number}, predicted: {text}"


@capability(
    "Cost",
    "What does a step cost?",
    "What does it cost per trillion tokens at this price per chip-hour?",
    "How many dollars does the whole run cost?",
    "How much money would the proposals save?",
    "What is the cost per token?",
)
def cost(ctx: AnswerContext, given: Spending) -> Answer:
    """USD per step, per trillion tokens and per run at a price per chip-hour, for the current configuration and each
    proposal."""
    asked = _amounts(ctx, given)
    yield from _cost_answer(ctx, asked, given.proposals)
    if asked.price is None and not _NO_MONEY.search(ctx.message):
        raise Missing(
            "State the price per chip-hour, in any currency, to get the cost.",
            tuple(_follow_up_message(registry()["cost"], asked, usd_per_chip_hour=price) for price in (1.2, 2.7, 4.2)),
        )


@capability(
    "Training time",
    "How long does the whole training take?",
    "How many days to train on so many tokens?",
    "When would a run over one trillion tokens be finished?",
    "How many chip-hours does the run need?",
)
def training_time(ctx: AnswerContext, given: Duration) -> Answer:
    """Days, steps and chip-hours for a number of tokens, for the current configuration and each proposal."""
    asked = _amounts(ctx, given)
    if not asked.tokens and not asked.steps:
        one = registry()["training_time"]
        raise Missing(
            "State the number of tokens or steps.",
            tuple(_follow_up_message(one, asked, tokens=n) for n in (1e11, 1e12, 1.5e13)),
        )
    yield from _cost_answer(ctx, asked, given.proposals)


def in_days(ctx: AnswerContext, given: Duration) -> Generator[Said, None, bool]:
    """How many chips a run in so many days takes, from the form or the messages; False where they do not say."""
    asked = _amounts(ctx, given)
    if not asked.days or not (asked.tokens or asked.steps):
        return False
    values = {"tokens": asked.tokens, "steps": asked.steps, "days": asked.days}
    data = yield from get(
        ctx, EconomicsTools.cost, **{key: value for key, value in values.items() if value is not None}
    )
    if not data.within_days:
        return False
    yield from _chips_for_deadline(ctx, data.within_days, ctx.bench.config.hardware.chips)
    return True


#: Who asks for hours or days does not ask for money.
_NO_MONEY = re.compile(r"\b(?:chip|gpu|tpu|a100|h100|b200)[- ]?h(?:ours?|rs?)?\b|\bdays?\b|\bweeks?\b", re.IGNORECASE)


def _amounts(ctx: AnswerContext, given: Duration) -> Amounts:
    """What the form says, then the message; tokens and price also from what the user wrote before."""
    config = ctx.bench.config
    read = [amounts.read(text, config) for text in ctx.user_messages if ": " not in text[:40] or "=" not in text]
    first = read[0] if read else Amounts()
    priced = next((each for each in read if each.price is not None), first)
    sized = next((each for each in read if each.tokens or each.steps), first)
    price = getattr(given, "usd_per_chip_hour", None)
    own = bool(price) and first.price is None
    return Amounts(
        price=price if own else priced.price,
        currency="$" if own else priced.currency,
        tokens=given.tokens or (sized.tokens if not given.steps else None),
        steps=given.steps or (sized.steps if not given.tokens else None),
        days=given.days or first.days,
        chips=given.chips or first.chips,
    )


def _follow_up_message(of: Capability, named: Amounts, **more: float) -> str:
    """A message that asks for it with one value more."""
    known = {"tokens": named.tokens, "steps": named.steps, "days": named.days, "chips": named.chips}
    values = {name: f"{value:g}" for name, value in {**known, **more}.items() if value and name in of.fields}
    return command(of, values)


def _cost_answer(ctx: AnswerContext, amounts: Amounts, only: tuple[int, ...]) -> Answer:
    """The verdict in words, then a row for the current configuration and each proposal."""
    asked: dict[str, Any] = {
        "price_per_chip_hour": amounts.price, "tokens": amounts.tokens, "steps": amounts.steps, "days": amounts.days,
    }  # fmt: skip
    own, other = ctx.bench.config.hardware.chips, amounts.chips
    reason = ""
    if other and other != own:
        there = yield from ctx.look(WhatIfTools.retarget, chips=other)
        step = there.data.there.step_time_s if there.data else None
        if step:
            asked |= {"chips": other, "step_time_s": step.estimate}
        reason = "" if step else (there.error or "its step time cannot be predicted")
    data = yield from get(ctx, EconomicsTools.cost, **{key: value for key, value in asked.items() if value is not None})
    rows = [row for row in data.rows if not only or not row.number or row.number in only]
    kept = [number for number in only if all(row.number != number for row in rows)]
    money = Money(amounts.currency)
    run = any(row.days_of_the_run for row in rows)
    yield from ctx.say(*_verdict(ctx, data, rows, money))
    yield from _table(ctx, rows, money, run)
    if kept:
        named = listed([str(number) for number in kept])
        yield from ctx.say(f"Proposal {named} keeps the current configuration or is not priced, so it changes nothing.")
    if other and other != own:
        best_there = f"The row for {other:,} chips is the best legal mesh there, predicted."
        yield from ctx.say(f"On {other:,} chips: {reason}" if reason else best_there)
    if data.within_days:
        yield from _chips_for_deadline(ctx, data.within_days, own)
    elif amounts.days and not run:
        yield from ctx.say("The number of chips for that time depends on the tokens or steps of the run; state them.")
    if run:
        each = data.one_percent_of_the_run
        worth = (
            chip_hours(each.chip_hours_of_the_run or 0.0)
            if each.cost_of_the_run is None
            else money(each.cost_of_the_run)
        )
        yield from ctx.say(
            f"Each 1 % of the step time is worth {worth}. Evaluation, checkpoints, failures and queueing are not "
            "included."
        )
    if data.not_known and not run:
        yield from ctx.say("Nothing can be computed per token: the tokens per step are unknown.")
        yield from unknown_facts(ctx, [name for name in data.not_known if name != "model"])


def _verdict(ctx: AnswerContext, data: Costs, rows: Sequence[Spent], money: Money) -> Iterator[str]:
    """What the current configuration takes, and whether the best of the others saves anything for certain."""
    now = rows[0]
    if data.price_per_chip_hour:
        yield f"At {money.price(data.price_per_chip_hour)} per chip-hour."
    if not data.steps_of_the_run:
        if now.cost_per_step:
            yield f"A step of the current configuration costs **{money(now.cost_per_step)}**."
        else:
            yield f"A step of the current configuration takes {significant(now.chip_hours_per_step)} chip-hours."
    else:
        paid = f", **{money(now.cost_of_the_run)}**" if now.cost_of_the_run else ""
        weeks = now.weeks_of_the_run or 0.0
        shown = f", {significant(weeks, 2)} weeks," if weeks >= 3 else ""
        of = f", {large(data.tokens_of_the_run)} tokens" if data.tokens_of_the_run else ""
        yield (
            f"{data.steps_of_the_run:,.0f} steps{of}: the current configuration "
            f"({words.time(now.step_time_s, how(ctx))} per step, {how(ctx)}) takes "
            f"**{days(now.days_of_the_run or 0.0)}**{shown} and {now.chip_hours_of_the_run:,.0f} chip-hours{paid}."
        )
    saving = [(saved, row) for row in rows if row.number and (saved := _saved(row)[0])]
    if not saving:
        return
    most, best = max(saving, key=lambda item: item[0])
    if most <= 0:
        yield "No proposal is predicted to save anything."
        return
    amount, (low, *_, high) = money if data.price_per_chip_hour else chip_hours, _saved(best)[1]
    sure = (
        "the 80 % interval includes a loss, so it is not certain" if low < 0 else "the whole 80 % interval is a saving"
    )
    yield (
        f"**Proposal {best.number}** is predicted to save the most, {amount(most)} (80 % interval "
        f"{amount(low)} to {amount(high)}): {sure}."
    )


def _saved(row: Spent) -> tuple[float | None, tuple[float, ...]]:
    """What it saves over the run, with the ends of the 80 % interval: money with a price, else chip-hours."""
    if row.saved_cost_of_the_run is not None:
        return row.saved_cost_of_the_run, row.saved_cost_of_the_run_range
    return row.saved_chip_hours_of_the_run, row.saved_chip_hours_of_the_run_range


def _table(ctx: AnswerContext, rows: Sequence[Spent], money: Money, run: bool) -> Answer:
    head = ["Configuration", "Step"]
    head += ["Time (80 % interval)", "Chip-hours", "Cost (80 % interval)", "Saved"] if run else [
        "Chip-hours per step", "Cost per step", "Chip-hours per trillion tokens", "Cost per trillion tokens"
    ]  # fmt: skip
    lines = []
    for row in rows:
        origin = "predicted" if row.is_priced else how(ctx)
        of = f"on {row.chips:,} chips" if row.configuration == "elsewhere" else "current"
        line = [f"{f'proposal {row.number}' if row.number else of}, {origin}", words.time(row.step_time_s, origin)]
        if run:
            saved, shown = _saved(row)[0], chip_hours if row.saved_cost_of_the_run is None else money
            line += [
                _with_range(row.days_of_the_run, row.days_of_the_run_range, days), f"{row.chip_hours_of_the_run:,.0f}",
                _with_range(row.cost_of_the_run, row.cost_of_the_run_range, money),
                shown(saved) if saved is not None else "–",
            ]  # fmt: skip
        else:
            hours = row.chip_hours_per_trillion_tokens
            line += [
                significant(row.chip_hours_per_step), money(row.cost_per_step), f"{hours:,.0f}" if hours else "–",
                _with_range(row.cost_per_trillion_tokens, row.cost_per_trillion_tokens_range, money),
            ]  # fmt: skip
        lines.append(line)
    yield from ctx.table(head, lines)


def _with_range(value: float | None, ends: tuple[float, ...], shown: Callable[[float], str]) -> str:
    if value is None:
        return "–"
    return shown(value) + (f" ({shown(ends[0])} to {shown(ends[-1])})" if ends else "")


def _chips_for_deadline(ctx: AnswerContext, by: Deadline, own: int) -> Answer:
    """The number of chips for a run in so many days: at equal efficiency, and by prediction."""
    yield from ctx.say(
        f"Finishing in {days(by.days)} needs {plain(by.throughput_needed_over_now, 'speedup')} the current "
        f"throughput: at equal efficiency **{by.whole_chips:,} chips** instead of {own:,}, or "
        f"{words.time(by.step_time_needed_s)} per step at this batch."
    )
    counts = yield from ctx.look(WhatIfTools.chip_counts, step_time_s=by.step_time_needed_s)
    if counts.data is None:
        yield from ctx.say(
            f"How this scales to more chips is not predicted here: {words.lower_first(counts.error)} Communication "
            "grows with the number of chips, so take this as the minimum."
        )
        return
    rows = [row for row in counts.data.rows if row.fits and row.step_time_s and row.chips >= own]
    reached = counts.data.reached_with_chips
    yield from ctx.say(
        f"{reached:,} chips, the next power of two tried, are predicted to reach it on their best legal mesh."
        if reached
        else "No power of two tried is predicted to reach it at this batch; the batch would have to grow with the "
        "number of chips."
    )
    lines = [[f"{row.chips:,}", words.mesh(row), words.estimate(row)] for row in rows[-5:]]
    if lines:
        yield from ctx.table(["Chips", "Best mesh", "Step, predicted"], lines)


@dataclass(frozen=True)
class Money:
    """Shows amounts in the currency that was stated."""

    sign: str

    def __call__(self, value: float | None) -> str:
        if value is None:
            return "–"
        amount = f"{abs(value):,.0f}" if abs(value) >= 100 else f"{abs(value):.3g}"
        return f"{'−' if value < 0 else ''}{self.sign}{amount}"

    def price(self, value: float) -> str:
        return f"{self.sign}{value:g}"


@capability(
    "Size of the model",
    "How many parameters does the model have?",
    "Estimate the model size from the FLOPs.",
    "How many FLOPs per token or per step?",
    "Which model could this be?",
)
def model_size(ctx: AnswerContext, given: NoArguments) -> Answer:
    """Parameters and FLOPs per token of the model, or what the measured FLOPs of a step suggest."""
    data = yield from get(ctx, MachineTools.model_size)
    if data.parameters:
        each = f", {plain(data.flops_per_token, 'flops')} per token" if data.flops_per_token else ""
        yield from ctx.say(
            f"{data.model or 'The model'}: **{large(data.parameters)} parameters**{each}, computed from its shape."
        )
    if data.flops_per_step_measured:
        yield from ctx.say(f"A step executes {plain(data.flops_per_step_measured, 'flops')} on all chips, measured.")
    if data.parameters_estimated_from_flops:
        yield from ctx.say(
            f"At 6 FLOPs per parameter and token, this implies {large(data.parameters_estimated_from_flops)} "
            "active parameters; attention scores and recompute are included, so it is an upper bound."
        )
    elif not data.parameters:
        yield from ctx.say(
            "The size of the model cannot be estimated: neither its shape nor both FLOPs and tokens per step are known."
        )
    yield from unknown_facts(ctx, data.not_known)
