"""What the tools share: configurations as arguments, predicted rows as results, and errors as sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from math import prod
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from agent.tools import Arguments, ToolError
from experiments.step_profile import MODEL, PROFILE
from perfmodel.config import ConfigError, ExperimentConfig, flat_sizes, mesh_text, micro_batches, missing_facts
from proposals import facts
from proposals.agents.retrieval import Unavailable
from proposals.agents.settings import axis_of, complete, typed_value
from proposals.agents.tool_result import ABOUT, Result, about, taken
from proposals.agents.workbench import ProposalState, Workbench
from proposals.candidate import Candidate, MeshAndChanges, candidate, changes_chips, hardware_of, keeps
from proposals.plan import Memory, Predicted, ProposalPlan, Range
from proposals.proposer.changes import given_changes

#: Changes after which a step holds other tokens, or runs on other chips: its parts are no parts of the same work.
OTHER_WORK = frozenset(("global_batch", "seq_len", "topology", "slices"))


def _pairs(value: object) -> object:
    """Read `fsdp=16, tp=4` as a mapping; whole numbers as such."""
    if not isinstance(value, str):
        return value
    pairs = (part.partition("=") for part in value.replace(";", ",").split(",") if part.strip())
    return {key.strip(): typed_value(text.strip()) for key, _, text in pairs}


Sizes = Annotated[dict[str, Annotated[int, Field(ge=1, le=1_000_000)]], BeforeValidator(_pairs)]
Keys = Annotated[dict[str, Any], BeforeValidator(_pairs)]
#: Whole numbers, also as `64,128`.
Counts = Annotated[
    tuple[int, ...], BeforeValidator(lambda value: value.split(",") if isinstance(value, str) else value)
]


class Configuration(Arguments):
    """A mesh with training keys; what is not given is as in the current configuration."""

    mesh: Sizes = Field(
        default_factory=dict,
        description="Sizes by axis or role, in the run's order; dcn.data across slices; the rest as fits.",
    )
    changes: Keys = Field(
        default_factory=dict,
        description="remat, global_batch, seq_len, grad_accum, weight_sharding, precision, xla_flags …",
    )

    def candidate(self, config: ExperimentConfig) -> Candidate:
        """Return the whole configuration.  Raises ConfigError for an axis or a training key that there is not."""
        sizes: dict[str, dict[str, int]] = {"ici": {}, "dcn": {}}
        for name, size in self.mesh.items():
            scope, _, plain = name.rpartition(".")
            axis = axis_of(config.mesh, plain.lower(), is_exact=True)
            if axis is None:
                axes = ", ".join(axis for axis, _ in config.mesh.ici)
                raise ConfigError(
                    "mesh", f"has {name[:60]!r}, neither an axis of this run ({axes}) nor a role such as fsdp"
                )
            sizes["dcn" if scope == "dcn" else "ici"][axis] = size
        now, across = config.mesh.to_json(), sizes["dcn"]
        across = across if across and prod(across.values()) == config.hardware.slices else {**now["dcn"], **across}
        mesh = {"ici": complete(sizes["ici"], config) if sizes["ici"] else now["ici"], "dcn": across}
        return Candidate({place: each for place, each in mesh.items() if each}, given_changes(config, self.changes))


def arguments_of(config: ExperimentConfig, of: MeshAndChanges) -> dict[str, Any]:
    """Return the arguments that name a configuration whole: every axis wider than 1, or that is so now, and its
    changes."""
    ran = flat_sizes(config.mesh.to_json())
    sizes = {axis: size for axis, size in flat_sizes(of.mesh).items() if size > 1 or ran.get(axis, 1) > 1}
    return {"mesh": sizes, **({"changes": dict(of.changes)} if of.changes else {})}


def mesh_of(text: str) -> dict[str, dict[str, int]]:
    """Return the mesh that a row of a result names, `data 2 · dcn.data 4`."""
    sizes: dict[str, dict[str, int]] = {"ici": {}, "dcn": {}}
    for axis, _, size in (part.partition(" ") for part in text.split(" · ")):
        sizes["dcn" if axis.startswith("dcn.") else "ici"][axis.removeprefix("dcn.")] = int(size)
    return {place: each for place, each in sizes.items() if each}


#: Sentences on what lowers a probability; what is not known of its legality comes first.
DOUBTS = 2


def estimate(of: Range | None) -> Result | None:
    """Return a predicted quantity with its 80 % interval."""
    return taken(of, "estimate low80 high80") if of else None


def predicted(value: Predicted) -> dict[str, Any]:
    """Return the members of a configuration that a prediction fills."""
    speed = Result(estimate=value.speedup, low80=value.speedup_low80, high80=value.speedup_high80)
    return {
        "step_time_s": estimate(value.step_time_s),
        "speedup_per_token": speed if value.speedup is not None else None,
        "memory_bytes": value.hbm_per_chip_bytes.total if value.hbm_per_chip_bytes else None,
        "not_known": value.missing,
    }


def memory_parts(held: Memory | None) -> dict[str, float]:
    """Return the parts of memory per chip that are known."""
    return {key: size for key, size in vars(held).items() if size and key not in ("total", "capacity")} if held else {}


def broken_rule(rule: str, reason: str) -> str:
    """Return why a configuration breaks a rule, in a sentence that names it."""
    return f"{reason.rstrip('.')} ({'' if ':' in rule else 'rule '}{rule})."


def configured(mesh: str, changes: Mapping[str, Any], number: int | None, **more: Any) -> Result:
    """Return a configuration with what is predicted of it.  number: of a proposal."""
    settings = (f"{facts.setting(key)} {value}" for key, value in changes.items())
    typed = ",".join(f"{key}={value}" for key, value in changes.items())
    asked = f"mesh={mesh.replace(' · ', ',').replace(' ', '=')}" + (f"&changes={typed}" if typed else "")
    named = (f"proposal {number}", f"proposal:{number}") if number else (
        " ".join(filter(None, (mesh, *settings))), f"configuration:{asked}")  # fmt: skip
    return Result({ABOUT: about("predicted", *named), "number": number, "mesh": mesh, "changes": dict(changes), **more})


def same_work(configuration: Mapping[str, Any]) -> bool:
    """Return whether a step holds as many tokens as one that ran, on as many chips."""
    return not OTHER_WORK & configuration["changes"].keys()


def row(item: ProposalPlan, bench: Workbench, number: int | None, parts: bool = True, **more: Any) -> Result:
    """Return a priced configuration.

    parts: with the terms of its time and memory; change_s: these less the current ones, where they differ.  doubts:
    what is not known of its legality, and what else lowers its probability.  follows: settings that change with it.
    """
    now, then = bench.plan.baseline.breakdown_s, item.predicted.breakdown_s
    step = item.predicted.step_time_s.estimate if item.predicted.step_time_s else 0.0
    changed = {k: then.get(k, 0.0) - now.get(k, 0.0) for k in dict.fromkeys((*now, *then))} if then else {}
    is_current = keeps(bench.config, item)
    follows: dict[str, int] = {}
    with suppress(ConfigError):
        made = candidate(bench.config, item)
        was, becomes = (int(micro_batches(each.training, each.mesh)) for each in (bench.config, made))
        follows = {"micro_batches": becomes} if becomes not in (was, item.changes.get("grad_accum")) else {}
    return configured(
        mesh_text(item.mesh), item.changes, number, is_current=is_current or None,
        follows=follows,
        chips=hardware_of(bench.config, item.changes).chips if changes_chips(item.changes) else None,
        **predicted(item.predicted),
        runs_and_faster_probability=None if is_current else item.confidence,
        keeping_is_right_probability=item.confidence or None if is_current else None,
        headroom_bytes=item.memory_headroom_bytes,
        memory_parts_bytes=memory_parts(item.predicted.hbm_per_chip_bytes) if parts else {},
        terms_s=dict(then) if parts else {},
        change_s={k: v for k, v in changed.items() if abs(v) > 1e-3 * step} if parts else {},
        violations=tuple(broken_rule(each.rule, each.reason) for each in item.violations),
        doubts=(*_layout(bench.config, item), *item.lowers[:DOUBTS]),
        **more,
    )  # fmt: skip


def _layout(config: ExperimentConfig, item: MeshAndChanges) -> Iterator[str]:
    """Yield that the axes are in another order than in the run, which lays them out otherwise on the links."""
    then, now = (
        [axis for axis, size in dict(each).items() if size > 1] for each in (item.mesh["ici"], config.mesh.ici)
    )
    shared = [axis for axis in now if axis in then]
    if shared != [axis for axis in then if axis in shared]:
        yield f"Axes are not in the run's order, {', '.join(shared)}: another layout on the links."


def current(bench: Workbench) -> Result:
    """Return the current configuration: time as measured, memory as predicted.  Raises ToolError where nothing can be
    priced."""
    with as_tool_error():
        made = bench.plan.baseline
    held, basis = made.hbm_per_chip_bytes, bench.diagnosis.basis
    origin = "measured" if basis == PROFILE else "predicted"
    measured = {} if basis == MODEL else {"step_time_s": "measured"}
    time = made.step_time_s.estimate if made.step_time_s else bench.diagnosis.kpis.get("step_time_s")
    return Result({
        ABOUT: about(origin, "current configuration", "kpi:step_time_s", **measured), "mesh": bench.config.mesh.text(),
        "step_time_s": time, "terms_s": dict(made.breakdown_s), "memory_bytes": held.total if held else None,
        "capacity_bytes": held.capacity if held else None, "measured_peak_bytes": bench.profile.memory.peak_bytes,
        "doubts": [] if bench.diagnosis.not_modelled else bench.pricer.evidence.doubts,
    })  # fmt: skip


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
        return bench.pricer.evaluate(asked.candidate(bench.config), bench.constraints)


#: What a change is compared with: where that is not known, nothing tells by how much it changes.
_DECIDES = {
    "global_batch": ("training.global_batch",), "micro_batch": ("training.global_batch",),
    "seq_len": ("training.seq_len",), "grad_accum": ("training.global_batch", "training.seq_len"),
}  # fmt: skip


def supposed(bench: Workbench, told: Mapping[str, Any]) -> Workbench:
    """Return the run as it is with these facts beside those that are held.  Raises ToolError for one that cannot be."""
    with as_tool_error():
        return bench.under({**bench.facts, **told}) if told else bench


class Absent(ToolError):
    """Say that what was asked for was not recorded, or there is none: an answer, where the question was right."""


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
