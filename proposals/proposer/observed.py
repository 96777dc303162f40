"""Say what one step spent its time on, sorted by what that time scales with, and what of it is evidence.

Taken from the diagnosed ops (self time per step and chip) and the KPIs.  A thin profile shows only some ops: the rest
of the step is then filled up, collectives to the communication KPI, the remainder as the verdict and the listed ops
say, and `coverage` says how much was really seen.  Without a profile, what it would have measured is the performance
model's, scaled to the step, and carries that it is predicted (`Observed.basis`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log, prod, sqrt

import numpy as np

from diagnosis.report import Diagnosis, OpDiagnosis
from experiments.hlo import text as hlo
from experiments.step_profile import MODEL, PROFILE, STEP_TIME, StepProfile
from experiments.without_profile import without_profile
from perfmodel.confidence import Confidence, shipped
from perfmodel.config import ConfigError, ExperimentConfig, micro_batches, missing_facts
from perfmodel.observation import Observation, ObservedCollective
from perfmodel.prediction import predict as predict_alone
from perfmodel.price import NOTHING, Evidence, lacking
from perfmodel.terms import step_terms
from perfmodel.workload import from_config

#: Kinds of communication, by what moves; each scales with the mesh in its own way (`pricing`).
TRAFFIC = ("tensor", "weights", "sequence", "expert", "pipeline", "dcn", "unplaced")
#: Kinds of work on the chip.
WORK = ("products", "attention", "weights_hbm", "activations_hbm", "optimizer")

NOTHING_MEASURED = (
    "The profile has neither a step time nor ops, so no proposals can be made; record more steps and retry."
)
#: Share of peak FLOP/s that large products attain (perfmodel's default for `matmul`).
ATTAINABLE = 0.72


@dataclass(frozen=True)
class Observed:
    """Seconds per step and chip; where no step was marked, shares of the device's time (only ratios mean something).

    work_s: by WORK; `weights_hbm` are products that wait for their weights from HBM, `activations_hbm` everything else
    that streams.  traffic_s: by TRAFFIC.  fixed_s: host, input, idle and what could not be attributed.
    flops: floating-point operations per step and chip, None where the profile does not tell.  weights_arithmetic_s:
    what the products in `weights_hbm` would take if only their arithmetic bound them, from the compute efficiency that
    the roofline gives them.  stand_in: the profile was recorded on another kind of chip than the configuration names.
    coverage: share of the step whose ops were listed.  timed: whether the profile has a step time.  collectives: the
    same time as traffic_s by axes and kind, with the time in flight where the profile has intervals, but for
    resharding_s, by axes: collectives that no parallelism of the mesh needs.  copies_s: of `activations_hbm`, bytes
    moved for layout alone.  recomputed_s: of ops named as repeating the forward pass; None where there are none.
    basis: as StepProfile.basis; without a profile every part is predicted (`from_step_time`).
    """

    step_s: float
    work_s: dict[str, float]
    traffic_s: dict[str, float]
    fixed_s: float
    flops: float | None
    coverage: float
    weights_arithmetic_s: float = 0.0
    stand_in: bool = False
    timed: bool = True
    collectives: tuple[ObservedCollective, ...] = ()
    resharding_s: dict[tuple[str, ...], float] = field(default_factory=dict)
    copies_s: float = 0.0
    recomputed_s: float | None = None
    basis: str = "profile"


def observe(profile: StepProfile, config: ExperimentConfig, diagnosis: Diagnosis) -> Observed:
    """What the step spent its time on: as profiled, else as predicted.  Raises ConfigError where there is nothing."""
    if profile.basis != PROFILE:
        return _predicted(profile, config)
    if not profile.step_time_s and not diagnosis.ops:
        raise ConfigError("", NOTHING_MEASURED)
    step_s = profile.step_time_s or 1.0
    parts = diagnosis.breakdown_s if profile.step_time_s else diagnosis.breakdown_share
    timed = [
        (op, op.time_s if op.time_s is not None and profile.step_time_s else op.time_share * step_s)
        for op in diagnosis.ops
    ]
    work = dict.fromkeys(WORK, 0.0)
    traffic = dict.fromkeys(TRAFFIC, 0.0)
    talking: dict[tuple[tuple[str, ...], str], list[float]] = {}
    resharding: dict[tuple[str, ...], float] = {}
    copies = 0.0
    shapes = {op.key: op.hlo for op in profile.ops if op.hlo}
    unneeded = _resharding(diagnosis)
    other = 0.0
    for op, seconds in timed:
        if op.collective or op.resource in ("ici", "dcn"):
            kind = "unplaced" if op.key in unneeded else traffic_of(op, config)
            axes = _axes(op, kind, config)
            traffic[kind] += seconds
            if op.key in unneeded:
                resharding[axes] = resharding.get(axes, 0.0) + seconds
                continue
            entry = talking.setdefault((axes, op.collective or ""), [0.0, 0.0])
            entry[0] += seconds
            entry[1] += _on_the_links(op)
        elif (work_kind := work_of(op)) is not None:
            if work_kind == "weights_hbm" and not waits_for_weights(shapes.get(op.key, ""), config):
                work_kind = "products"
            work[work_kind] += seconds
            if op.family == "data movement" and work_kind == "activations_hbm":
                copies += seconds
        else:
            other += seconds
    arithmetic = _arithmetic_share(profile, diagnosis)
    idle = sum(parts.get(key, 0.0) for key in ("host", "input", "idle"))
    listed = sum(traffic.values())
    seen = sum(work.values()) + listed + other
    busy = max(step_s - idle, 0.0)
    coverage = min(1.0, seen / busy) if busy else 0.0
    if seen < busy * 0.98:
        rest = _communication(traffic, busy - seen, (diagnosis.kpis.get("communication") or 0.0) * step_s)
        _spread(work, rest, diagnosis)
    return Observed(
        step_s=step_s,
        work_s=work,
        traffic_s=traffic,
        fixed_s=other + idle,
        flops=_flops(profile, diagnosis, step_s),
        coverage=coverage,
        weights_arithmetic_s=work["weights_hbm"] * arithmetic,
        stand_in=profile.device.chip != config.hardware.chip,
        timed=bool(profile.step_time_s),
        collectives=tuple(
            ObservedCollective(axes, kind, own * sum(traffic.values()) / listed, flight)
            for (axes, kind), (own, flight) in talking.items()
            if own > 0
        ),
        resharding_s=resharding,
        copies_s=copies,
        recomputed_s=sum(seconds for op, seconds in timed if op.phase == "recompute") / (coverage or 1.0) or None,
    )


def recomputes_nothing(config: ExperimentConfig, observed: Observed, diagnosis: Diagnosis) -> bool:
    """Whether the profile shows that what the configuration says is recomputed is not.

    Two things must say so: ops of the backward pass are named, none of them as recomputed; and the chip executed fewer
    operations than the model's with half of a recomputation.  Attention kernels, which compilers often do not count,
    are left out of that sum.
    """
    if missing_facts(config) or config.training.remat not in ("full", "offload") or observed.flops is None:
        return False
    phases = {op.phase for op in diagnosis.ops}
    if "recompute" in phases or "backward" not in phases:
        return False
    work = from_config(config)
    terms = step_terms(work)
    forward = terms.dense_forward_s + terms.experts_forward_s
    least = (terms.dense_s + terms.experts_s + terms.head_s + 0.5 * forward) * work.chip.peak
    return observed.flops < float(least.reshape(-1)[0])


def work_of(op: OpDiagnosis) -> str | None:
    """The kind of work of an op that is no collective; None for infeed, host and unattributed time."""
    if op.phase == "optimizer" or op.module == "optimizer":
        return "optimizer"
    if op.family == "matmul":
        return "weights_hbm" if op.resource == "hbm" else "products"
    if op.family == "attention kernel":
        return "attention"
    if op.resource == "hbm":
        return "activations_hbm"
    if op.resource == "compute":
        return "products"
    return None


def _resharding(diagnosis: Diagnosis) -> frozenset[str]:
    """Keys of the collectives that the Analyzer finds no parallelism to need."""
    evidence = (item for finding in diagnosis.findings if finding.rule == "resharding" for item in finding.evidence)
    return frozenset(key for item in evidence for key in item.ops)


#: Exposed share of a transfer's time in flight from which its end is what the chip waited for.
WAITED_FOR = 0.1


def _on_the_links(op: OpDiagnosis) -> float:
    """Seconds that a transfer was on the links: its time in flight where the chip waited for its end, else 0, since one
    that nobody waits for may have ended long before."""
    flight, exposed = op.in_flight_s or 0.0, op.exposed_s or 0.0
    return flight if exposed >= WAITED_FOR * flight else 0.0


#: Roles whose axes carry each kind of traffic where the op itself does not tell its axes.
_CARRIED_BY = {
    "tensor": ("model",),
    "weights": ("data", "fsdp", "seq", "expert"),
    "sequence": ("seq",),
    "expert": ("expert",),
    "pipeline": ("pipeline",),
}


def _axes(op: OpDiagnosis, kind: str, config: ExperimentConfig) -> tuple[str, ...]:
    """Axes a collective runs on, `dcn` across slices; none where nothing tells."""
    if kind == "dcn":
        return ("dcn",)
    mesh = config.mesh
    if op.mesh_axis is not None:
        named = {op.mesh_axis} if isinstance(op.mesh_axis, str) else set(op.mesh_axis)
        return tuple(axis for axis, size in mesh.ici if axis in named and size > 1)
    for roles in (_CARRIED_BY.get(kind, ()), ("replica",) if kind == "weights" else ()):
        axes = tuple(axis for axis, size in mesh.ici if size > 1 and mesh.role(axis) in roles)
        if axes:
            return axes
    return ()


def waits_for_weights(line: str, config: ExperimentConfig) -> bool:
    """Whether an HBM-bound product waits for its weights, rather than for activations that a narrow shard reads over
    and over: by the sizes M, K, N of its HLO line, one of which must be the tokens that a chip multiplies at once.

    True where shapes or tokens are not known: then the profile is believed.
    """
    training, instruction = config.training, hlo.parse(line) if line else None
    if instruction is None or not training.global_batch or not training.seq_len:
        return True
    arrays = sorted((prod(shape.dims) for shape in instruction.operands if len(shape.dims) >= 2), reverse=True)[:2]
    results = [prod(shape.dims) for shape in instruction.results if len(shape.dims) >= 2]
    if len(arrays) < 2 or not results:
        return True
    one, two, out = float(arrays[0]), float(arrays[1]), float(max(results))
    sizes = [sqrt(one * two / out), sqrt(one * out / two), sqrt(two * out / one)]
    mesh = config.mesh
    shards = mesh.token_shards
    rows = training.global_batch * training.seq_len / shards / micro_batches(training, mesh)
    # Experts and splits along the sequence multiply fewer at once.
    at = min(range(3), key=lambda i: abs(log(sizes[i] / rows)))
    if abs(log(sizes[at] / rows)) > 0.2:
        return True
    weights = prod(sizes) / sizes[at]
    return weights >= 0.5 * (one + two + out)


def traffic_of(op: OpDiagnosis, config: ExperimentConfig) -> str:
    """What a collective moves: from its axes, and where they carry two things, from the tensor.

    Without participants its kind must do: permutes are the rings of attention, all-to-alls carry tokens to experts,
    and the others are the tensor-parallel ones of every layer where there is such an axis, else those of the weights.
    """
    if op.mesh_axis is None:
        mesh = config.mesh
        if op.collective == "collective-permute" and mesh.size("seq") > 1:
            return "sequence"
        if op.collective == "all-to-all" and mesh.size("expert", "seq") > 1:
            return "expert" if mesh.size("expert") > 1 else "sequence"
        if op.collective in ("all-reduce", "all-gather", "reduce-scatter", "collective"):
            if op.tensor not in ("gradients", "parameters") and mesh.size("model") > 1:
                return "tensor"
            return "weights" if mesh.size("replica", "data", "fsdp", "seq") > 1 else "unplaced"
        return "unplaced"
    if op.mesh_axis == "dcn":
        return "dcn"
    axes = (op.mesh_axis,) if isinstance(op.mesh_axis, str) else op.mesh_axis
    roles = {config.mesh.role(axis) for axis in axes}
    if op.tensor in ("gradients", "parameters") or roles & {"data", "fsdp", "replica"}:
        return "weights"
    if "expert" in roles:
        return "expert"
    if "model" in roles:
        return "tensor"
    if "seq" in roles:
        return "sequence"
    return "pipeline" if "pipeline" in roles else "unplaced"


def _arithmetic_share(profile: StepProfile, diagnosis: Diagnosis) -> float:
    """Of the time of HBM-bound products, what their arithmetic would take at an attainable share of peak."""
    efficiency = {op.key: op.compute_efficiency for op in profile.ops if not op.over_roof}
    rows = [
        (op.time_share, share)
        for op in diagnosis.ops
        if work_of(op) == "weights_hbm" and (share := efficiency.get(op.key)) is not None
    ]
    total = sum(time for time, _ in rows)
    return min(1.0, sum(time * share for time, share in rows) / total / ATTAINABLE) if total else 0.0


def _communication(traffic: dict[str, float], rest_s: float, communication_s: float) -> float:
    """Raise the collectives that are listed to the communication KPI; what is left of the rest is returned."""
    shown = sum(traffic.values())
    if not shown:
        return rest_s
    more = min(rest_s, max(0.0, communication_s - shown))
    for kind in traffic:
        traffic[kind] *= 1.0 + more / shown
    return rest_s - more


def _spread(work: dict[str, float], rest_s: float, diagnosis: Diagnosis) -> None:
    """Spread the time of ops that are not listed: as far as the verdict is confident to the resource it names, the
    remainder like the work that is listed."""
    verdict = diagnosis.bottleneck
    kinds = {"memory": ("weights_hbm", "activations_hbm"), "compute": ("products", "attention")}.get(verdict.primary)
    named = rest_s * verdict.confidence if kinds else 0.0
    listed = dict(work)
    if not any(listed.values()):
        listed["products"] = 1.0
    for group, seconds in ((kinds or (), named), (WORK, rest_s - named)):
        total = sum(listed[kind] for kind in group)
        for kind in group:
            work[kind] += seconds * (listed[kind] / total if total else 1.0 / len(group))


def _flops(profile: StepProfile, diagnosis: Diagnosis, step_s: float) -> float | None:
    utilization, peak = diagnosis.kpis.get("flops_utilization"), profile.device.peak_flops_per_s
    if utilization and peak and profile.step_time_s:
        return utilization * peak * step_s
    return None


#: Kind of traffic (`observed.TRAFFIC`) of each group of axes (`workload.GROUPS`).
_TRAFFIC_OF = {
    "weights": "weights",
    "expert_weights": "weights",
    "replica": "weights",
    "model": "tensor",
    "seq": "sequence",
    "expert": "expert",
    "pipeline": "pipeline",
}


def start(config: ExperimentConfig) -> StepProfile:
    """Replacement for a profile.  Raises ConfigError where the configuration says too little to price."""
    profile = without_profile(config)
    refuse(profile, config)
    return profile


def refuse(profile: StepProfile, config: ExperimentConfig) -> None:
    """Raise ConfigError where nothing can be proposed without a profile, with what is missing or contradictory."""
    if profile.basis == MODEL:
        for name in missing_facts(config):
            raise ConfigError(name, "is missing; it is required where there is no profile")
    elif profile.basis == STEP_TIME:
        for name, sentence in lacking(config).items():
            raise ConfigError(name, sentence)


def evidence_of(
    config: ExperimentConfig, profile: StepProfile, diagnosis: Diagnosis, observed: Observed, confidence: Confidence
) -> Evidence:
    """Return what was measured of a run as evidence.  config: of the run."""
    if profile.basis != PROFILE:
        return _step_time(config, profile, confidence)
    return Evidence(
        config,
        observation(observed, profile, diagnosis),
        "profile",
        profile.memory.peak_bytes,
        stand_in=observed.stand_in,
        confidence=confidence,
    )


def _step_time(config: ExperimentConfig, profile: StepProfile, confidence: Confidence) -> Evidence:
    """Return the measured step time as evidence, or, where nothing was measured, the model's own step in its place."""
    peak = profile.memory.peak_bytes
    is_measured = profile.step_time_s is not None
    step_s = profile.step_time_s
    if step_s is None:
        predicted = predict_alone(config).step_time_s
        assert predicted is not None
        step_s = predicted["estimate"]
    return Evidence(
        config,
        Observation(step_s, {}, memory_bytes=peak, coverage=0.0),
        "measured step time" if is_measured else NOTHING.name,
        peak,
        confidence=confidence,
        is_measured=is_measured,
    )


def _predicted(profile: StepProfile, config: ExperimentConfig) -> Observed:
    """The predicted parts of the step, by what they scale with.  Raises ConfigError as `refuse`."""
    refuse(profile, config)
    priced = _step_time(config, profile, shipped())
    assert priced.calibration is not None
    prices = priced.calibration.price([config])
    work, traffic, fixed = dict.fromkeys(WORK, 0.0), dict.fromkeys(TRAFFIC, 0.0), 0.0
    for name, values in prices.parts_s.items():
        seconds = float(np.broadcast_to(values, prices.step_time_s.shape)[0])
        kind, _, group = name.partition(":")
        if kind == "compute":
            work["products"] += seconds
        elif kind == "hbm":
            work["activations_hbm"] += seconds
        elif kind == "dcn":
            traffic["dcn"] += seconds
        elif kind == "ici":
            traffic[_TRAFFIC_OF.get(group, "unplaced")] += seconds
        else:
            fixed += seconds
    return Observed(
        step_s=float(prices.step_time_s[0]),
        work_s=work,
        traffic_s=traffic,
        fixed_s=fixed,
        flops=None,
        coverage=0.0,
        basis=profile.basis,
    )


def observation(observed: Observed, profile: StepProfile, diagnosis: Diagnosis) -> Observation:
    """Return what was measured, in the form the calibration takes."""
    work = observed.work_s
    bars = diagnosis.breakdown_s if profile.step_time_s else diagnosis.breakdown_share
    parts = {
        "compute": work["products"] + work["attention"],
        "hbm:weights": work["weights_hbm"],
        "hbm:activations": work["activations_hbm"] - observed.copies_s,
        "hbm:optimizer": work["optimizer"],
        "dcn": observed.traffic_s["dcn"],
        **{name: bars.get(name, 0.0) for name in ("input", "host", "idle")},
    }
    for item in observed.collectives:
        if item.axes != ("dcn",):
            key = "ici:" + "+".join(item.axes) if item.axes else "ici"
            parts[key] = parts.get(key, 0.0) + item.time_s
    return Observation(
        step_time_s=profile.step_time_s,
        parts_s=parts,
        memory_bytes=profile.memory.peak_bytes,
        flops=observed.flops,
        weights_arithmetic_s=observed.weights_arithmetic_s,
        attention_s=work["attention"],
        unexplained_s=observed.resharding_s,
        copies_s=observed.copies_s,
        recomputed_s=observed.recomputed_s,
        collectives=observed.collectives,
        coverage=observed.coverage,
    )
