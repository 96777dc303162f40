"""The tool over other hardware: a chip as data, and this run on another chip or number of chips."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from math import ceil, gcd, prod
from typing import Annotated, Any

from pydantic import Field

from agent.tools import Arguments, ToolError
from formatting import did_you_mean
from perfmodel.chips import Chip, load_chips
from perfmodel.config import ConfigError, ExperimentConfig, Hardware, Mesh, missing_facts
from perfmodel.config_file import read_training
from perfmodel.prediction import Prediction
from perfmodel.price import NOTHING, Evidence, predict_all
from perfmodel.search import search
from perfmodel.space import SearchBounds, prime_powers
from perfmodel.workload import REMAT
from proposals import facts
from proposals.agents.identity import ComparedByIdentity
from proposals.agents.tool_result import About, Is, ToolResult
from proposals.agents.tools.shared import Estimate, Sizes
from proposals.agents.workbench import Workbench

#: The most chips tried.
MOST_CHIPS = 8192
#: Legal meshes that are compared: time per token ties within a tenth of a percent go to the smaller memory.
CLOSER = 3


class OtherHardware(Arguments):
    chip: str = Field(
        "", max_length=40, description="A chip's key: v5e, v5p, v6e, tpu7x, h100, b200 …; empty: the same."
    )
    chips: tuple[int, ...] = Field((), max_length=6, description="Numbers of chips to price; empty: as many as now.")
    mesh: Sizes = Field(default_factory=dict, description="Mesh there; empty: the best legal one.")
    changes: dict[str, Any] = Field(default_factory=dict, description="Training keys that change too.")


class ChipFacts(ToolResult):
    """A chip as its data sheet has it, per chip."""

    chip: str = ""
    title: str = ""
    peak_flops_per_s: float = 0.0
    precision: str = ""
    native_precisions: tuple[str, ...] = ()
    hbm_usable_bytes: float = 0.0
    hbm_bytes_per_s: float = 0.0
    link_bytes_per_s: float | None = None
    dcn_bytes_per_s_per_chip: float | None = None
    ridge_flops_per_byte: Annotated[float, Is(origin="computed")] = 0.0
    chips_per_host: int = 0
    matrix_tile: int | None = None

    def about(self) -> About:
        return About("stated", self.title)


class RunElsewhere(ToolResult):
    """This run on other hardware.  speed-ups: over the current configuration."""

    chip: str = ""
    chips: int = 0
    topology: str = ""
    mesh: str = ""
    remat: str = ""
    step_time_s: Estimate | None = None
    speedup_per_token: Annotated[Estimate | None, Is(unit="speedup", subject="speed-up per token")] = None
    speedup_per_chip: Annotated[Estimate | None, Is(unit="speedup", subject="speed-up per token and chip")] = None
    mfu: Annotated[float | None, Is(unit="share", subject="MFU")] = None
    memory_bytes: Annotated[float | None, Is(subject="memory per chip")] = None
    headroom_bytes: Annotated[float | None, Is(subject="memory per chip left")] = None
    fits: bool | None = None
    violations: tuple[str, ...] = ()
    reason: str = ""

    def about(self) -> About:
        return About("predicted", f"{self.chips} × {self.chip}")


class HardwareResult(ToolResult):
    """A chip, the run's own beside it, and the run on each number of chips."""

    own: ChipFacts = ChipFacts()
    there: ChipFacts = ChipFacts()
    rows: tuple[RunElsewhere, ...] = ()
    if_each_part_scaled_share: Annotated[
        float | None, Is(unit="share", origin="predicted", subject="step if each part scaled with what bounds it")
    ] = None
    not_known: tuple[str, ...] = ()
    note: str = ""


def hardware(bench: Workbench, asked: OtherHardware) -> HardwareResult:
    """A chip as data beside this run's own, and this run on another chip, number of chips or mesh: step time, speed-up
    per token and per chip, memory, on the best legal mesh unless one is given."""
    config = bench.config
    chip = chip_named(asked.chip or config.hardware.chip)
    own = chip_named(config.hardware.chip)
    base = HardwareResult(own=_facts(own, config), there=_facts(chip, config) if chip is not own else ChipFacts())
    if lacking := missing_facts(config):
        return base.model_copy(
            update={
                "not_known": lacking, "if_each_part_scaled_share": _scaled(bench, own, chip),
                "note": f"No step time can be predicted: {facts.not_known(lacking)}.",
            }
        )  # fmt: skip
    same = chip is own and not asked.chips and not asked.mesh and not asked.changes
    rows = [] if same else [_placed(bench, asked, chip, count) for count in asked.chips or (config.hardware.chips,)]
    note = "Calibrated by this run; another chip widens the interval." if chip is not own and rows else ""
    return base.model_copy(update={"rows": tuple(rows), "note": note})


def _placed(bench: Workbench, asked: OtherHardware, chip: Chip, chips: int) -> RunElsewhere:
    config = bench.config
    if not 1 <= chips <= MOST_CHIPS:
        raise ToolError(f"{chips} chips are not between 1 and {MOST_CHIPS:,}.")
    try:
        mesh = ComparedByIdentity(_mesh(config, asked.mesh, chip, chips)) if asked.mesh else None
        quote = best(ComparedByIdentity(config), evidence_of(bench), chip.name, chips, _frozen(asked.changes), mesh)
    except ConfigError as error:
        return RunElsewhere(chip=chip.name, chips=chips, reason=str(error))
    return _row(quote, config)


def _facts(chip: Chip, config: ExperimentConfig) -> ChipFacts:
    precision = config.training.precision
    peak = chip.peak(precision)
    return ChipFacts(
        chip=chip.name, title=chip.title, peak_flops_per_s=peak, precision=precision,
        native_precisions=tuple(chip.peak_flops_per_s), hbm_usable_bytes=chip.hbm_usable_bytes,
        hbm_bytes_per_s=chip.hbm_bytes_per_s, ridge_flops_per_byte=peak / chip.hbm_bytes_per_s,
        link_bytes_per_s=chip.ici_link_bytes_per_s or chip.nvlink_bytes_per_s or None,
        dcn_bytes_per_s_per_chip=chip.dcn_bytes_per_s_per_chip or None, chips_per_host=chip.chips_per_host,
        matrix_tile=chip.matrix_tile or None,
    )  # fmt: skip


def _scaled(bench: Workbench, own: Chip, there: Chip) -> float | None:
    """Return what would be left of the step (0–1) if compute scaled with peak FLOP/s and HBM time with bandwidth."""
    shares, precision = bench.diagnosis.breakdown_share, bench.config.training.precision
    compute, hbm = shares.get("compute"), shares.get("hbm")
    if there is own or compute is None or hbm is None:
        return None
    flops = there.peak(precision) / own.peak(precision)
    return compute / flops + hbm * own.hbm_bytes_per_s / there.hbm_bytes_per_s + (1 - compute - hbm)


def chip_named(name: str) -> Chip:
    """Raises ToolError for a chip that is not known."""
    known = load_chips()
    if name not in known:
        raise ToolError(f"{name!r} is not a known chip.{did_you_mean(name, list(known))} Known: {', '.join(known)}.")
    return known[name]


def hardware_for(chip: Chip, chips: int) -> Hardware:
    """Return hardware with a number of chips: the most nearly square slice, several slices beyond a pod; NVLink domains
    on GPUs.  Raises ConfigError if no such hardware exists."""
    if chip.nvlink_domain:
        domain = gcd(chips, chip.nvlink_domain)
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


def _mesh(config: ExperimentConfig, sizes: Mapping[str, int], chip: Chip, chips: int) -> Mesh:
    """Return a mesh over these chips; slices are on the first axis.  Raises ConfigError for unknown axes."""
    hardware = config.hardware
    if (chip.name, chips) != (hardware.chip, hardware.chips):
        hardware = hardware_for(chip, chips)
    inside = prod(sizes.values())
    if inside != hardware.chips_per_slice:
        raise ConfigError("mesh", f"has {inside} chips, but a slice there has {hardware.chips_per_slice}")
    own = dict(config.mesh.dcn)
    across = own if prod(own.values()) == hardware.slices else {next(iter(sizes)): hardware.slices}
    dcn = tuple(across.items()) if hardware.slices > 1 else ()
    return Mesh(tuple(sizes.items()), dcn, config.mesh.axis_roles)


def _frozen(changes: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((key, tuple(v) if isinstance(v, list) else v) for key, v in changes.items()))


def evidence_of(bench: Workbench) -> ComparedByIdentity[Evidence]:
    """Return the evidence that prices the run's proposals; NOTHING where none can be priced."""
    try:
        return ComparedByIdentity(bench.pricer.evidence)
    except ConfigError:
        return ComparedByIdentity(NOTHING)


Quote = tuple[ExperimentConfig, Prediction, Mapping[str, Any]]


@lru_cache(maxsize=256)
def best(
    own: ComparedByIdentity[ExperimentConfig],
    evidence: ComparedByIdentity[Evidence],
    chip: str,
    chips: int,
    changes: tuple[tuple[str, Any], ...],
    mesh: ComparedByIdentity[Mesh] | None = None,
) -> Quote:
    """Return the configuration on these chips, its prediction, and what it was calibrated from.

    On the mesh given, or its own where nothing but training keys changes; else on the legal mesh predicted fastest
    per token.  Where it does not fit in memory, with the remat policy that is fastest of those that fit, unless one is
    among the changes.  Raises ConfigError where no legal mesh fits.
    """
    try:
        quote: Quote | None = _price_on_chips(own, evidence, chip, chips, changes, mesh)
    except ConfigError:
        if "remat" in dict(changes):
            raise
        quote = None
    if quote is not None and (quote[1].fits is not False or "remat" in dict(changes)):
        return quote
    # The policy that ran was chosen for the memory that it ran in.
    tried = []
    for policy in REMAT:
        with suppress(ConfigError):
            tried.append(_price_on_chips(own, evidence, chip, chips, (*changes, ("remat", policy)), mesh))
    fitting = [item for item in tried if item[1].fits]
    return min(fitting, key=_order) if fitting else quote or _price_on_chips(own, evidence, chip, chips, changes, mesh)


def _order(quote: Quote) -> tuple[bool, float]:
    return bool(quote[1].violations), (quote[1].step_time_s or {}).get("estimate", 1e30)


def _price_on_chips(
    own: ComparedByIdentity[ExperimentConfig],
    evidence: ComparedByIdentity[Evidence],
    chip: str,
    chips: int,
    changes: tuple[tuple[str, Any], ...],
    mesh: ComparedByIdentity[Mesh] | None,
) -> Quote:
    config = own.value
    hardware = config.hardware
    if (chip, chips) != (hardware.chip, hardware.chips):
        hardware = hardware_for(chip_named(chip), chips)
    read = read_training(config, dict(changes))
    training = replace(config.training, **{key: getattr(read, key) for key, _ in changes})
    there = replace(config, hardware=hardware, training=training, measured=None)
    if mesh is not None:
        candidates = [replace(there, mesh=mesh.value)]
    elif hardware.chips == config.hardware.chips and hardware.topology == config.hardware.topology:
        candidates = [there]
    else:
        candidates = list(_candidates(there, evidence.value))
    priced = zip(candidates, predict_all(candidates, evidence.value), strict=True)
    return min(((one, made, made.calibrated_from or {}) for one, made in priced), key=_order)


def _candidates(there: ExperimentConfig, evidence: Evidence) -> Iterator[ExperimentConfig]:
    """Yield the configuration on the fastest legal meshes of its hardware.  Raises ConfigError where there is none."""
    hardware, mesh = there.hardware, there.mesh
    axes = tuple(axis for axis, _ in mesh.ici)
    first = next((axis for axis in axes if mesh.role(axis) in ("data", "fsdp", "replica")), "data")
    sizes = dict.fromkeys((*axes, first), 1) | {first: hardware.chips_per_slice}
    across = next((axis for axis, _ in mesh.dcn), first)
    dcn = ((across, hardware.slices),) if hardware.slices > 1 else ()
    start = replace(there, mesh=Mesh(tuple(sizes.items()), dcn, mesh.axis_roles))
    result = search(start, CLOSER, SearchBounds(axes=tuple(sizes)), evidence)
    if not result.candidates:
        result = search(start, CLOSER, None, evidence)
    if not result.candidates:
        rule = max(result.rejected_by_rule, key=lambda name: result.rejected_by_rule[name], default="memory")
        chips = f"{hardware.chips:,} {hardware.chip} chips"
        raise ConfigError("", f"No legal mesh on {chips}: most break the rule {rule.replace('_', ' ')}.")
    yield from (item.config for item in result.candidates)


def _row(quote: Quote, config: ExperimentConfig) -> RunElsewhere:
    there, made, calibrated = quote
    speed = calibrated.get("speedup") or {}
    ratio = there.hardware.chips / config.hardware.chips
    each = {key: speed[key] for key in ("estimate", "low80", "high80") if speed.get(key)}  # per token and chip
    held, time = made.hbm_per_chip_bytes or {}, made.step_time_s or {}
    capacity, total = held.get("capacity"), held.get("total")
    known = ("estimate", "low80", "high80")
    return RunElsewhere(
        chip=there.hardware.chip, chips=there.hardware.chips, topology="×".join(map(str, there.hardware.topology)),
        mesh=there.mesh.text(), remat=there.training.remat,
        step_time_s=Estimate(**{key: time[key] for key in known}) if time else None,
        speedup_per_token=Estimate(**{key: value * ratio for key, value in each.items()}) if each else None,
        speedup_per_chip=Estimate(**each) if each else None, mfu=made.mfu, memory_bytes=total,
        headroom_bytes=capacity - total if capacity is not None and total is not None else None, fits=bool(made.fits),
        violations=tuple(f"{item.rule}: {item.message}" for item in made.violations),
    )  # fmt: skip
