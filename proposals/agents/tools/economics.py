"""Tools over throughput and cost: tokens per second, MFU compared with published runs, dollars and hours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

from pydantic import Field, TypeAdapter

from agent.tools import Arguments, ToolError
from perfmodel.config import missing_facts
from perfmodel.workload import chip_of
from proposals import facts
from proposals.agents.tool_result import ToolResult
from proposals.agents.tools.common import Tools, as_tool_error
from proposals.candidate import chips_ratio, hardware_of

PUBLISHED = Path(__file__).with_name("published_mfu.json")
#: Published runs listed beside a run's own MFU.
MOST_LISTED = 5
TRILLION = 1e12
#: Amounts of a proposal that have a range, and a saving.
_RANGED = (
    "hours_of_the_run", "days_of_the_run", "chip_hours_of_the_run", "cost_of_the_run", "cost_per_trillion_tokens",
)  # fmt: skip


class PublishedRun(ToolResult):
    """A published run with its MFU (0 to 1) under the one convention."""

    id: str = ""
    model: str = ""
    parameters: int | float | None = None
    chips: int = 0
    precision: str = ""
    seq_len: int = 0
    mfu: float = 0.0
    source: str = ""


class PublishedMfu(ToolResult):
    """MFU of published runs on a chip; rows: a few of them, the highest and the lowest among them."""

    chip: str = ""
    runs: int = 0
    mfu_lowest: float = 0.0
    mfu_median: float = 0.0
    mfu_highest: float = 0.0
    rows: tuple[PublishedRun, ...] = ()


class PredictedMfu(ToolResult):
    """MFU of a proposal."""

    number: int = 0
    mfu: float = 0.0
    mfu_low80: float | None = None
    mfu_high80: float | None = None


class Throughput(ToolResult):
    """How much the current configuration processes, and how well it uses its chips."""

    step_time_s: float | None = None
    steps_per_s: float | None = None
    tokens_per_step: int | None = None
    tokens_per_s: float | None = None
    tokens_per_s_per_chip: float | None = None
    chips: int = 0
    mfu: float | None = None
    model_flops_per_s_per_chip: float | None = None
    proposals: tuple[PredictedMfu, ...] = ()
    flops_utilization: float | None = None
    mfu_convention: str = ""
    not_known: tuple[str, ...] = ()
    not_measured: dict[str, str] = {}
    published: PublishedMfu = PublishedMfu()


Ends = tuple[float, ...]


class Spent(ToolResult):
    """What a configuration takes.  configuration: `current`, or `elsewhere`, on another number of chips; number: of a
    proposal, whose amounts of the run have the ends of their 80 % interval, and what each saves."""

    number: int | None = None
    configuration: str = ""
    mesh_text: str = ""
    chips: int = 0
    step_time_s: float = 0.0
    chip_hours_per_step: float = 0.0
    cost_per_step: float | None = None
    chip_hours_per_trillion_tokens: float | None = None
    cost_per_trillion_tokens: float | None = None
    hours_per_trillion_tokens: float | None = None
    days_per_trillion_tokens: float | None = None
    steps_of_the_run: float | None = None
    hours_of_the_run: float | None = None
    days_of_the_run: float | None = None
    weeks_of_the_run: float | None = None
    chip_hours_of_the_run: float | None = None
    cost_of_the_run: float | None = None
    hours_of_the_run_range: Ends = ()
    days_of_the_run_range: Ends = ()
    chip_hours_of_the_run_range: Ends = ()
    cost_of_the_run_range: Ends = ()
    cost_per_trillion_tokens_range: Ends = ()
    saved_hours_of_the_run: float | None = None
    saved_hours_of_the_run_range: Ends = ()
    saved_days_of_the_run: float | None = None
    saved_days_of_the_run_range: Ends = ()
    saved_chip_hours_of_the_run: float | None = None
    saved_chip_hours_of_the_run_range: Ends = ()
    saved_cost_of_the_run: float | None = None
    saved_cost_of_the_run_range: Ends = ()
    saved_cost_per_trillion_tokens: float | None = None
    saved_cost_per_trillion_tokens_range: Ends = ()

    @property
    def is_priced(self) -> bool:
        """Whether its step time is predicted, unlike that of the current configuration."""
        return bool(self.number) or self.configuration == "elsewhere"


class OnePercent(ToolResult):
    """What 1 % of the step time is worth."""

    chip_hours_of_the_run: float | None = None
    cost_of_the_run: float | None = None


class Deadline(ToolResult):
    """Chips for a run in so many days, were each as efficient as now; and the step time that they would have."""

    days: float = 0.0
    hours: float = 0.0
    days_now: float = 0.0
    hours_now: float = 0.0
    throughput_needed_over_now: float = 0.0
    chips_at_equal_efficiency: float = 0.0
    whole_chips: int = 0
    step_time_needed_s: float = 0.0


class Costs(ToolResult):
    """What each configuration takes, the current one first."""

    price_per_chip_hour: float | None = None
    tokens_of_the_run: float | None = None
    steps_of_the_run: float | None = None
    not_known: tuple[str, ...] = ()
    rows: tuple[Spent, ...] = ()
    one_percent_of_the_run: OnePercent = OnePercent()
    within_days: Deadline | None = None


class Spending(Arguments):
    price_per_chip_hour: float | None = Field(None, gt=0, le=1e4, description="Per chip and hour, in any currency.")
    tokens: float | None = Field(None, gt=0, le=1e18, description="Tokens of the whole training run.")
    steps: float | None = Field(None, gt=0, le=1e12, description="Steps of the run, of the current batch.")
    days: float | None = Field(None, gt=0, le=1e5, description="Days that the run may take.")
    hours: float | None = Field(None, gt=0, le=2.4e6, description="Or hours.")
    chips: int | None = Field(None, ge=1, le=65536, description="Another number of chips, with its step time.")
    step_time_s: float | None = Field(None, gt=0, le=1e6, description="Step time on that number of chips.")


class EconomicsTools(Tools):
    def throughput(self) -> Throughput:
        """Tokens per second (total and per chip) and MFU of the current configuration and, predicted, of each proposal
        in the same precision, compared with the MFU of published runs on the same chip."""
        bench = self._bench
        config, kpis = bench.config, bench.diagnosis.kpis
        mfu, chips = kpis.get("mfu"), config.hardware.chips
        peak = chip_of(config.hardware).peak(config.training.precision) if mfu else None
        step, tokens = kpis.get("step_time_s"), config.training.global_batch_tokens
        each = tokens / step if tokens and step else None
        others = published_mfu().get(config.hardware.chip, ())
        published = PublishedMfu(chip=config.hardware.chip, runs=len(others))
        if others:
            published = PublishedMfu(
                chip=config.hardware.chip, runs=len(others), mfu_lowest=others[-1].mfu,
                mfu_median=others[len(others) // 2].mfu, mfu_highest=others[0].mfu, rows=_spread(others),
            )  # fmt: skip
        return Throughput(
            step_time_s=step, steps_per_s=1 / step if step else None, tokens_per_step=tokens, tokens_per_s=each,
            tokens_per_s_per_chip=each / chips if each else None, chips=chips, mfu=mfu,
            model_flops_per_s_per_chip=mfu * peak if mfu and peak else None,
            proposals=tuple(self._mfu_of_proposals(mfu)) if mfu else (),
            flops_utilization=kpis.get("flops_utilization"), mfu_convention=bench.diagnosis.mfu_convention,
            not_known=missing_facts(config),
            not_measured={key: why for key, why in bench.diagnosis.not_measured.items() if key in _RATES},
            published=published,
        )  # fmt: skip

    def _mfu_of_proposals(self, mfu: float) -> Iterator[PredictedMfu]:
        """Model FLOPs per token and the peak stay, so MFU changes as tokens per second and chip do.  In another
        precision the peak is another: left out."""
        config = self._bench.config
        with as_tool_error():
            states = self._bench.proposals
        for item in (each.proposal for each in states):
            if item.predicted.speedup is None or item.kind == "keep" or {"precision", "seq_len"} & set(item.changes):
                continue
            each = mfu / chips_ratio(config, item.changes)
            low, high = item.predicted.speedup_low80, item.predicted.speedup_high80
            yield PredictedMfu(
                number=item.rank, mfu=each * item.predicted.speedup, mfu_low80=each * low if low else None,
                mfu_high80=min(each * high, 1.0) if high else None,
            )  # fmt: skip

    def cost(self, asked: Spending) -> Costs:
        """Cost of the current configuration and of each proposal: chip-hours and money per step, per trillion tokens
        and for a run of a given number of tokens or steps, its duration, each with the 80 % interval, and the saving
        relative to the current configuration. With days or hours: number of chips at equal efficiency. Money only with
        a price."""
        bench = self._bench
        config, step = bench.config, bench.diagnosis.kpis.get("step_time_s")
        tokens = config.training.global_batch_tokens
        if not step:
            raise ToolError("The step time was not measured, so no time and no cost can be computed.")
        steps = asked.steps or (asked.tokens / tokens if asked.tokens and tokens else None)
        now = _spent(
            asked, step, tokens, config.hardware.chips, steps, configuration="current", mesh_text=config.mesh.text()
        )
        rows = [now]
        with as_tool_error():
            states = bench.proposals
        for item in (each.proposal for each in states):
            time = item.predicted.step_time_s
            if time is None or item.kind == "keep":
                continue
            training = {
                key: item.changes.get(key, getattr(config.training, key)) for key in ("global_batch", "seq_len")
            }
            of = training["global_batch"] * training["seq_len"] if all(training.values()) else None
            chips = hardware_of(config, item.changes).chips
            own = steps * tokens / of if steps and of and tokens else steps
            amounts, *ends = (
                _spent(asked, getattr(time, key), of, chips, own, number=item.rank)
                for key in ("estimate", "low80", "high80")
            )
            rows.append(amounts.model_copy(update=dict(_ranged(amounts, ends, now))))
        if asked.chips and asked.step_time_s:
            rows.append(_spent(asked, asked.step_time_s, tokens, asked.chips, steps, configuration="elsewhere"))
        each = {key: getattr(now, key) for key in ("chip_hours_of_the_run", "cost_of_the_run")}
        return Costs(
            price_per_chip_hour=asked.price_per_chip_hour,
            tokens_of_the_run=asked.tokens or (steps * tokens if steps and tokens else None),
            steps_of_the_run=steps,
            not_known=() if tokens else missing_facts(config),
            rows=tuple(rows),
            one_percent_of_the_run=OnePercent(**{key: value / 100 for key, value in each.items() if value is not None}),
            within_days=_deadline(asked, step, steps, config.hardware.chips),
        )


def _deadline(asked: Spending, step: float, steps: float | None, chips: int) -> Deadline | None:
    wanted = asked.days or (asked.hours / 24 if asked.hours else None)
    if not wanted or not steps:
        return None
    share = step * steps / 86400 / wanted
    return Deadline(
        days=wanted, hours=wanted * 24, days_now=step * steps / 86400, hours_now=step * steps / 3600,
        throughput_needed_over_now=share, chips_at_equal_efficiency=share * chips,
        whole_chips=ceil(share * chips - 1e-9), step_time_needed_s=step / share,
    )  # fmt: skip


def _ranged(amounts: Spent, ends: Sequence[Spent], now: Spent) -> Iterator[tuple[str, Any]]:
    """The ends of a proposal's 80 % interval, and what it saves."""
    for key in _RANGED:
        low, high = (getattr(end, key) for end in ends)
        if low != high:
            yield f"{key}_range", (low, high)
        was, value = getattr(now, key), getattr(amounts, key)
        if was is not None and value is not None:
            yield f"saved_{key}", was - value
            yield f"saved_{key}_range", (was - high, was - low)


def _spent(
    asked: Spending, step_s: float, tokens: float | None, chips: int, steps: float | None, **of: str | int
) -> Spent:
    """tokens: of a step; steps: of the whole run; of: which configuration it is."""
    price, hours = asked.price_per_chip_hour, step_s * chips / 3600
    each = TRILLION / tokens if tokens else None
    return Spent.model_validate(
        {
            **of,
            "chips": chips,
            "step_time_s": step_s,
            "chip_hours_per_step": hours,
            "cost_per_step": hours * price if price else None,
            "chip_hours_per_trillion_tokens": hours * each if each else None,
            "cost_per_trillion_tokens": hours * each * price if each and price else None,
            "hours_per_trillion_tokens": step_s * each / 3600 if each else None,
            "days_per_trillion_tokens": step_s * each / 86400 if each else None,
            "steps_of_the_run": steps,
            "hours_of_the_run": step_s * steps / 3600 if steps else None,
            "days_of_the_run": step_s * steps / 86400 if steps else None,
            "weeks_of_the_run": step_s * steps / 604800 if steps else None,
            "chip_hours_of_the_run": hours * steps if steps else None,
            "cost_of_the_run": hours * steps * price if steps and price else None,
        }
    )


_RATES = ("step_time_s", "mfu", "flops_utilization")


def unknown(config: Any) -> str:
    """A sentence that names what of a configuration is not known; empty where all is."""
    lacking = missing_facts(config)
    return f"This cannot be computed: {facts.not_known(lacking)}." if lacking else ""


def _spread(rows: tuple[PublishedRun, ...]) -> tuple[PublishedRun, ...]:
    """A few rows, the highest and the lowest among them."""
    if len(rows) <= MOST_LISTED:
        return rows
    return tuple(rows[round(n * (len(rows) - 1) / (MOST_LISTED - 1))] for n in range(MOST_LISTED))


@cache
def published_mfu() -> dict[str, tuple[PublishedRun, ...]]:
    """Published runs by chip, highest MFU first.  Written by `evaluation.published_mfu`, with their source."""
    return TypeAdapter(dict[str, tuple[PublishedRun, ...]]).validate_json(PUBLISHED.read_text("utf-8"))
