"""Throughput and what it costs: tokens per second, MFU beside others', dollars, hours."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agent.tools import Arguments, NoArguments, ToolError
from proposals.agents import words
from proposals.agents.capabilities.capability import Missing, capability, command, registry
from proposals.agents.capabilities.common import get, how, unknown_facts
from proposals.agents.capabilities.desk import Answer, Desk

Price = Annotated[float | None, Field(gt=0, le=1e4, description="US dollars per chip and hour.")]
Tokens = Annotated[float | None, Field(gt=0, le=1e18, description="Tokens of the whole run, such as 1e12.")]


class Spending(Arguments):
    usd_per_chip_hour: Price = None
    tokens: Tokens = None


@capability(
    "Throughput",
    "How many tokens per second do we process?",
    "What is the throughput per chip?",
    "Tokens/s/GPU?",
    "How many samples or sequences per second?",
)
def throughput(desk: Desk, given: NoArguments) -> Answer:
    """Tokens per second, in all and per chip, of the current configuration."""
    data = yield from get(desk, "throughput")
    if not data.get("tokens_per_s"):
        yield from desk.say("Tokens per second cannot be computed: the tokens of a step or its time are not known.")
        yield from unknown_facts(desk, [name for name in data.get("not_known", ()) if name != "model"])
        return
    yield from desk.say(
        f"**{data['tokens_per_s_per_chip']:,.0f} tokens/s per chip**, {data['tokens_per_s']:,.0f} tokens/s on "
        f"{data['chips']:,} "
        f"chips: {data['tokens_per_step']:,} tokens per step of {words.time(data['step_time_s'])}, measured."
    )


@capability(
    "MFU, and what others reach",
    "What is my MFU?",
    "What MFU do others get on this chip?",
    "Is this MFU good compared with published runs?",
    "What is the hardware FLOPs utilisation (HFU)?",
    "What is a realistic utilisation target?",
)
def mfu(desk: Desk, given: NoArguments) -> Answer:
    """MFU and hardware FLOPs utilisation of the run, with the convention, beside published runs on the same chip."""
    data = yield from get(desk, "throughput")
    if data.get("mfu") is not None:
        yield from desk.say(f"MFU is **{words.share(data['mfu'])}**.")
    else:
        why = (data.get("not_measured") or {}).get("mfu", "it is not reported")
        yield from desk.say(f"MFU was not measured: {why}.")
    if data.get("flops_utilization") is not None:
        yield from desk.more(
            f"All FLOPs that ran, recompute included (HFU), reach {words.share(data['flops_utilization'])} of peak."
        )
    if data.get("mfu_convention"):
        yield from desk.say(f"MFU is {data['mfu_convention']}.")
    others = data.get("published") or {}
    if not others.get("rows"):
        yield from desk.say(f"No published run on {others.get('chip', 'this chip')} says enough for an MFU.")
    else:
        yield from desk.say(
            f"Published runs on {others['chip']}, under the same convention: median "
            f"{words.share(others['mfu_median'])}, from "
            f"{words.share(others['mfu_lowest'])} to {words.share(others['mfu_highest'])}."
        )
        yield from desk.table(
            ["Model", "Chips", "Precision", "Sequence length", "MFU"],
            [
                [str(r["model"]), f"{r['chips']:,}", r["precision"], f"{r['seq_len']:,}", words.share(r["mfu"])]
                for r in others["rows"]
            ],
        )
    lacking = [] if data.get("mfu") is not None else data.get("not_known", ())
    yield from unknown_facts(desk, lacking)


@capability(
    "Cost",
    "What does a step cost?",
    "What does it cost per trillion tokens at this price per chip-hour?",
    "How many dollars does the whole run cost?",
    "How much money would the proposals save?",
    "What is the cost per token?",
)
def cost(desk: Desk, given: Spending) -> Answer:
    """Dollars per step, per trillion tokens and per run at a price per chip-hour, now and with each proposal."""
    if not given.usd_per_chip_hour:
        one, rest = registry()["cost"], {"tokens": given.tokens} if given.tokens else {}
        raise Missing(
            "Say the price per chip-hour in US dollars.",
            tuple(command(one, {"usd_per_chip_hour": price, **rest}) for price in (1.2, 2.7, 4.2)),
        )
    data = yield from get(desk, "cost", usd_per_chip_hour=given.usd_per_chip_hour, tokens=given.tokens)
    yield from desk.say(f"At ${given.usd_per_chip_hour:g} per chip-hour:")
    lines = [
        [
            f"proposal {row['number']}, predicted" if row.get("number") else f"current, {how(desk)}",
            words.time(row["step_time_s"]), _usd(row.get("usd_per_step")), _usd(row.get("usd_per_trillion_tokens")),
            _usd(row.get("usd_of_the_run")),
        ]
        for row in data["rows"]
    ]  # fmt: skip
    head = ["Configuration", "Step", "Cost per step", "Cost per trillion tokens", "Cost of the run"]
    yield from desk.table(head, lines)
    if data.get("not_known"):
        yield from desk.say("Per token nothing can be computed while the tokens of a step are not known.")
        yield from unknown_facts(desk, [name for name in data["not_known"] if name != "model"])


def _usd(value: float | None) -> str:
    if value is None:
        return "–"
    return f"${value:,.0f}" if value >= 100 else f"${value:.3g}"


class Duration(Arguments):
    tokens: Tokens = None


@capability(
    "Training time",
    "How long does the whole training take?",
    "How many days to train on so many tokens?",
    "When would a run over one trillion tokens be finished?",
    "How many chip-hours does the run need?",
)
def training_time(desk: Desk, given: Duration) -> Answer:
    """Days, steps and chip-hours of a whole run over so many tokens, now and with each proposal."""
    if not given.tokens:
        one = registry()["training_time"]
        raise Missing("Say how many tokens.", tuple(command(one, {"tokens": f"{n:g}"}) for n in (1e11, 1e12, 1.5e13)))
    data = yield from get(desk, "cost", tokens=given.tokens)
    if data.get("not_known"):
        yield from unknown_facts(desk, [name for name in data["not_known"] if name != "model"])
        if not any(row.get("days_of_the_run") for row in data["rows"]):
            raise ToolError("Without the tokens of a step the time of the run cannot be computed.")
    lines = [
        [
            f"proposal {row['number']}, predicted" if row.get("number") else f"current, {how(desk)}",
            words.time(row["step_time_s"]), f"{row['steps_of_the_run']:,.0f}", f"{row['days_of_the_run']:.3g} days",
            f"{row['chip_hours_of_the_run']:,.0f}",
        ]
        for row in data["rows"] if row.get("days_of_the_run")
    ]  # fmt: skip
    yield from desk.table(["Configuration", "Step", "Steps", "Time, without interruptions", "Chip-hours"], lines)


@capability(
    "Size of the model",
    "How many parameters does the model have?",
    "Estimate the model size from the FLOPs.",
    "How many FLOPs per token or per step?",
    "Which model could this be?",
)
def model_size(desk: Desk, given: NoArguments) -> Answer:
    """Parameters and FLOPs per token of the model, or what the measured FLOPs of a step suggest."""
    data = yield from get(desk, "model_size")
    if data.get("parameters"):
        each = f", {words.count(data['flops_per_token'])} FLOPs per token" if data.get("flops_per_token") else ""
        yield from desk.say(
            f"{data.get('model') or 'The model'}: **{words.count(data['parameters'])} parameters**{each}, "
            f"computed from its shape."
        )
    if data.get("flops_per_step_measured"):
        yield from desk.say(
            f"A step executes {words.count(data['flops_per_step_measured'])} FLOPs on all chips, measured."
        )
    if data.get("parameters_estimated_from_flops"):
        yield from desk.say(
            f"By 6 FLOPs per parameter and token that suggests "
            f"{words.count(data['parameters_estimated_from_flops'])} active "
            "parameters; attention scores and recompute count in, so it is an upper estimate."
        )
    elif not data.get("parameters"):
        yield from desk.say(
            "Neither the model nor both FLOPs and tokens of a step are known, so its size cannot be estimated."
        )
    yield from unknown_facts(desk, data.get("not_known", ()))
