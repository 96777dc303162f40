"""What the tools share: configurations as arguments, and errors as sentences for whoever asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from pydantic import Field, model_validator

from agent.tools import Arguments, ToolError
from diagnosis.report import Diagnosis
from experiments.step_profile import PROFILE, STEP_TIME
from perfmodel.config import ConfigError, mesh_text, missing_facts
from proposals import facts
from proposals.agents.retrieval import Unavailable
from proposals.agents.workbench import ProposalState, Workbench
from proposals.candidate import is_same
from proposals.constraints import Constraints
from proposals.plan import Listed, Plan, Predicted, ProposalPlan

MESH_WORDS = (
    'Sizes of the mesh axes inside a slice, major to minor, such as {"data": 8, "seq": 4, "model": 2}. The product '
    "must be the chips of a slice; an axis left out has size 1."
)
CHANGES_WORDS = (
    "Training keys that differ from the current configuration, such as {remat: minimal, global_batch: 512, "
    "seq_len: 16384, grad_accum: 2, weight_sharding: fsdp, xla_flags: [...]}."
)


class Tools:
    """Tools over one workbench."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench


class Configuration(Arguments):
    """A mesh with training keys."""

    ici: dict[str, int] = Field(description=MESH_WORDS, min_length=1)
    dcn: dict[str, int] | None = Field(None, description="Sizes across slices; the current ones unless given.")
    changes: dict[str, Any] = Field(default_factory=dict, description=CHANGES_WORDS)

    @property
    def mesh(self) -> dict[str, dict[str, int]]:
        return {"ici": self.ici} if self.dcn is None else {"ici": self.ici, "dcn": self.dcn}


class ProposalOrConfiguration(Arguments):
    """A proposal by its number, or a configuration."""

    number: int | None = Field(None, description="Of a proposal.")
    configuration: Configuration | None = Field(None, description="Or any configuration.")

    @model_validator(mode="after")
    def one_of_both(self) -> Self:
        if (self.number is None) == (self.configuration is None):
            raise ValueError("give either the number of a proposal or a configuration")
        return self


class Held(Arguments):
    """Constraints, in addition to those that the user has stated."""

    keep_batch: bool = False
    keep_axes: tuple[str, ...] = Field(default=(), description="Names or roles of axes whose size is kept.")
    fixed: dict[str, int] = Field(default_factory=dict, description="Exact size by axis name or role.")
    at_least: dict[str, int] = Field(default_factory=dict, description="Smallest size by axis name or role.")
    at_most: dict[str, int] = Field(default_factory=dict, description="Largest size by axis name or role.")
    at_most_chips: int | None = None
    memory_margin: float = Field(default=0.0, description="Share of memory per chip to keep free, 0 to 0.5.")
    memory_at_most_bytes: float | None = Field(
        default=None, gt=0, le=1e15, description="Or the most that a chip may hold; at least half of its usable memory."
    )
    keep_remat: bool = False
    keep_weight_sharding: bool = False
    keep_micro_batches: bool = False
    no_flags: bool = Field(default=False, description="Change no XLA flags.")

    def constraints(self, usable_bytes: float) -> Constraints:
        """usable_bytes: of a chip.  Raises ConfigError where they make no sense."""
        constraint_values = self.model_dump(exclude_defaults=True, mode="json")
        if limit := constraint_values.pop("memory_at_most_bytes", None):
            constraint_values["memory_margin"] = max(self.memory_margin, 1.0 - limit / usable_bytes)
        return Constraints.from_json(constraint_values)


@contextmanager
def as_tool_error() -> Iterator[None]:
    """What is wrong with a question, or not to be had, as a sentence for whoever asked."""
    try:
        yield
    except ConfigError as error:
        raise ToolError(str(error)) from None
    except Unavailable as error:
        raise ToolError(str(error)) from None


def proposal(bench: Workbench, number: int) -> ProposalState:
    """The proposal of this number.  Raises ToolError."""
    with as_tool_error():
        states = bench.proposals
    for item in states:
        if item.proposal.rank == number:
            return item
    numbers = ", ".join(str(item.proposal.rank) for item in states)
    raise ToolError(f"There is no proposal {number}; the proposals are {numbers}.")


def number_of(bench: Workbench, item: ProposalPlan | Listed) -> int | None:
    """The number of the proposal that is this configuration."""
    with as_tool_error():
        ranked = [state.proposal for state in bench.proposals]
    return next((each.rank for each in ranked if is_same(bench.config, each, item)), None)


def plan(bench: Workbench) -> Plan:
    with as_tool_error():
        return bench.plan


def predicted(value: Predicted) -> dict[str, Any]:
    """A prediction's numbers, units in the names."""
    return {
        "step_time_s": value.step_time_s,
        "speedup_per_token": value.speedup,
        "speedup_low80": value.speedup_low80,
        "speedup_high80": value.speedup_high80,
        "hbm_per_chip_bytes": value.hbm_per_chip_bytes,
    }


def evaluated(item: ProposalPlan) -> dict[str, Any]:
    """A configuration as priced: the fields of a `Priced`."""
    return {
        "mesh": item.mesh,
        "mesh_text": mesh_text(item.mesh),
        "changes": item.changes,
        **predicted(item.predicted),
        "breakdown_s": item.predicted.breakdown_s,
        "not_known": item.predicted.missing,
        "memory_headroom_bytes": item.memory_headroom_bytes,
        "confidence_share": item.confidence,
        "utility": item.utility,
        "violations": item.violations,
        "may_run": not item.violations,
    }


def in_detail(item: ProposalPlan) -> dict[str, Any]:
    """With communication, and bytes and work per chip."""
    known = [each for each in item.per_chip if (each.before, each.after) != (None, None)]
    return {**evaluated(item), "communication": item.communication, "per_chip": known}


#: What a change is set against: where that is not known, nothing tells by how much it changes.
_DECIDES = {
    "global_batch": ("training.global_batch",), "micro_batch": ("training.global_batch",),
    "seq_len": ("training.seq_len",), "grad_accum": ("training.global_batch", "training.seq_len"),
}  # fmt: skip


def refuse_undecided(bench: Workbench, changes: Mapping[str, Any]) -> None:
    """Raise ToolError where a change is of a fact that is not known of the current configuration."""
    missing = missing_facts(bench.config)
    for key in changes:
        lacking = [fact for fact in _DECIDES.get(key, ()) if fact in missing]
        if lacking:
            raise ToolError(
                f"{facts.setting(key)} {changes[key]} cannot be priced, because {facts.not_known(lacking)} in the "
                "current configuration. State that first."
            )


def without_profile(diagnosis: Diagnosis) -> dict[str, Any]:
    """Caveat of a diagnosis without a profile; empty for one with a profile."""
    if diagnosis.basis == PROFILE:
        return {}
    measured = "only the step time was measured" if diagnosis.basis == STEP_TIME else "nothing was measured"
    return {
        "breakdown_origin": "predicted by the performance model, not measured",
        "profile": f"none: {measured}",
        "predicted_step_time_s": diagnosis.predicted_step_time_s,
    }


def refuse_without_profile(diagnosis: Diagnosis) -> None:
    """Raise ToolError where ops and collectives are asked for and no profile was recorded."""
    if diagnosis.basis != PROFILE:
        raise ToolError(
            "No profile was recorded, so neither ops nor collectives were measured; kpis has the predicted breakdown."
        )
