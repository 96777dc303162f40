"""What the tools share: configurations as arguments, predicted rows as results, and errors as sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import Field

from agent.tools import Arguments, ToolError
from perfmodel.config import ConfigError, Mesh, mesh_text, missing_facts
from proposals import facts
from proposals.agents.retrieval import Unavailable
from proposals.agents.tool_result import About, Is, ToolResult
from proposals.agents.workbench import ProposalState, Workbench
from proposals.candidate import Candidate
from proposals.plan import Memory, Predicted, ProposalPlan, Range

Sizes = dict[str, Annotated[int, Field(ge=1, le=1_000_000)]]


class Configuration(Arguments):
    """A mesh with training keys."""

    mesh: Sizes = Field(
        default_factory=dict,
        description="Axis sizes inside a slice, major to minor; an axis left out is 1. Empty: the current mesh.",
    )
    dcn: Sizes | None = Field(None, description="Sizes across slices; default: current.")
    changes: dict[str, Any] = Field(
        default_factory=dict,
        description="Training keys that change: remat, global_batch, seq_len, grad_accum, weight_sharding, precision, "
        "optimizer, xla_flags …",
    )

    def candidate(self, bench: Workbench) -> Candidate:
        """Return it as what the proposer prices."""
        return self.over(bench.config.mesh)

    def over(self, current: Mesh) -> Candidate:
        """Return it with what it leaves as it is."""
        own = current.to_json()
        mesh: dict[str, dict[str, int]] = {"ici": dict(self.mesh) or own["ici"]}
        dcn = self.dcn if self.dcn is not None else None if self.mesh else own.get("dcn")
        return Candidate(mesh if dcn is None else {**mesh, "dcn": dict(dcn)}, self.changes)


class Estimate(ToolResult):
    """A predicted quantity with its 80 % interval."""

    estimate: float
    low80: float | None = None
    high80: float | None = None


class Row(ToolResult):
    """One configuration, predicted.  number: of a proposal.  terms_s: parts of the step, seconds; change_s: the same
    less those of the current configuration, where they differ.  violations: rules that it breaks, with the reason;
    doubts: what is not known of its legality, and what else lowers its probability."""

    number: int | None = None
    place: int | None = None
    title: str = ""
    kind: str = ""
    status: str = ""
    is_current: bool | None = None
    mesh: str = ""
    changes: dict[str, Any] = {}
    step_time_s: Estimate | None = None
    speedup_per_token: Annotated[Estimate | None, Is(unit="speedup", subject="speed-up per token")] = None
    runs_and_faster_probability: Annotated[float | None, Is(subject="chance that it runs and is faster per token")] = (
        None
    )
    memory_bytes: Annotated[float | None, Is(subject="memory per chip")] = None
    headroom_bytes: Annotated[float | None, Is(subject="memory per chip left")] = None
    memory_parts_bytes: dict[str, int | float] = {}
    terms_s: Annotated[dict[str, int | float], Is(subject="term")] = {}
    change_s: Annotated[dict[str, int | float], Is(subject="change of term")] = {}
    violations: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    not_known: tuple[str, ...] = ()

    def about(self) -> About:
        settings = " ".join(f"{facts.setting(key)} {value}" for key, value in self.changes.items())
        named = f"proposal {self.number}" if self.number else " ".join(filter(None, (self.mesh, settings)))
        return About("predicted", named, f"proposal:{self.number}" if self.number else "")


class Current(ToolResult):
    """The current configuration: time as measured, memory as predicted.  basis: `profile`, `step_time` or `none`."""

    mesh: str = ""
    chip: str = ""
    chips: int = 0
    step_time_s: float | None = None
    terms_s: dict[str, int | float] = {}
    memory_bytes: Annotated[float | None, Is(origin="predicted", subject="memory per chip")] = None
    capacity_bytes: Annotated[float | None, Is(origin="stated", subject="usable memory per chip")] = None
    headroom_bytes: Annotated[float | None, Is(origin="predicted", subject="memory per chip left")] = None
    measured_peak_bytes: float | None = None
    basis: str = ""

    def about(self) -> About:
        return About("measured" if self.basis == "profile" else "computed", "current configuration", "kpi:step_time_s")


#: Sentences on what lowers a probability; what is not known of its legality comes first.
DOUBTS = 2


def key(text: str) -> str:
    """Return a part of the breakdown as a key without a colon: `ici:model` is `ici_model`."""
    return text.replace(":", "_").replace("+", "_").replace(" ", "_")


def keyed(parts: Mapping[str, float | None]) -> dict[str, int | float]:
    """Return the parts that are known, by keys that paths can name."""
    return {key(name): value for name, value in parts.items() if value is not None}


def estimate(of: Range | None) -> Estimate | None:
    return Estimate(estimate=of.estimate, low80=of.low80, high80=of.high80) if of else None


def predicted(value: Predicted) -> dict[str, Any]:
    """Return the fields of a `Row` that a prediction fills."""
    held = value.hbm_per_chip_bytes
    speed = value.speedup
    return {
        "step_time_s": estimate(value.step_time_s),
        "speedup_per_token": Estimate(estimate=speed, low80=value.speedup_low80, high80=value.speedup_high80)
        if speed is not None
        else None,
        "memory_bytes": held.total if held else None,
        "not_known": value.missing,
    }


def memory_parts(held: Memory | None) -> dict[str, int | float]:
    """Return the parts of memory per chip that are known."""
    return {} if held is None else keyed({k: v for k, v in vars(held).items() if k not in ("total", "capacity")})


def row(item: ProposalPlan, bench: Workbench, parts: bool = True, **more: Any) -> Row:
    """Return a priced configuration.  parts: with the terms of its time and memory."""
    now, then = keyed(bench.plan.baseline.breakdown_s), keyed(item.predicted.breakdown_s)
    step = item.predicted.step_time_s.estimate if item.predicted.step_time_s else 0.0
    changed = {k: then.get(k, 0.0) - now.get(k, 0.0) for k in dict.fromkeys((*now, *then))} if then else {}
    return Row(
        mesh=mesh_text(item.mesh),
        changes=dict(item.changes),
        **predicted(item.predicted),
        runs_and_faster_probability=None if item.kind == "keep" else item.confidence,
        headroom_bytes=item.memory_headroom_bytes,
        memory_parts_bytes=memory_parts(item.predicted.hbm_per_chip_bytes) if parts else {},
        terms_s=then if parts else {},
        change_s={k: v for k, v in changed.items() if abs(v) > 1e-3 * step} if parts else {},
        violations=tuple(f"{broken.rule}: {broken.reason}" for broken in item.violations),
        doubts=tuple(map(str, item.lowers[:DOUBTS])),
        **more,
    )


def current(bench: Workbench) -> Current:
    """Return the current configuration.  Raises ToolError where nothing can be priced."""
    with as_tool_error():
        made = bench.plan.baseline
    held, config = made.hbm_per_chip_bytes, bench.config
    return Current(
        mesh=config.mesh.text(), chip=config.hardware.chip, chips=config.hardware.chips,
        step_time_s=made.step_time_s.estimate if made.step_time_s else bench.diagnosis.kpis.get("step_time_s"),
        terms_s=keyed(made.breakdown_s), memory_bytes=held.total if held else None,
        capacity_bytes=held.capacity if held else None, headroom_bytes=held.headroom if held else None,
        measured_peak_bytes=bench.profile.memory.peak_bytes, basis=bench.diagnosis.basis,
    )  # fmt: skip


def evaluated(bench: Workbench, asked: Configuration) -> ProposalPlan:
    """Return a configuration as the proposer prices it.  Raises ToolError for what is no mesh or no training key, and
    where a change is of a fact that is not known."""
    missing = missing_facts(bench.config)
    for name, value in asked.changes.items():
        if lacking := [fact for fact in _DECIDES.get(name, ()) if fact in missing]:
            raise ToolError(
                f"{facts.setting(name)} {value} cannot be priced, because {facts.not_known(lacking)} in the current "
                "configuration. State that first."
            )
    with as_tool_error():
        return bench.pricer.evaluate(asked.candidate(bench), bench.constraints)


#: What a change is compared with: where that is not known, nothing tells by how much it changes.
_DECIDES = {
    "global_batch": ("training.global_batch",), "micro_batch": ("training.global_batch",),
    "seq_len": ("training.seq_len",), "grad_accum": ("training.global_batch", "training.seq_len"),
}  # fmt: skip


@contextmanager
def as_tool_error() -> Iterator[None]:
    """What is wrong with a question, or not to be had, as a sentence for whoever asked."""
    try:
        yield
    except (ConfigError, Unavailable) as error:
        raise ToolError(str(error)) from None


def proposal(bench: Workbench, number: int) -> ProposalState:
    """Return the proposal of this number.  Raises ToolError."""
    with as_tool_error():
        states = bench.proposals
    for item in states:
        if item.proposal.rank == number:
            return item
    numbers = ", ".join(str(item.proposal.rank) for item in states)
    raise ToolError(f"There is no proposal {number}; the proposals are {numbers}.")
