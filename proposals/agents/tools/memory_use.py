"""The tool over what fills a chip's memory: parts and what shards each, and a peak that the user measured."""

from __future__ import annotations

from pydantic import Field

from agent.tools import Arguments, ToolError
from perfmodel.accounting import parameters
from perfmodel.config import DATA_ROLES, missing_facts
from perfmodel.workload import chip_of
from proposals import facts
from proposals.agents.tool_result import ToolResult
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


class ProjectedRow(ToolResult):
    """Memory per chip of a proposal; projected: from the peak that the user measured."""

    number: int = 0
    total_bytes: float = 0.0
    more_than_now_bytes: float = 0.0
    projected_bytes: float | None = None
    projected_headroom_bytes: float | None = None
    share_of_the_capacity: float | None = None


class HeldMemory(ToolResult):
    """Memory per chip by part, and over how many chips weights, gradients and optimizer state are sharded."""

    parts_bytes: dict[str, float] = {}
    weights_held_in: str = ""
    total_bytes: float = 0.0
    capacity_bytes: float = 0.0
    stated_bytes: float | None = None
    unaccounted_bytes: float | None = None
    measured_headroom_bytes: float | None = None
    weight_sharding: str = ""
    replicas: int = 1
    weight_shards: int = 1
    optimizer_sharded_over_replicas: int = 1
    weights_sharded_over_replicas: int = 1
    parameters: int | float | None = None
    optimizer: str = ""
    remat: str = ""
    grad_accum: int = 1
    rows: tuple[ProjectedRow, ...] = ()


class MemoryTools(Tools):
    def memory_use(self, asked: Held) -> HeldMemory:
        """Memory per chip of the current configuration by part, over how many chips each part is sharded, and what the
        proposals change. With a peak that the user measured: memory not accounted for by the predicted parts, and the
        proposals projected from that peak."""
        bench = self._bench
        config = bench.config
        with as_tool_error():
            base = bench.plan.baseline.hbm_per_chip_bytes
            states = bench.proposals
        if base is None:
            raise ToolError(f"Its parts cannot be computed: {facts.not_known(missing_facts(config))}.")
        total, capacity, stated = base.total, base.capacity, asked.stated_bytes
        rows = []
        for item in (each.proposal for each in states):
            held = item.predicted.hbm_per_chip_bytes
            if held:
                more = held.total - total
                then = stated + more if stated else None
                rows.append(
                    ProjectedRow(
                        number=item.rank, total_bytes=held.total, more_than_now_bytes=more, projected_bytes=then,
                        projected_headroom_bytes=capacity - then if then else None,
                        share_of_the_capacity=then / capacity if then else None,
                    )
                )  # fmt: skip
        mesh, training = config.mesh, config.training
        replicas, kind = mesh.size(*_REPLICAS), training.weight_sharding
        return HeldMemory(
            parts_bytes={key: value for key, value in vars(base).items() if key not in ("total", "capacity")},
            weights_held_in=_HELD_IN[chip_of(config.hardware).kind], total_bytes=total, capacity_bytes=capacity,
            stated_bytes=stated, unaccounted_bytes=stated - total if stated else None,
            measured_headroom_bytes=capacity - stated if stated else None,
            weight_sharding=kind, replicas=replicas, weight_shards=mesh.size(*_CUTS),
            optimizer_sharded_over_replicas=replicas if kind in ("zero1", "fsdp") else 1,
            weights_sharded_over_replicas=replicas if kind == "fsdp" else 1,
            parameters=parameters(config.model).total if config.model else None, optimizer=training.optimizer,
            remat=training.remat, grad_accum=training.grad_accum, rows=tuple(rows),
        )  # fmt: skip
