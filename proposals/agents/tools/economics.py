"""Tools over what a step is worth: tokens per second, MFU beside others', dollars and hours."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field

from agent.tools import Arguments, ToolError
from perfmodel.step_time import missing_facts
from proposals import facts
from proposals.agents.tools.common import present, told
from proposals.agents.workbench import Workbench
from proposals.candidate import hardware_of

PUBLISHED = Path(__file__).with_name("published_mfu.json")
#: Published runs listed beside a run's own MFU.
MOST_LISTED = 5
TRILLION = 1e12


class Spending(Arguments):
    usd_per_chip_hour: float | None = Field(None, gt=0, le=1e4, description="US dollars per chip and hour.")
    tokens: float | None = Field(None, gt=0, le=1e18, description="Tokens of the whole training run.")


class EconomicsTools:
    def __init__(self, bench: Workbench) -> None:
        self._bench = bench

    def throughput(self) -> dict[str, Any]:
        """Tokens per second, per chip and in all, and MFU of the current configuration, beside the MFU of published
        runs
        on the same chip."""
        bench = self._bench
        config, kpis = bench.config, bench.diagnosis.kpis
        step, tokens = kpis.get("step_time_s"), config.training.global_batch_tokens
        each = tokens / step if tokens and step else None
        others = published_mfu(config.hardware.chip)
        return present(
            {
                "step_time_s": step,
                "tokens_per_step": tokens,
                "tokens_per_s": each,
                "tokens_per_s_per_chip": each / config.hardware.chips if each else None,
                "chips": config.hardware.chips,
                "mfu": kpis.get("mfu"),
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

    def cost(self, asked: Spending) -> dict[str, Any]:
        """What the current configuration and each proposal cost: chip-hours and dollars per step, per trillion
        tokens and for
        a whole run of so many tokens, and how long that takes. Dollars only with a price."""
        bench = self._bench
        config, step = bench.config, bench.diagnosis.kpis.get("step_time_s")
        tokens = config.training.global_batch_tokens
        if not step:
            raise ToolError("The step time was not measured, so no time and no cost can be computed.")
        rows = [
            {"configuration": "current", "mesh_text": config.mesh.text()}
            | self._spent(asked, step, tokens, config.hardware.chips)
        ]
        with told():
            standing = bench.proposals
        for item in (each.proposal for each in standing):
            time = item.predicted.step_time_s
            if time is None or item.kind == "keep":
                continue
            batch, length = (
                item.changes.get(key, getattr(config.training, key)) for key in ("global_batch", "seq_len")
            )
            chips = hardware_of(config, item.changes).chips
            of = batch * length if batch and length else None
            rows.append({"number": item.rank, **self._spent(asked, time["estimate"], of, chips)})
        return present(
            {
                "usd_per_chip_hour": asked.usd_per_chip_hour,
                "tokens_of_the_run": asked.tokens,
                "not_known": [] if tokens else list(missing_facts(config)),
                "rows": rows,
            }
        )

    def _spent(self, asked: Spending, step_s: float, tokens: float | None, chips: int) -> dict[str, Any]:
        price, hours = asked.usd_per_chip_hour, step_s * chips / 3600
        steps = TRILLION / tokens if tokens else None
        run = asked.tokens / tokens if tokens and asked.tokens else None
        return present(
            {
                "chips": chips,
                "step_time_s": step_s,
                "chip_hours_per_step": hours,
                "usd_per_step": hours * price if price else None,
                "chip_hours_per_trillion_tokens": hours * steps if steps else None,
                "usd_per_trillion_tokens": hours * steps * price if steps and price else None,
                "days_per_trillion_tokens": step_s * steps / 86400 if steps else None,
                "steps_of_the_run": run,
                "days_of_the_run": step_s * run / 86400 if run else None,
                "chip_hours_of_the_run": hours * run if run else None,
                "usd_of_the_run": hours * run * price if run and price else None,
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
    found: dict[str, list[dict[str, Any]]] = json.loads(PUBLISHED.read_text("utf-8"))
    return found
