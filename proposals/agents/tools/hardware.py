"""The tool over hardware: a chip as data, the limits of this run, and the run on another chip or number of chips."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil, prod
from typing import Any

from pydantic import Field

from agent.tools import Arguments, ToolError
from formatting import did_you_mean
from perfmodel import roofline as book
from perfmodel.chips import Chip, load_chips
from perfmodel.config import (
    BATCH_ROLES,
    DATA_ROLES,
    TOKEN_ROLES,
    ConfigError,
    ExperimentConfig,
    Hardware,
    Mesh,
    missing_facts,
)
from perfmodel.price import NOTHING, Evidence, predict
from perfmodel.search import SearchedMesh, search
from perfmodel.space import SearchBounds, changed, prime_powers
from proposals import facts
from proposals.agents.tool_result import Result, about, taken
from proposals.agents.tools.shared import Configuration, Counts, Keys, Sizes, broken_rule
from proposals.agents.workbench import Workbench
from proposals.candidate import Candidate, candidate
from proposals.constraints import Constraints
from proposals.proposer.changes import further_changes, given_changes

#: The most chips tried.
MOST_CHIPS = 8192


class OtherHardware(Arguments):
    chip: str = Field("", max_length=40, description="v5p, v6e, h100 …; all: every chip of the kind; empty: the same.")
    chips: Counts = Field((), max_length=6, description="Numbers of chips; empty: as many as now.")
    mesh: Sizes = Field(default_factory=dict, description="Mesh there; empty: the fastest, with its training keys.")
    changes: Keys = Field(default_factory=dict, description="Training keys that change too.")


def hardware(bench: Workbench, asked: OtherHardware) -> Result:
    """This run on another chip, number of chips or mesh: step time, speed-up per token and per chip, memory, on the
    fastest mesh unless one is given. Without arguments its limits: tokens per chip that hide FSDP or DCN, how wide the
    tensor axis may be."""
    config, known = bench.config, load_chips()
    own = chip_named(config.hardware.chip)
    kind = [chip for chip in known.values() if chip.kind == own.kind]
    there = kind if asked.chip == "all" else [chip_named(asked.chip or own.name)]
    other = there[0] if len(there) == 1 and there[0] is not own else None
    base = Result(own=_facts(own, config), there=_facts(other, config) if other else {}, not_known=(), rows=())
    if lacking := missing_facts(config):
        return Result(
            {**base, "not_known": lacking}, note=f"No step time can be predicted: {facts.not_known(lacking)}."
        )
    if there == [own] and not (asked.chips or asked.mesh or asked.changes):
        return Result(base, bounds=_bounds(config, own))
    counts = asked.chips or (config.hardware.chips,)
    rows = [_placed(bench, asked, chip, count) for chip in there for count in counts]
    rows.sort(key=lambda row: -row.speedup_per_token.estimate if row.speedup_per_token and row.fits else 0.0)
    notes = ["Calibrated by this run; another chip widens the interval."] if other or len(there) > 1 else []
    notes += ["What is held does not bind here."] if bench.constraints else []
    return Result({**base, "rows": rows}, note=" ".join(notes))


def chip_named(name: str) -> Chip:
    """Return the chip of this key.  Raises ToolError for one that is not known."""
    known = load_chips()
    if name not in known:
        raise ToolError(f"{name!r} is not a known chip.{did_you_mean(name, list(known))} Known: {', '.join(known)}.")
    return known[name]


def _facts(chip: Chip, config: ExperimentConfig) -> Result:
    """Return a chip as prices take it, per chip; bandwidths one way.  chips_per_vm: of one process, fewer where a host
    runs several VMs."""
    precision = config.training.precision
    peak = chip.peak(precision)
    return taken(
        chip, "title hbm_capacity_bytes hbm_bytes_per_s host_link_bytes_per_s chips_per_host chips_per_vm",
        chip=chip.name, peak_flops_per_s=peak, precision=precision, native_precisions=tuple(chip.peak_flops_per_s),
        ridge_flops_per_byte=peak / chip.hbm_bytes_per_s, matrix_tile=chip.matrix_tile or None,
        link_bytes_per_s=chip.ici_link_bytes_per_s or chip.nvlink_bytes_per_s or None,
        dcn_bytes_per_s_per_chip=chip.dcn_bytes_per_s_per_chip or None, _about=about("stated", chip.title),
    )  # fmt: skip


def _bounds(config: ExperimentConfig, chip: Chip) -> Result:
    """Return the scaling book's limits for this run.

    Tokens per chip (or slice) from which a kind of traffic hides behind compute; shards of the tensor axis up to which
    it does.  batch_divides: what the batch must be a multiple of.
    """
    mesh, training, model, slices = config.mesh, config.training, config.model, config.hardware.slices
    precision, tokens = training.precision, training.global_batch_tokens
    is_tpu, shards = chip.kind == "tpu", mesh.size(*BATCH_ROLES)
    width = (model.d_ff_expert or model.d_ff) if model else None
    hidden_from = book.data_tokens(chip, 1, precision) if is_tpu else book.node_tokens(chip, precision=precision)
    return Result(
        tokens_per_chip=tokens / mesh.size(*TOKEN_ROLES) if tokens else None,
        tokens_per_slice=tokens / slices if tokens else None,
        compute_bound_from=book.hbm_tokens(chip, precision), fsdp_hidden_from=hidden_from,
        dcn_hidden_from=book.slice_tokens(chip, precision, slices) if slices > 1 else None,
        mixed_hidden_from=book.mixed_tokens(chip, width, 1, precision) if is_tpu and width else None,
        tensor_axis=mesh.size("model"),
        tensor_axis_limit=book.tensor_shards(chip, width, precision=precision) if width else None,
        best_fsdp_shards=book.best_data_shards(tokens, width, config.hardware.chips) if tokens and width else None,
        batch_divides=shards * training.grad_accum,
        sequences_per_shard=training.global_batch / shards if training.global_batch else None,
        source="How to Scale Your Model, chapters 1 and 5, at data-sheet bandwidth", _about=about("computed", "limit"),
    )  # fmt: skip


def _placed(bench: Workbench, asked: OtherHardware, chip: Chip, chips: int) -> Result:
    if not 1 <= chips <= MOST_CHIPS:
        raise ToolError(f"{chips} chips are not between 1 and {MOST_CHIPS:,}.")
    try:
        evidence = bench.pricer.evidence if not bench.diagnosis.not_modelled else NOTHING
        best = fastest(bench.config, evidence, chip, chips, asked.changes, asked.mesh)
    except ConfigError as error:
        missing = dict.fromkeys(("step_time_s", "speedup_per_token", "memory_bytes", "fits"))
        return Result(missing, chip=chip.name, title=chip.title, chips=chips, changes={}, reason=str(error))
    return _row(best, bench.config, chip)


def fastest(
    config: ExperimentConfig,
    evidence: Evidence,
    chip: Chip,
    chips: int,
    changes: Mapping[str, Any] | None = None,
    mesh: Mapping[str, int] | None = None,
) -> SearchedMesh:
    """Return a run on other chips, with its prediction: on the mesh given, else on the one that the search puts first,
    with the training keys that are fastest there but for those given.  Raises ConfigError where no mesh is legal."""
    own = config.hardware
    hardware = own if (chip.name, chips) == (own.chip, own.chips) else hardware_for(chip, chips)
    asked = {key: tuple(v) if isinstance(v, list) else v for key, v in given_changes(config, changes or {}).items()}
    there = replace(changed(replace(config, measured=None), asked), hardware=hardware)
    tried = further_changes(there, Constraints(keep_batch=True))  # by the pipeline that ran, if any
    if hardware is not own:
        there = replace(there, mesh=_mesh(config.mesh, hardware))
    if mesh:
        there = candidate(there, Candidate(Configuration(mesh=dict(mesh)).candidate(there).mesh))
        return SearchedMesh(there, predict(there, evidence))
    bounds = SearchBounds(changes=tuple(change for change in tried if set(changes or ()).isdisjoint(change)))
    result = search(there, 1, bounds, evidence)
    if not result.candidates:
        rule = max(result.rejected_by_rule, key=lambda name: result.rejected_by_rule[name], default="memory")
        raise ConfigError("", f"No legal mesh on {chips:,} {chip.name} chips: most break the rule {rule}.")
    return result.candidates[0]


def hardware_for(chip: Chip, chips: int) -> Hardware:
    """Return hardware with a number of chips: the most nearly square slice, several slices beyond a pod; NVLink domains
    on GPUs.  Raises ConfigError if no such hardware exists."""
    if chip.nvlink_domain:
        domain = max(size for size in range(1, chip.nvlink_domain + 1) if chips % size == 0)
        return Hardware(chip.name, (domain, chips // domain))
    pod = prod(chip.pod) if chip.pod else chips
    slices = max(1, ceil(chips / pod))
    while chips % slices:
        slices += 1
    dims = [1] * max(chip.ici_axes, 1)
    for prime, power in reversed(list(prime_powers(chips // slices))):
        for _ in range(power):
            dims[dims.index(min(dims))] *= prime
    return Hardware(chip.name, tuple(sorted(dims)), slices)


def _mesh(mesh: Mesh, hardware: Hardware) -> Mesh:
    """Return a mesh with all chips on the first axis of the batch, and slices on its first axis."""
    axes = [axis for axis, _ in mesh.ici]
    first = next((axis for axis in axes if mesh.role(axis) in DATA_ROLES), "data")
    sizes = dict.fromkeys((*axes, first), 1) | {first: hardware.chips_per_slice}
    own = dict(mesh.dcn)
    across = own if prod(own.values()) == hardware.slices else {next(iter(sizes)): hardware.slices}
    return Mesh(tuple(sizes.items()), tuple(across.items()) if hardware.slices > 1 else (), mesh.axis_roles)


def _row(best: SearchedMesh, config: ExperimentConfig, chip: Chip) -> Result:
    """Return this run on other hardware.  speed-ups: over the current configuration; changes: training keys that are
    not the run's there."""
    there, made, known = best.config, best.prediction, ("estimate", "low80", "high80")
    speed, time, held = (made.calibrated_from or {}).get("speedup") or {}, made.step_time_s, made.hbm_per_chip_bytes
    chips, ratio = there.hardware.chips, there.hardware.chips / config.hardware.chips
    each = {key: speed[key] for key in known if speed.get(key)}  # per token and chip
    capacity, total = (held or {}).get("capacity"), (held or {}).get("total")
    now, then, precision = vars(config.training), vars(there.training), there.training.precision
    return Result(
        chip=chip.name, title=chip.title, chips=chips, mesh=there.mesh.text(), mfu=made.mfu,
        topology="×".join(map(str, there.hardware.topology)), fits=bool(made.fits), memory_bytes=total,
        changes={key: value for key, value in then.items() if value != now[key]},
        step_time_s=Result({key: time[key] for key in known}) if time else None,
        speedup_per_token=Result({key: value * ratio for key, value in each.items()}) if each else None,
        speedup_per_chip=Result(each) if each else None,
        headroom_bytes=capacity - total if capacity is not None and total is not None else None,
        violations=[broken_rule(item.rule, item.message) for item in made.violations],
        doubt="" if (runs := chip.runs_as(precision)) == precision else f"{chip.title} runs {precision} as {runs}.",
        _about=about("predicted", f"{chips} × {chip.name}"),
    )  # fmt: skip
