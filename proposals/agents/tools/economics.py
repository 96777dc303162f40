"""Tools over throughput and cost: tokens per second, MFU compared with published runs, dollars and hours."""

from __future__ import annotations

import json
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

from pydantic import Field

from agent.tools import Arguments, ToolError
from perfmodel.step_time import missing_facts
from perfmodel.workload import chip_of
from proposals import facts
from proposals.agents.tool_result import present
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


class Spending(Arguments):
    price_per_chip_hour: float | None = Field(None, gt=0, le=1e4, description="Per chip and hour, in any currency.")
    tokens: float | None = Field(None, gt=0, le=1e18, description="Tokens of the whole training run.")
    steps: float | None = Field(None, gt=0, le=1e12, description="Steps of the run, of the current batch.")
    days: float | None = Field(None, gt=0, le=1e5, description="Days that the run may take.")
    hours: float | None = Field(None, gt=0, le=2.4e6, description="Or hours.")
    chips: int | None = Field(None, ge=1, le=65536, description="Another number of chips, with its step time.")
    step_time_s: float | None = Field(None, gt=0, le=1e6, description="Step time on that number of chips.")


class EconomicsTools(Tools):
    def throughput(self) -> dict[str, Any]:
        """Tokens per second (total and per chip) and MFU of the current configuration and, predicted, of each proposal
        in the same precision, compared with the MFU of published runs on the same chip."""
        bench = self._bench
        config, kpis = bench.config, bench.diagnosis.kpis
        mfu = kpis.get("mfu")
        peak = chip_of(config.hardware).peak(config.training.precision) if mfu else None
        step, tokens = kpis.get("step_time_s"), config.training.global_batch_tokens
        each = tokens / step if tokens and step else None
        others = published_mfu(config.hardware.chip)
        return present(
            {
                "step_time_s": step,
                "steps_per_s": 1 / step if step else None,
                "tokens_per_step": tokens,
                "tokens_per_s": each,
                "tokens_per_s_per_chip": each / config.hardware.chips if each else None,
                "chips": config.hardware.chips,
                "mfu": mfu,
                "model_flops_per_s_per_chip": mfu * peak if mfu and peak else None,
                "proposals": self._mfu_of_proposals(mfu) if mfu else None,
                "flops_utilization": kpis.get("flops_utilization"),
                "mfu_convention": bench.diagnosis.mfu_convention,
                "not_known": list(missing_facts(config)),
                "not_measured": {key: why for key, why in bench.diagnosis.not_measured.items() if key in _RATES},
                "published": present(
                    {
                        "chip": config.hardware.chip,
                        "runs": len(others),
                        "mfu_lowest": others[-1]["mfu"] if others else None,
                        "mfu_median": others[len(others) // 2]["mfu"] if others else None,
                        "mfu_highest": others[0]["mfu"] if others else None,
                        "rows": _spread(others),
                    }
                ),
            }
        )

    def _mfu_of_proposals(self, mfu: float) -> list[dict[str, Any]]:
        """Model FLOPs per token and the peak stay, so MFU changes as tokens per second and chip do.  In another
        precision the peak is another: left out."""
        config = self._bench.config
        with as_tool_error():
            states = self._bench.proposals
        rows = []
        for item in (each.proposal for each in states):
            if item.predicted.speedup is None or item.kind == "keep" or {"precision", "seq_len"} & set(item.changes):
                continue
            each = mfu / chips_ratio(config, item.changes)
            low, high = item.predicted.speedup_low80, item.predicted.speedup_high80
            rows.append(
                present(
                    {
                        "number": item.rank,
                        "mfu": each * item.predicted.speedup,
                        "mfu_low80": each * low if low else None,
                        "mfu_high80": min(each * high, 1.0) if high else None,
                    }
                )
            )
        return rows

    def cost(self, asked: Spending) -> dict[str, Any]:
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
        now = _spent(asked, step, tokens, config.hardware.chips, steps)
        rows = [{"configuration": "current", "mesh_text": config.mesh.text(), **now}]
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
            rows.append({"number": item.rank, **_ranged(asked, time, of, chips, own, now)})
        if asked.chips and asked.step_time_s:
            rows.append({"configuration": "elsewhere", **_spent(asked, asked.step_time_s, tokens, asked.chips, steps)})
        return present(
            {
                "price_per_chip_hour": asked.price_per_chip_hour,
                "tokens_of_the_run": asked.tokens or (steps * tokens if steps and tokens else None),
                "steps_of_the_run": steps,
                "not_known": [] if tokens else list(missing_facts(config)),
                "rows": rows,
                "one_percent_of_the_run": present(
                    {
                        key: now[key] / 100 if key in now else None
                        for key in ("chip_hours_of_the_run", "cost_of_the_run")
                    }
                ),
                "within_days": _chips_for_deadline(asked, step, steps, config.hardware.chips),
            }
        )


def _chips_for_deadline(asked: Spending, step: float, steps: float | None, chips: int) -> dict[str, Any]:
    """Chips for a run in so many days, were each as efficient as now; and the step time that they would have."""
    wanted = asked.days or (asked.hours / 24 if asked.hours else None)
    if not wanted or not steps:
        return {}
    share = step * steps / 86400 / wanted
    return {
        "days": wanted, "hours": wanted * 24, "days_now": step * steps / 86400, "hours_now": step * steps / 3600,
        "throughput_needed_over_now": share,
        "chips_at_equal_efficiency": share * chips, "whole_chips": ceil(share * chips - 1e-9),
        "step_time_needed_s": step / share,
    }  # fmt: skip


def _ranged(
    asked: Spending, time: dict[str, float], tokens: float | None, chips: int, steps: float | None, now: dict[str, Any]
) -> dict[str, Any]:
    """A proposal's amounts with the ends of its interval, and what it saves."""
    amounts = _spent(asked, time["estimate"], tokens, chips, steps)
    ends = [_spent(asked, time[key], tokens, chips, steps) for key in ("low80", "high80")]
    for key in _RANGED:
        if key in amounts and ends[0][key] != ends[1][key]:
            amounts[f"{key}_range"] = [end[key] for end in ends]
    for key in _RANGED:
        if key in amounts and key in now:
            amounts[f"saved_{key}"] = now[key] - amounts[key]
            amounts[f"saved_{key}_range"] = [now[key] - ends[1][key], now[key] - ends[0][key]]
    return amounts


def _spent(asked: Spending, step_s: float, tokens: float | None, chips: int, steps: float | None) -> dict[str, Any]:
    """tokens: of a step; steps: of the whole run."""
    price, hours = asked.price_per_chip_hour, step_s * chips / 3600
    each = TRILLION / tokens if tokens else None
    return present(
        {
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


def _spread(rows: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    """A few rows, the highest and the lowest among them."""
    if len(rows) <= MOST_LISTED:
        return list(rows)
    return [rows[round(n * (len(rows) - 1) / (MOST_LISTED - 1))] for n in range(MOST_LISTED)]


def published_mfu(chip: str) -> tuple[dict[str, Any], ...]:
    """MFU (0 to 1) of the published runs on a chip, highest first, under the one convention."""
    return tuple(_published().get(chip, ()))


@cache
def _published() -> dict[str, list[dict[str, Any]]]:
    """Written by `evaluation.published_mfu`, with the source of each run."""
    published_runs: dict[str, list[dict[str, Any]]] = json.loads(PUBLISHED.read_text("utf-8"))
    return published_runs
