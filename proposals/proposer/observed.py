"""What was measured of a step, as evidence for prices: `evidence_of`, and as parts that sentences state: `Observed`.

Taken from the diagnosed ops (self time per step and chip) and the KPIs.  A thin profile shows only some ops: the rest
of the step is then filled up, collectives to the communication KPI, the remainder as the verdict and the listed ops
say, and `coverage` says how much was really seen.  Without a profile the step time is all that was measured, or
nothing, and the parts are the performance model's (`Observed.basis`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import log, prod, sqrt

from diagnosis.report import Diagnosis, OpDiagnosis
from experiments.hlo import text as hlo
from experiments.step_profile import MODEL, PROFILE, STEP_TIME, StepProfile
from experiments.without_profile import without_profile
from perfmodel.calibration import Calibration
from perfmodel.chips import load_chips
from perfmodel.confidence import Confidence
from perfmodel.config import ConfigError, ExperimentConfig, micro_batches, missing_facts
from perfmodel.observation import Observation, ObservedCollective
from perfmodel.prediction import predict as predict_alone
from perfmodel.price import NOTHING, Evidence, lacking
from perfmodel.terms import step_terms
from perfmodel.workload import from_config

#: Work on the chip by the parts of an observation, and as sentences call it: products, kernels of attention, products
#: that wait for their weights from HBM, everything else that streams, the optimizer.
WORK = {
    "compute": "products", "attention": "attention", "hbm:weights": "weights_hbm", "hbm:activations": "activations_hbm",
    "hbm:optimizer": "optimizer",
}  # fmt: skip
#: Traffic as sentences call it, by group of axes (`workload.GROUPS`).
TRAFFIC = {
    "weights": "weights", "expert_weights": "weights", "replica": "weights", "model": "tensor", "seq": "sequence",
    "expert": "expert", "pipeline": "pipeline",
}  # fmt: skip
#: What such traffic carries, and what the time of it is called.
CARRIED = {
    "weights": ("weights and gradients", "weight and gradient communication"),
    "tensor": ("activations", "tensor-parallel communication"),
    "sequence": ("keys and values", "attention communication"),
    "expert": ("tokens", "expert communication"),
    "pipeline": ("activations between stages", "communication between stages"),
}

NOTHING_MEASURED = (
    "The profile has neither a step time nor ops, so no proposals can be made; record more steps and retry."
)
#: Share of peak FLOP/s that large products attain (perfmodel's default for `matmul`).
ATTAINABLE = 0.72


@dataclass(frozen=True)
class Observed:
    """The step that ran, in seconds per step and chip; where no step was marked, only ratios mean something.

    basis: as StepProfile.basis; without a profile every part is predicted.  timed: whether the profile has a step time.
    """

    evidence: Evidence
    basis: str
    timed: bool

    @property
    def calibration(self) -> Calibration:
        assert self.evidence.calibration is not None
        return self.evidence.calibration

    @property
    def step_s(self) -> float:
        return self.calibration.observation.measured_s

    @cached_property
    def parts_s(self) -> dict[str, float]:
        """Time by WORK and TRAFFIC, `dcn`, `unplaced` collectives, and `fixed`: host, input, idle, not attributed."""
        calibration = self.calibration
        parts = dict.fromkeys((*WORK.values(), *TRAFFIC.values(), "dcn", "unplaced"), 0.0)
        if self.basis == PROFILE:
            seen = calibration.observation
            attention = seen.attention_s or 0.0
            for name, word in WORK.items():
                parts[word] = seen.parts_s.get(name, 0.0)
            parts |= {"attention": attention, "products": parts["products"] - attention}
            parts["activations_hbm"] += seen.copies_s
            parts["dcn"] = seen.parts_s.get("dcn", 0.0)
            parts["unplaced"] = calibration.unplaced_s + sum(seen.unexplained_s.values())
            groups = calibration.group_s
        else:
            priced = calibration.price([calibration.baseline])
            values = {name: float(value.reshape(-1)[0]) for name, value in priced.parts_s.items()}
            parts |= {"products": values["compute"], "activations_hbm": values["hbm"], "dcn": values.get("dcn", 0.0)}
            groups = {name: values.get(f"ici:{name}", 0.0) for name in TRAFFIC}
        for name, seconds in groups.items():
            parts[TRAFFIC[name]] += seconds
        return {**parts, "fixed": max(0.0, self.step_s - sum(parts.values()))}


def observe(profile: StepProfile, config: ExperimentConfig, diagnosis: Diagnosis) -> Observation:
    """Return what the profile measured of the step.  Raises ConfigError where there is nothing."""
    if not profile.step_time_s and not diagnosis.ops:
        raise ConfigError("", NOTHING_MEASURED)
    step_s = profile.step_time_s or 1.0
    bars = diagnosis.breakdown_s if profile.step_time_s else diagnosis.breakdown_share
    timed = [
        (op, op.time_s if op.time_s is not None and profile.step_time_s else op.time_share * step_s)
        for op in diagnosis.ops
    ]
    work = dict.fromkeys(WORK, 0.0)
    talking: dict[tuple[tuple[str, ...], str], list[float]] = {}
    resharding: dict[tuple[str, ...], float] = {}
    copies = other = 0.0
    shapes = {op.key: op.hlo for op in profile.ops if op.hlo}
    unneeded = _resharding(diagnosis)
    for op, seconds in timed:
        if op.collective or op.resource in ("ici", "dcn"):
            axes = _axes(op, config)
            if op.key in unneeded:
                resharding[axes] = resharding.get(axes, 0.0) + seconds
                continue
            entry = talking.setdefault((axes, op.collective or ""), [0.0, 0.0])
            entry[0] += seconds
            entry[1] += _on_the_links(op)
        elif (kind := work_of(op)) is not None:
            if kind == "hbm:weights" and not waits_for_weights(shapes.get(op.key, ""), config):
                kind = "compute"
            work[kind] += seconds
            if op.family == "data movement" and kind == "hbm:activations":
                copies += seconds
        else:
            other += seconds
    listed = sum(own for own, _ in talking.values()) + sum(resharding.values())
    seen = sum(work.values()) + listed + other
    busy = max(step_s - sum(bars.get(key, 0.0) for key in ("host", "input", "idle")), 0.0)
    coverage = min(1.0, seen / busy) if busy else 0.0
    arithmetic = _arithmetic_share(profile, diagnosis)
    raised = 1.0
    if seen < busy * 0.98:
        # The collectives that are listed are raised to the communication KPI.
        communication_s = (diagnosis.kpis.get("communication") or 0.0) * step_s
        more = min(busy - seen, max(0.0, communication_s - listed)) if listed else 0.0
        raised += more / listed if listed else 0.0
        _spread(work, busy - seen - more, diagnosis)
    collectives = tuple(
        ObservedCollective(axes, kind, own * raised, flight)
        for (axes, kind), (own, flight) in talking.items()
        if own > 0
    )
    parts = {
        "compute": work["compute"] + work["attention"],
        "hbm:weights": work["hbm:weights"],
        "hbm:activations": work["hbm:activations"] - copies,
        "hbm:optimizer": work["hbm:optimizer"],
        "dcn": 0.0,
        **{name: bars.get(name, 0.0) for name in ("input", "host", "idle")},
    }
    for item in collectives:
        key = "dcn" if item.axes == ("dcn",) else "ici:" + "+".join(item.axes) if item.axes else "ici"
        parts[key] = parts.get(key, 0.0) + item.time_s
    recomputed = sum(seconds for op, seconds in timed if op.phase == "recompute")
    return Observation(
        step_time_s=profile.step_time_s,
        parts_s=parts,
        memory_bytes=profile.memory.peak_bytes,
        flops=_flops(profile, diagnosis, step_s),
        weights_arithmetic_s=work["hbm:weights"] * arithmetic,
        attention_s=work["attention"],
        unexplained_s=resharding,
        copies_s=copies,
        recomputed_s=recomputed / (coverage or 1.0) or None,
        collectives=collectives,
        coverage=coverage,
    )


def recomputes_nothing(config: ExperimentConfig, observed: Observation, diagnosis: Diagnosis) -> bool:
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
    return observed.flops < step_terms(from_config(config)).executed_flops(0.5, attention=False)


def work_of(op: OpDiagnosis) -> str | None:
    """The kind of work of an op that is no collective; None for infeed, host and unattributed time."""
    if op.phase == "optimizer" or op.module == "optimizer":
        return "hbm:optimizer"
    if op.family == "matmul":
        return "hbm:weights" if op.resource == "hbm" else "compute"
    if op.family == "attention kernel":
        return "attention"
    if op.resource == "hbm":
        return "hbm:activations"
    if op.resource == "compute":
        return "compute"
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


#: Roles on whose axes a collective runs, by its kind, where it does not tell its participants: the first that the mesh
#: has.  Permutes are the rings of attention, all-to-alls carry tokens to experts, and the others are the
#: tensor-parallel ones of every layer, but for gradients and parameters, else those of the weights.
_WEIGHTS = (("data", "fsdp", "seq", "expert"), ("replica",))
_CARRIED_BY = {
    "collective-permute": (("seq",),),
    "all-to-all": (("expert",), ("seq",)),
    **dict.fromkeys(("all-reduce", "all-gather", "reduce-scatter", "collective"), (("model",), *_WEIGHTS)),
}


def _axes(op: OpDiagnosis, config: ExperimentConfig) -> tuple[str, ...]:
    """Axes a collective runs on, `dcn` across slices; none where nothing tells."""
    if op.mesh_axis == "dcn":
        return ("dcn",)
    mesh = config.mesh
    if op.mesh_axis is not None:
        named = {op.mesh_axis} if isinstance(op.mesh_axis, str) else set(op.mesh_axis)
        return tuple(axis for axis, size in mesh.ici if axis in named and size > 1)
    carried = _CARRIED_BY.get(op.collective or "", ())
    for roles in _WEIGHTS if carried and op.tensor in ("gradients", "parameters") else carried:
        if axes := tuple(axis for axis, size in mesh.ici if size > 1 and mesh.role(axis) in roles):
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


def _arithmetic_share(profile: StepProfile, diagnosis: Diagnosis) -> float:
    """Of the time of HBM-bound products, what their arithmetic would take at an attainable share of peak."""
    efficiency = {op.key: op.compute_efficiency for op in profile.ops if not op.over_roof}
    rows = [
        (op.time_share, share)
        for op in diagnosis.ops
        if work_of(op) == "hbm:weights" and (share := efficiency.get(op.key)) is not None
    ]
    total = sum(time for time, _ in rows)
    return min(1.0, sum(time * share for time, share in rows) / total / ATTAINABLE) if total else 0.0


def _spread(work: dict[str, float], rest_s: float, diagnosis: Diagnosis) -> None:
    """Spread the time of ops that are not listed: as far as the verdict is confident to the resource it names, the
    remainder like the work that is listed."""
    verdict = diagnosis.bottleneck
    kinds = {"memory": ("hbm:weights", "hbm:activations"), "compute": ("compute", "attention")}.get(verdict.primary)
    named = rest_s * verdict.confidence if kinds else 0.0
    listed = dict(work)
    if not any(listed.values()):
        listed["compute"] = 1.0
    for group, seconds in ((kinds or (), named), (tuple(WORK), rest_s - named)):
        total = sum(listed[kind] for kind in group)
        for kind in group:
            work[kind] += seconds * (listed[kind] / total if total else 1.0 / len(group))


def _flops(profile: StepProfile, diagnosis: Diagnosis, step_s: float) -> float | None:
    utilization, device = diagnosis.kpis.get("flops_utilization"), profile.device
    peak, chip = device.peak_flops_per_s, load_chips().get(device.chip or "")
    if not (utilization and peak and profile.step_time_s):
        return None
    # XProf gives the peak of a core, of which a chip may have two.
    cores = max(1, round(chip.peak("bf16") / peak)) if chip else 1
    return utilization * peak * cores * step_s


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
    config: ExperimentConfig, profile: StepProfile, observation: Observation | None, confidence: Confidence
) -> Evidence:
    """Return what was measured of a run as evidence: its profile (`observe`), its step time, or, where nothing was
    measured, the model's own step in its place.  config: of the run."""
    peak, is_measured, name = profile.memory.peak_bytes, True, "profile"
    if observation is None:
        is_measured = profile.step_time_s is not None
        name = "measured step time" if is_measured else NOTHING.name
        step_s = profile.step_time_s
        if step_s is None:
            predicted = predict_alone(config).step_time_s
            assert predicted is not None
            step_s = predicted["estimate"]
        observation = Observation(step_s, {}, memory_bytes=peak, coverage=0.0)
    stand_in = profile.basis == PROFILE and profile.device.chip != config.hardware.chip
    return Evidence(config, observation, name, peak, stand_in, confidence, is_measured)
