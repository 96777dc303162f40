"""What the model alone says of one configuration: step time, memory, broken rules and what it took for granted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from formatting import plain
from perfmodel import legality, memory
from perfmodel.arrays import Floats
from perfmodel.config import ExperimentConfig, Mesh, check_products, framework_of, missing_facts
from perfmodel.efficiency import Efficiencies, EfficiencyTable, ErrorRange, load_efficiencies
from perfmodel.execution import ExecutionProfile, profile_named
from perfmodel.roofline import mfu
from perfmodel.step_time import Priced, combine
from perfmodel.terms import step_terms
from perfmodel.workload import GROUPS, chip_of, from_config

MFU_CONVENTION = (
    "model FLOPs: 6 per matmul parameter per token (embedding lookup excluded, output head included) plus causal "
    "attention scores (half of the full square); recompute excluded; over the dense peak of the training precision"
)


@dataclass(frozen=True)
class Prediction:
    """What the model says of one configuration.  Seconds, bytes, shares 0–1; None where `missing` names what lacks.

    step_time_s: lower, estimate, upper, low80, high80.  breakdown_s: time each resource is asked for (compute at best,
    hbm, ici by axis, dcn, bubble, overhead) and exposed_comms, the part of ici and dcn that the
    estimate does not hide.  parts_s: what the estimate is made of, adding up to it.
    hbm_per_chip_bytes: params, optimizer, gradients, activations, total, capacity.  framework: the execution profile it
    is priced as; error: of held-out runs as far from the measured ones as this configuration; stall: `probability` and
    `step_time_s` of a step that stalls, None where nothing does.  calibrated_from: the run whose evidence it is priced
    by (`price.Evidence.facts`) and the `speedup` {estimate, low80, high80} per token and chip; None without evidence.
    """

    step_time_s: Mapping[str, float] | None = None
    breakdown_s: Mapping[str, Any] | None = None
    parts_s: Mapping[str, Any] | None = None
    hbm_per_chip_bytes: Mapping[str, float | None] | None = None
    fits: bool | None = None
    mfu: float | None = None
    hfu: float | None = None
    tokens_per_s_per_chip: float | None = None
    mfu_convention: str = MFU_CONVENTION
    violations: tuple[legality.Violation, ...] = ()
    missing: tuple[str, ...] = ()
    warnings: tuple[str, ...] = field(default=())
    framework: ExecutionProfile | None = None
    error: ErrorRange | None = None
    stall: Mapping[str, float] | None = None
    calibrated_from: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """The contract's object of `asap predict`."""
        return {
            **{name: getattr(self, name) for name in _NUMBERS},
            "violations": [violation.to_json() for violation in self.violations],
            "missing": list(self.missing),
            "warnings": list(self.warnings),
            "framework": self.framework.name if self.framework else None,
            "error": self.error.to_json() if self.error else None,
            "stall": self.stall,
            **({"calibrated_from": dict(self.calibrated_from)} if self.calibrated_from is not None else {}),
        }


_NUMBERS = (
    "step_time_s", "breakdown_s", "parts_s", "hbm_per_chip_bytes", "fits", "mfu", "hfu", "mfu_convention",
    "tokens_per_s_per_chip",
)  # fmt: skip


def predict(config: ExperimentConfig, efficiencies: Efficiencies | EfficiencyTable | None = None) -> Prediction:
    """Step time and memory of one configuration, as far as it says enough.

    efficiencies: a set for this configuration, a table to resolve, or None for the shipped table.  Raises ConfigError
    for a chip that is not known or a mesh whose product is not the number of chips.
    """
    check_products(config)
    missing = missing_facts(config)
    if config.model is None or missing:
        known, fits = memory.before_activations(config) if config.model is not None else (None, None)
        return Prediction(
            hbm_per_chip_bytes=known,
            fits=fits,
            violations=legality.check(config),
            missing=missing,
        )
    if efficiencies is None:
        efficiencies = load_efficiencies()
    error = None
    if isinstance(efficiencies, EfficiencyTable):
        error = efficiencies.errors_of(config)
        efficiencies = efficiencies.for_config(config)
    workload = from_config(config)
    terms = step_terms(workload)
    priced = combine(terms, efficiencies)
    breakdown = by_axis(config.mesh, priced.resources_s)
    # Groups of axes that share an axis share its links.
    lower = max(_first(priced.lower_s), *breakdown["ici"].values(), 0.0)
    used = memory.per_chip(workload)
    profile = profile_named(framework_of(config), chip_of(config.hardware).kind)
    estimate = _first(priced.estimate_s)
    return Prediction(
        step_time_s={
            "lower": lower,
            "estimate": estimate,
            "upper": _first(priced.upper_s),
            "low80": max(lower, _first(priced.low80_s)),
            "high80": _first(priced.high80_s),
        },
        breakdown_s=breakdown | {"exposed_comms": _first(priced.exposed_comms_s)},
        parts_s=by_axis(config.mesh, priced.parts_s),
        hbm_per_chip_bytes={name: _first(value) for name, value in used.parts().items()},
        fits=bool(used.fits.reshape(-1)[0]),
        mfu=mfu(config, estimate, config.training.precision),
        hfu=_first(priced.hardware_flops_s) / estimate,
        tokens_per_s_per_chip=_first(terms.tokens_per_chip) / estimate,
        violations=legality.check(config, used),
        warnings=(*_assumptions(framework_of(config), profile, used), *precision_doubts(config)),
        framework=profile,
        error=error,
        stall=_stall(priced),
    )


def _stall(priced: Priced) -> dict[str, float] | None:
    chance = _first(priced.stall_chance)
    if chance <= 0.0 or _first(priced.stall_s) <= 0.0:
        return None
    return {"probability": chance, "step_time_s": _first(priced.smooth_s) + _first(priced.stall_s)}


def _assumptions(framework: str | None, profile: ExecutionProfile, used: memory.MemoryUse) -> Iterator[str]:
    """What the prediction took for granted of the program and of its memory, in words."""
    if framework is None:
        yield f"The framework (software.framework) is not given: priced as {profile.title}."
    elif not profile.has_measured(framework):
        yield f"No runs of {framework[:60]} were measured: priced as {profile.title}, with a wider interval."
    spared, kept = _first(used.spared), _first(used.activations)
    if spared > 0:
        needed, fitting = plain(kept + spared, "bytes", "predicted"), plain(kept, "bytes", "predicted")
        yield (
            f"training.remat is not given: saving all activations would need {needed}; recompute or offload is assumed "
            f"to leave the {fitting} that fit; its time is part of the step."
        )


def precision_doubts(config: ExperimentConfig) -> tuple[str, ...]:
    """Return a sentence where the chip has no units for the precision, so that it is priced in another; else none."""
    asked, chip = config.training.precision, chip_of(config.hardware)
    if (used := chip.runs_as(asked)) == asked or "peak_flops_per_s" in config.hardware.overrides:
        return ()
    return (f"{chip.title} has no {asked} matmuls: priced as if they ran in {used}.",)


def by_axis(mesh: Mesh, values: Mapping[str, Floats]) -> dict[str, Any]:
    """Flat parts as {compute, hbm, ici {axis: s}, dcn, …}: a group's time goes to its axes by their share of the links.

    A group that spans several axes drives them at once; an axis carries in proportion to the logarithm of its size.
    """
    ici = {axis: 0.0 for axis, _ in mesh.ici}
    rest: dict[str, Any] = {}
    for name, value in values.items():
        if not name.startswith("ici:"):
            rest[name] = _first(value)
            continue
        members = GROUPS[name.removeprefix("ici:")]
        weights = {axis: float(np.log(size)) for axis, size in mesh.ici if mesh.role(axis) in members and size > 1}
        total = sum(weights.values())
        for axis, weight in weights.items():
            ici[axis] += _first(value) * weight / total
    return {"compute": rest.pop("compute"), "hbm": rest.pop("hbm"), "ici": ici, **rest}


def _first(value: Floats) -> float:
    return float(np.asarray(value).reshape(-1)[0])
