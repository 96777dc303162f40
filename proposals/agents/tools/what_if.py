"""Tools over other chips, other chip counts, and one setting or axis varied, which the search of proposals does not
cover."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from math import ceil, gcd, prod
from typing import Any, Literal

from pydantic import Field

from agent.tools import Arguments, ToolError
from perfmodel.chips import Chip
from perfmodel.config import DATA_ROLES, ConfigError, ExperimentConfig, Hardware, Mesh
from perfmodel.config_file import read_training
from perfmodel.prediction import Prediction
from perfmodel.price import NOTHING, Evidence, predict_all
from perfmodel.search import search
from perfmodel.space import SearchBounds, prime_powers
from perfmodel.workload import REMAT
from proposals.agents import notation
from proposals.agents.identity import ComparedByIdentity
from proposals.agents.mesh_completion import Sizes, axis_of, fill
from proposals.agents.priced import ChipCounts, Current, Priced, Retargeted, Varied
from proposals.agents.tools import common
from proposals.agents.tools.common import Configuration, as_tool_error, evaluated, number_of, refuse_undecided
from proposals.agents.tools.economics import unknown
from proposals.agents.tools.machine import chip_named
from proposals.agents.workbench import Workbench
from proposals.candidate import Candidate
from proposals.plan import Broken, ProposalPlan

#: The most chips tried for a step time.
MOST_CHIPS = 8192
#: Legal meshes that are compared: time per token ties within a tenth of a percent go to the smaller memory.
CLOSER = 3

Key = Literal["remat", "precision", "weight_sharding", "optimizer", "global_batch", "seq_len", "grad_accum", "axis"]
_VALUES: dict[str, tuple[str, ...]] = {
    "remat": REMAT,
    "precision": ("bf16", "fp8", "int8", "fp32"),
    "weight_sharding": ("none", "zero1", "fsdp"),
    "optimizer": ("adamw", "adafactor", "lion", "sgd"),
}


class OtherHardware(Arguments):
    chip: str = Field("", max_length=40, description="Another chip's key, such as v6e; empty: the same.")
    chips: int | None = Field(None, ge=1, le=MOST_CHIPS, description="Another number of chips; empty: as many.")
    mesh: str = Field("", max_length=200, description="Mesh there, such as fsdp=32, tp=8; empty: the best legal one.")
    changes: dict[str, Any] = Field(default_factory=dict, description="Training keys that change too.")


class Counted(Arguments):
    chip: str = Field("", max_length=40, description="Another chip's key; empty: the same.")
    step_time_s: float | None = Field(None, gt=0, description="Stop at the first count predicted to reach it.")


class Variation(Arguments):
    key: Key = Field(description="What varies: a training key, or `axis`.")
    axis: str = Field("", max_length=60, description="With key `axis`: its name or role.")
    values: tuple[int | str, ...] = Field(
        (), max_length=8, description="Values to try; empty: the usual ones around now."
    )
    of: Configuration | None = Field(None, description="What it varies of; empty: the current configuration.")


class WhatIfTools(common.Tools):
    def retarget(self, asked: OtherHardware) -> Retargeted:
        """The run on another chip or chip count, on the given mesh or the best legal one: step time with interval,
        speed-up per token and per chip, memory per chip, and the mesh. Remat changes if the current policy does not
        fit. Needs model, batch and sequence length."""
        bench = self._bench
        config = known(bench)
        chip = chip_named(asked.chip or config.hardware.chip)
        chips = asked.chips or config.hardware.chips
        with as_tool_error():
            mesh = ComparedByIdentity(_mesh(config, asked.mesh, chip, chips)) if asked.mesh else None
            quote = best(
                ComparedByIdentity(bench.config), evidence_of(bench), chip.name, chips, _frozen(asked.changes), mesh
            )
        return Retargeted(current=self._current(), there=_row(quote, config), note=_note(quote, config, asked.changes))

    def chip_counts(self, asked: Counted) -> ChipCounts:
        """The run on chip counts in powers of two, each on its best legal mesh: the smallest that fits in memory, and
        the smallest that reaches a step time. Needs model, batch and sequence length."""
        bench = self._bench
        config = known(bench)
        chip = chip_named(asked.chip or config.hardware.chip)
        rows: list[Priced] = []
        reached = None
        for chips in _counts(config.hardware.chips if chip.name == config.hardware.chip else 0):
            try:
                quote = best(ComparedByIdentity(config), evidence_of(bench), chip.name, chips, ())
            except ConfigError as error:
                rows.append(Priced(chips=chips, fits=False, reason=error.message))
                continue
            rows.append(_row(quote, config))
            if asked.step_time_s and quote[1].step_time_s and quote[1].step_time_s["estimate"] <= asked.step_time_s:
                reached = chips
                break
            if not asked.step_time_s and chips >= config.hardware.chips and rows[-1].fits:
                break
        return ChipCounts(
            current=self._current(),
            smallest_that_fits_chips=min((row.chips for row in rows if row.fits), default=None),
            wanted_step_time_s=asked.step_time_s,
            reached_with_chips=reached,
            rows=tuple(rows),
        )

    def vary(self, asked: Variation) -> Varied:
        """One training key or one axis over its usual values, everything else unchanged: time per token, memory and
        legality of each."""
        bench = self._bench
        listed = self._axis(asked) if asked.key == "axis" else self._settings(asked)
        rows = []
        for name, one in listed:
            refuse_undecided(bench, one.changes)
            try:
                plan = bench.pricer.evaluate(one, bench.constraints)
            except ConfigError as error:
                rows.append(Priced(value=name, reason=error.message))
                continue
            more = {"now": _is_now(plan, bench), "proposal_number": number_of(bench, plan)}
            rows.append(Priced.model_validate({"value": name, **evaluated(plan), **more}))
        return Varied(varied=asked.axis or asked.key, rows=tuple(rows), current=self._current())

    def _settings(self, asked: Variation) -> Iterator[tuple[str, Candidate]]:
        config, start = self._bench.config, self._start(asked)
        now = start.changes.get(asked.key, getattr(config.training, asked.key))
        values: Sequence[Any] = asked.values or _VALUES.get(asked.key, ())
        if not values:
            if now is None:
                raise ToolError(f"training.{asked.key} is unknown; state its current value to vary it.")
            values = [n for n in (now // 4, now // 2, now, now * 2, now * 4, now * 8) if n >= 1]
        for value in values:
            yield str(value), Candidate(start.mesh, {**start.changes, asked.key: value})

    def _start(self, asked: Variation) -> Candidate:
        """What is varied."""
        own = self._bench.config.mesh.to_json()
        return Candidate(own) if asked.of is None else Candidate({**own, **asked.of.mesh}, asked.of.changes)

    def _axis(self, asked: Variation) -> Iterator[tuple[str, Candidate]]:
        config, start = self._bench.config, self._start(asked)
        axis = axis_of(config.mesh, asked.axis)
        if axis is None:
            raise ToolError(f"{asked.axis!r} is neither an axis of this mesh nor a role.")
        chips = config.hardware.chips_per_slice
        sizes = [int(v) for v in asked.values] or [n for n in (1, 2, 4, 8, 16, 32) if chips % n == 0]
        for size in sizes:
            made = fill(Sizes(ici={axis: size}), start.mesh, chips, config.mesh)
            if made.meshes:
                ici = {**made.meshes[0]["ici"], axis: size} if size > 1 else made.meshes[0]["ici"]
                yield f"{axis} {size}", Candidate({"ici": ici, "dcn": made.meshes[0]["dcn"]}, start.changes)

    def _current(self) -> Current:
        bench = self._bench
        return Current(
            chip=bench.config.hardware.chip,
            chips=bench.config.hardware.chips,
            mesh=bench.config.mesh.to_json(),
            mesh_text=bench.config.mesh.text(),
            step_time_s=bench.diagnosis.kpis.get("step_time_s"),
        )


def known(bench: Workbench) -> ExperimentConfig:
    """The configuration, if all facts that a computation needs are known.  Raises ToolError."""
    if sentence := unknown(bench.config):
        raise ToolError(sentence)
    return bench.config


def hardware_for(chip: Chip, chips: int) -> Hardware:
    """Hardware with a number of chips: the most nearly square slice, several slices beyond a pod; NVLink domains on
    GPUs.  Raises ConfigError if no such hardware exists."""
    if chip.nvlink_domain:
        domain = gcd(chips, chip.nvlink_domain)
        return Hardware(chip.name, (domain, chips // domain))
    pod = prod(chip.pod) if chip.pod else chips
    slices = max(1, ceil(chips / pod))
    while chips % slices:
        slices += 1
    dims = [1] * max(chip.ici_axes, 1)
    left = chips // slices
    for prime, power in reversed(list(prime_powers(left))):
        for _ in range(power):
            dims[dims.index(min(dims))] *= prime
    return Hardware(chip.name, tuple(sorted(dims)), slices)


def _mesh(config: ExperimentConfig, text: str, chip: Chip, chips: int) -> Mesh:
    """A mesh given in words, over other chips: unspecified axes, or those that no longer fit, take the remaining
    factor."""
    hardware = config.hardware
    if (chip.name, chips) != (hardware.chip, hardware.chips):
        hardware = hardware_for(chip, chips)
    base, named = config.mesh.to_json(), notation.sizes(text, config.mesh)
    if not named:
        raise ToolError(f"“{text[:80]}” is not a mesh; write sizes by axis, such as {config.mesh.text()}.")
    across = prod(base["dcn"].values())
    dcn = named.dcn if prod(named.dcn.values()) == hardware.slices else base["dcn"] if across == hardware.slices else {}
    if hardware.slices > 1 and prod(dcn.values()) != hardware.slices:
        dcn = {next(iter(base["dcn"]), next(iter(base["ici"]))): hardware.slices}
    wide = {axis: size for axis, size in base["ici"].items() if size > 1}
    same = {axis: size for axis, size in named.ici.items() if size > 1} == wide  # the current mesh, as far as it goes
    sizes = Sizes() if same else replace(named, dcn={})
    filling = fill(sizes, {"ici": base["ici"], "dcn": {}}, hardware.chips_per_slice, config.mesh)
    if filling.problem:
        raise ToolError(filling.problem)
    kept = {axis: n for axis, n in base["ici"].items() if config.mesh.role(axis) not in DATA_ROLES}
    # where several axes could take the rest, those of the batch do
    mesh = min(filling.meshes, key=lambda one: sum(one["ici"][axis] != size for axis, size in kept.items()))
    return Mesh(tuple(mesh["ici"].items()), tuple(dcn.items()) if hardware.slices > 1 else (), config.mesh.axis_roles)


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
    """The configuration on these chips, its prediction, and what it was calibrated from.

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
    training = replace(config.training, **_training(config, dict(changes)))
    there = replace(config, hardware=hardware, training=training, measured=None)
    if mesh is not None:
        candidates = [replace(there, mesh=mesh.value)]
    elif hardware.chips == config.hardware.chips and hardware.topology == config.hardware.topology:
        candidates = [there]
    else:
        candidates = _candidates(there, evidence.value)
    priced = zip(candidates, predict_all(candidates, evidence.value), strict=True)
    return min(((one, made, made.calibrated_from or {}) for one, made in priced), key=_order)


def _training(config: ExperimentConfig, changes: dict[str, Any]) -> dict[str, Any]:
    read = read_training(config, changes)
    return {key: getattr(read, key) for key in changes}


def _candidates(there: ExperimentConfig, evidence: Evidence) -> list[ExperimentConfig]:
    """Return the configuration on the fastest legal meshes of its hardware."""
    hardware, mesh = there.hardware, there.mesh
    axes = tuple(axis for axis, _ in mesh.ici)
    first = next((axis for axis in axes if mesh.role(axis) in ("data", "fsdp", "replica")), "data")
    sizes = dict.fromkeys(dict.fromkeys((*axes, first)), 1) | {first: hardware.chips_per_slice}
    across = next((axis for axis, _ in mesh.dcn), first)
    start = replace(
        there,
        mesh=Mesh(tuple(sizes.items()), ((across, hardware.slices),) if hardware.slices > 1 else (), mesh.axis_roles),
    )
    result = search(start, CLOSER, SearchBounds(axes=tuple(sizes)), evidence)
    if not result.candidates:
        result = search(start, CLOSER, None, evidence)
    if not result.candidates:
        rule = max(result.rejected_by_rule, key=lambda name: result.rejected_by_rule[name], default="memory")
        raise ConfigError(
            "",
            f"No legal mesh on {hardware.chips:,} {hardware.chip} chips: most break the rule {rule.replace('_', ' ')}.",
        )
    return [item.config for item in result.candidates]


def _row(quote: Quote, config: ExperimentConfig) -> Priced:
    there, made, calibrated = quote
    speed = calibrated.get("speedup") or {}
    ratio = there.hardware.chips / config.hardware.chips
    held = made.hbm_per_chip_bytes
    each = {key: speed[key] for key in ("estimate", "low80", "high80") if speed.get(key)}  # per token and chip
    return Priced.model_validate(
        {
            "chip": there.hardware.chip,
            "chips": there.hardware.chips,
            "topology": "×".join(map(str, there.hardware.topology)),
            "slices": there.hardware.slices,
            "mesh": there.mesh.to_json(),
            "mesh_text": there.mesh.text(),
            "remat": there.training.remat,
            "step_time_s": made.step_time_s or None,
            "speedup_per_token": each["estimate"] * ratio if each else None,
            "speedup_low80": each["low80"] * ratio if each else None,
            "speedup_high80": each["high80"] * ratio if each else None,
            "speedup_per_token_and_chip": each.get("estimate"),
            "tokens_per_s_per_chip": made.tokens_per_s_per_chip,
            "mfu": made.mfu,
            "hbm_per_chip_bytes": held or None,
            "memory_headroom_bytes": _room(held),
            "violations": [Broken(item.rule, item.message) for item in made.violations],
            "fits": bool(made.fits),
        }
    )


def _room(held: Mapping[str, float | None] | None) -> float | None:
    capacity, total = (held.get("capacity"), held.get("total")) if held else (None, None)
    return capacity - total if capacity is not None and total is not None else None


def _note(quote: Quote, config: ExperimentConfig, asked: Mapping[str, Any]) -> str:
    there, now = quote[0], config.training.remat
    note = "Predicted by the performance model, calibrated by this run."
    if there.hardware.chip != config.hardware.chip:
        note = "Predicted by the performance model, calibrated by this run; another chip widens the interval."
    if there.training.remat != asked.get("remat", now):
        note += f" Remat is {there.training.remat} there, because {now} does not fit in its memory."
    return note


def _counts(ran: int) -> Iterator[int]:
    """Powers of two times the odd part of the number that ran."""
    odd = ran or 1
    while odd % 2 == 0:
        odd //= 2
    yield from (odd * 2**n for n in range(2 if odd == 1 else 0, 14) if odd * 2**n <= MOST_CHIPS)


def _is_now(plan: ProposalPlan, bench: Workbench) -> bool | None:
    return (not plan.changes and plan.mesh == bench.config.mesh.to_json()) or None
