"""Arguments of computations, as an address, a form, the command line or JSON gives them."""

from __future__ import annotations

from math import prod
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from agent.tools import Arguments, ToolError
from dialogue.computations.settings import axis_of, complete, typed_value
from perfmodel.config import ConfigError, flat_sizes
from perfmodel.config_file import read_training
from proposals.agents.workbench import Workbench
from proposals.candidate import Candidate


def _pairs(value: object) -> object:
    """`fsdp=16, tp=4` as a mapping; whole numbers as such."""
    if not isinstance(value, str):
        return value
    pairs = (part.partition("=") for part in value.replace(";", ",").split(",") if part.strip())
    return {key.strip(): typed_value(text.strip()) for key, _, text in pairs}


Sizes = Annotated[dict[str, Annotated[int, Field(ge=1, le=10**6)]], BeforeValidator(_pairs)]
Keys = Annotated[dict[str, Any], BeforeValidator(_pairs)]


class Nothing(Arguments):
    """A computation about the whole run."""


class OfFinding(Arguments):
    finding: int = Field(1, ge=1, description="Number of the finding, by potential saving.")


class OfProposal(Arguments):
    proposal: int = Field(1, ge=1, description="Number of the proposal.")


class TwoProposals(OfProposal):
    other: int = Field(0, ge=0, description="Number of another proposal; 0: the current configuration.")


class OfConfiguration(Arguments):
    """A mesh with training keys; what is not given is as in the current configuration."""

    mesh: Sizes = Field(
        default_factory=dict, description="Sizes by axis, such as fsdp=16, tp=4; across slices dcn.data=2."
    )
    changes: Keys = Field(default_factory=dict, description="Training keys, such as remat=none, global_batch=128.")


class OfAxis(Arguments):
    axis: str = Field("", max_length=200, description="A mesh axis, or dcn; empty: all.")


class OfOp(Arguments):
    op: str = Field("#1", max_length=400, description="Name or key of an op, or #n for the n-th longest.")


class OfOps(Arguments):
    words: str = Field("", max_length=200, description="Part of a name, module or category; empty: all.")
    axis: str = Field("", max_length=200, description="Only collectives on this mesh axis.")
    top: int = Field(10, ge=1, le=40)


class OfNumber(Arguments):
    number: str = Field("mfu", max_length=60, description="A key figure: step_time_s, mfu, duty_cycle, communication …")


class OfKey(Arguments):
    key: str = Field("remat", max_length=40, description="A training key, or a mesh axis.")


class OfChip(Arguments):
    chip: str = Field("", max_length=40, description="A chip such as v6e or h100; empty: those of the same kind.")


class OfExperiment(Arguments):
    experiment: int | None = Field(None, ge=1, description="Number of the other experiment; empty: the one before.")


class OfSpending(Arguments):
    tokens: float = Field(1e12, gt=0, le=1e18, description="Tokens of the whole training run.")
    price_per_chip_hour: float | None = Field(None, gt=0, le=1e4, description="Per chip and hour, in any currency.")


def candidate_of(bench: Workbench, asked: OfConfiguration) -> Candidate:
    """The whole configuration.  Raises ToolError for an axis or a key that there is not."""
    config = bench.config
    ici: dict[str, int] = {}
    dcn: dict[str, int] = {}
    for name, size in asked.mesh.items():
        scope, _, plain = name.rpartition(".")
        axis = axis_of(config.mesh, plain.lower(), is_exact=True)
        if axis is None:
            axes = ", ".join(axis for axis, _ in config.mesh.ici)
            raise ToolError(f"{name[:60]!r} is neither a mesh axis of this run ({axes}) nor a role such as fsdp or tp.")
        (dcn if scope == "dcn" else ici)[axis] = size
    now = config.mesh.to_json()
    across = dcn if dcn and prod(dcn.values()) == config.hardware.slices else {**now["dcn"], **dcn}
    try:
        changes = {key: getattr(read_training(config, asked.changes), key) for key in asked.changes}
    except (ConfigError, AttributeError) as error:
        raise ToolError(f"Changes: {error}.") from None
    changes = {key: value for key, value in changes.items() if value != getattr(config.training, key)}
    mesh = {"ici": complete(ici, config) if ici else now["ici"], "dcn": across}
    return Candidate({part: sizes for part, sizes in mesh.items() if sizes}, changes)


def arguments_of(bench: Workbench, of: Any) -> dict[str, Any]:
    """The arguments that name a configuration whole: every axis wider than 1 or that is so now, and its changes."""
    ran = flat_sizes(bench.config.mesh.to_json())
    sizes = {axis: size for axis, size in flat_sizes(of.mesh).items() if size > 1 or ran.get(axis, 1) > 1}
    return {"mesh": sizes, **({"changes": dict(of.changes)} if of.changes else {})}
