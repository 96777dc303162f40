"""The tool over what fills a chip's memory: parts and what shards each, and a peak that the user measured."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from agent.tools import Arguments, ToolError
from perfmodel.accounting import parameters
from perfmodel.config import DATA_ROLES
from perfmodel.step_time import missing_facts
from perfmodel.workload import chip_of
from proposals import facts
from proposals.agents.tool_result import present
from proposals.agents.tools.common import Tools, as_tool_error

#: Axes over which replicas of the weights lie, and those that cut the weights themselves.
_REPLICAS, _CUTS = DATA_ROLES, ("model", "pipeline", "expert")

#: As `perfmodel.memory` counts them.
_HELD_IN = {
    "tpu": "held in float32 and cast where they are gathered",
    "gpu": "held in 16 bits; their float32 master copy counts with the optimizer",
}


class Held(Arguments):
    stated_bytes: float | None = Field(None, gt=0, le=1e15, description="Peak per chip, measured by the user.")


class MemoryTools(Tools):
    def memory_use(self, asked: Held) -> dict[str, Any]:
        """Memory per chip of the current configuration by part, over how many chips each part is sharded, and what the
        proposals change. With a peak that the user measured: memory not accounted for by the predicted parts, and the
        proposals projected from that peak."""
        bench = self._bench
        config = bench.config
        with as_tool_error():
            base = bench.plan.baseline.hbm_per_chip_bytes
            states = bench.proposals
        if not base or base.get("total") is None:
            raise ToolError(f"Its parts cannot be computed: {facts.not_known(missing_facts(config))}.")
        total, capacity = base["total"], base["capacity"]
        beyond = asked.stated_bytes - total if asked.stated_bytes else None
        rows = []
        for item in (each.proposal for each in states):
            held = item.predicted.hbm_per_chip_bytes
            if held and held.get("total") is not None:
                more = held["total"] - total
                stated = asked.stated_bytes + more if asked.stated_bytes else None
                rows.append(
                    present(
                        {
                            "number": item.rank, "total_bytes": held["total"], "more_than_now_bytes": more,
                            "projected_bytes": stated,
                            "projected_headroom_bytes": capacity - stated if stated else None,
                            "share_of_the_capacity": stated / capacity if stated else None,
                        }
                    )
                )  # fmt: skip
        return present(
            {
                "parts_bytes": {key: value for key, value in base.items() if key not in ("total", "capacity")},
                "weights_held_in": _HELD_IN[chip_of(config.hardware).kind],
                "total_bytes": total,
                "capacity_bytes": capacity,
                "stated_bytes": asked.stated_bytes,
                "unaccounted_bytes": beyond,
                "measured_headroom_bytes": capacity - asked.stated_bytes if asked.stated_bytes else None,
                **self._sharded(),
                "rows": rows,
            }
        )

    def _sharded(self) -> dict[str, Any]:
        """Over how many chips weights, gradients and optimizer state are sharded."""
        config = self._bench.config
        replicas, cuts = config.mesh.size(*_REPLICAS), config.mesh.size(*_CUTS)
        kind = config.training.weight_sharding
        count = parameters(config.model).total if config.model else None
        return present(
            {
                "weight_sharding": kind,
                "replicas": replicas,
                "weight_shards": cuts,
                "optimizer_sharded_over_replicas": replicas if kind in ("zero1", "fsdp") else 1,
                "weights_sharded_over_replicas": replicas if kind == "fsdp" else 1,
                "parameters": count,
                "optimizer": config.training.optimizer,
                "remat": config.training.remat,
                "grad_accum": config.training.grad_accum,
            }
        )
