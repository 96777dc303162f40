"""What each candidate mesh would take: the profile's own step, rescaled by the performance model.

The calibration (`perfmodel.calibration`) rescales every measured part.  Two judgements are added, each with its reason:

*Stalls.*  A collective on the critical path costs more than its own time: products around it cannot be fused or
overlapped, and chips wait for each other.  Where the verdict is communication, yet the collectives' own time is below
the share at which XProf itself would call it so, the difference is taken from time that the roofline does not explain,
as far as the verdict is confident.  It follows the collectives that block: tensor parallelism in full, ring exchanges
of attention half, weights and gradients not at all, since they can be done ahead (scaling book 5.1.3, 5.1.4).

*Causal imbalance.*  Where a causal sequence is cut into S contiguous parts, the last does (2S−1)/S times the mean work;
a balanced layout does the mean.  Which one runs is not known, so half of the difference is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnosis.report import Diagnosis
from experiments.step_profile import StepProfile
from perfmodel import memory
from perfmodel.calibration import Calibration, Observation, calibrate
from perfmodel.config import ExperimentConfig
from perfmodel.step_time import Z80
from proposals.plan import Predicted
from proposals.proposer.observed import Observed
from proposals.proposer.space import Meshes

Floats = npt.NDArray[np.float64]

#: Share of the step from which XProf's rules call communication the bottleneck (smart_suggestion/constants.h).
COMMUNICATION_SHARE = 0.30
#: How much of its own time a collective blocks others.
BLOCKS = {"tensor": 1.0, "expert": 1.0, "sequence": 0.5, "weights": 0.0}
_GROUP_OF = {"tensor": "model", "expert": "expert", "sequence": "seq"}
#: Further standard deviation of log(time) per doubling moved, where the model's shape is not known: published steps of
#: one doubling moved by up to 28 % where the profile's own terms explained next to nothing (ASAP paper, experiment 1).
SPREAD_PER_DOUBLING_UNKNOWN = 0.06
#: The same where it is known; part of it is in the calibration already.
SPREAD_PER_DOUBLING_KNOWN = 0.02
#: Standard deviation added where the profile was recorded on another kind of chip than the configuration names.
SPREAD_OF_STAND_IN = 0.3


@dataclass(frozen=True)
class Prices:
    """Arrays over the meshes.  time_s: expected step; gain: log of the speed-up per token; sigma: its spread.

    parts_s: the candidate's step by the names of the diagnosis (`compute`, `hbm`, `ici:<group>`, `dcn`, `input`,
    `host`, `idle`, `other`), adding up to time_s.  memory: per chip by part where model, batch and length are known.
    """

    calibration: Calibration
    time_s: Floats
    gain: Floats
    sigma: Floats
    parts_s: dict[str, Floats]
    memory: memory.MemoryUse | None
    stall_s: float

    def predicted(self, index: int, config: ExperimentConfig, seconds: bool) -> Predicted:
        """The contract's numbers of one candidate.  seconds: whether the profile had a step time."""
        time, sigma = float(self.time_s[index]), float(self.sigma[index])
        gain = float(self.gain[index])
        parts = {name: float(values[index]) for name, values in self.parts_s.items() if values[index] > 0}
        work = sum(parts.get(name, 0.0) for name in ("compute", "hbm", "ici:model", "dcn"))
        low, high = time * np.exp(-Z80 * sigma), time * np.exp(Z80 * sigma)
        step = {
            "lower": min(max(parts.values(), default=0.0), float(low)),
            "estimate": time,
            "upper": max(float(high), time * 1.5, work),
            "low80": float(low),
            "high80": float(high),
        }
        missing = tuple(self.calibration.assumed)
        return Predicted(
            step_time_s=step if seconds else None,
            speedup=float(np.exp(gain)),
            speedup_low80=float(np.exp(gain - Z80 * sigma)),
            speedup_high80=float(np.exp(gain + Z80 * sigma)),
            hbm_per_chip_bytes=self._memory(index),
            breakdown_s=_by_axis(parts, config) if seconds else {},
            missing=missing if seconds else (*missing, "step_time"),
        )

    def _memory(self, index: int) -> dict[str, float] | None:
        if self.memory is None:
            return None
        parts = self.memory.parts()
        return {
            name: float(np.broadcast_to(value, (len(self.time_s), 1, 1, 1)).reshape(-1)[index])
            for name, value in parts.items()
        }


#: Roles whose axes carry each kind of traffic, as the calibration groups them.
_CARRIED_BY = {
    "tensor": ("model",),
    "weights": ("data", "fsdp", "seq", "expert"),
    "sequence": ("seq",),
    "expert": ("expert",),
    "pipeline": ("pipeline",),
}


def observation(
    config: ExperimentConfig, observed: Observed, profile: StepProfile, diagnosis: Diagnosis
) -> Observation:
    """What was measured, in the form the calibration takes."""
    work = observed.work_s
    bars = diagnosis.breakdown_s if profile.step_time_s else diagnosis.breakdown_share
    parts = {
        "compute": work["products"] + work["attention"],
        "hbm:weights": work["weights_hbm"],
        "hbm:activations": work["activations_hbm"],
        "hbm:optimizer": work["optimizer"],
        "dcn": observed.traffic_s["dcn"],
        **{name: bars.get(name, 0.0) for name in ("input", "host", "idle")},
    }
    for kind, seconds in observed.traffic_s.items():
        axes = _axes_of(config, _CARRIED_BY.get(kind, ()))
        if kind == "weights" and not axes:
            axes = _axes_of(config, ("replica",))
        if kind != "dcn" and seconds:
            key = "ici:" + "+".join(axes) if axes else "ici"
            parts[key] = parts.get(key, 0.0) + seconds
    return Observation(
        step_time_s=profile.step_time_s,
        parts_s=parts,
        memory_bytes=profile.memory.peak_bytes,
        flops=observed.flops,
        weights_arithmetic_s=observed.weights_arithmetic_s,
    )


def _axes_of(config: ExperimentConfig, roles: tuple[str, ...]) -> list[str]:
    return [axis for axis, size in config.mesh.ici if size > 1 and config.mesh.role(axis) in roles]


def calibrated(config: ExperimentConfig, profile: StepProfile, diagnosis: Diagnosis, observed: Observed) -> Calibration:
    return calibrate(config, observation(config, observed, profile, diagnosis))


def price(meshes: Meshes, calibration: Calibration, observed: Observed, diagnosis: Diagnosis) -> Prices:
    """Price every mesh of the space."""
    count = len(meshes)
    workload = meshes.workload()
    distance = meshes.doublings()
    priced = calibration.price_workload(workload, distance[:, None, None, None])

    def flat(values: Floats) -> Floats:
        return np.array(np.broadcast_to(values, (count, 1, 1, 1)).reshape(count), dtype=np.float64)

    parts = {name: flat(values) for name, values in priced.parts_s.items()}
    shifts = _stalls(parts, meshes.baseline, observed, diagnosis)
    shifts += observed.work_s["attention"] * (_imbalance(meshes) - 1.0)
    parts["compute"] = np.maximum(parts["compute"] + shifts, 0.05 * parts["compute"])
    hbm = [name for name in parts if name.startswith("hbm:")]
    parts["hbm"] = sum((parts.pop(name) for name in hbm), parts["hbm"])
    total = sum(parts.values(), np.zeros(count))
    known = "model" not in calibration.assumed
    # Each doubling errs on its own, so the errors add in quadrature.
    spread = (SPREAD_PER_DOUBLING_KNOWN if known else SPREAD_PER_DOUBLING_UNKNOWN) * np.sqrt(distance)
    thin = 0.1 * (1.0 - observed.coverage) * (distance > 0)
    stand_in = SPREAD_OF_STAND_IN * float(observed.stand_in) * (distance > 0)
    sigma = np.sqrt(flat(priced.sigma) ** 2 + spread**2 + thin**2 + stand_in**2)
    # What the ops leave of the step stays; where they overlap and sum to more, all parts share the excess.
    rest = observed.step_s - float(total[meshes.baseline])
    if rest >= 0:
        parts["other"] = parts["other"] + rest
    else:
        ratio = observed.step_s / float(total[meshes.baseline])
        parts = {name: values * ratio for name, values in parts.items()}
    total = sum(parts.values(), np.zeros(count))
    full = known and not calibration.assumed
    return Prices(
        calibration=calibration,
        time_s=total,
        gain=np.log(observed.step_s / total),
        sigma=np.where(distance == 0, 0.0, sigma),
        parts_s=parts,
        memory=memory.per_chip(workload) if full else None,
        stall_s=stalled_s(observed, diagnosis),
    )


def stalled_s(observed: Observed, diagnosis: Diagnosis) -> float:
    """Time per step that the verdict puts down to waiting around collectives, beyond their own time; see above."""
    verdict = diagnosis.bottleneck
    if verdict.primary != "communication":
        return 0.0
    own = sum(observed.traffic_s.values())
    missing = COMMUNICATION_SHARE * observed.step_s - own
    unexplained = observed.work_s["products"] + observed.work_s["attention"]
    efficiency = diagnosis.kpis.get("flops_utilization")
    if efficiency is not None:
        unexplained *= max(0.0, 1.0 - efficiency)
    return max(0.0, min(missing, unexplained)) * verdict.confidence


def _stalls(parts: dict[str, Floats], baseline: int, observed: Observed, diagnosis: Diagnosis) -> Floats:
    """Change of the stalled time with the collectives that cause it."""
    change = np.zeros_like(next(iter(parts.values())))
    stalled = stalled_s(observed, diagnosis)
    weights = {kind: observed.traffic_s[kind] * share for kind, share in BLOCKS.items()}
    total = sum(weights.values())
    if not stalled or not total:
        return change
    for kind, weight in weights.items():
        if not weight:
            continue
        own = parts[f"ici:{_GROUP_OF[kind]}"]
        ratio = own / own[baseline] if own[baseline] > 0 else np.ones_like(own)
        change = change + stalled * weight / total * (np.minimum(ratio, 3.0) - 1.0)
    return change


def _imbalance(meshes: Meshes) -> Floats:
    """Time of causal attention relative to what ran, from the imbalance of the sequence's parts alone."""
    shards = meshes.role("seq").astype(np.float64)
    factor = 1.0 + 0.5 * (1.0 - 1.0 / shards)
    return np.asarray(factor / factor[meshes.baseline])


def _by_axis(parts: dict[str, float], config: ExperimentConfig) -> dict[str, float]:
    """Parts with `ici:<axis>` in the user's axis names; a group over several axes stands under their joint name."""
    from perfmodel.workload import GROUPS

    found: dict[str, float] = {}
    for name, seconds in parts.items():
        key = name
        if name.startswith("ici:"):
            members = GROUPS[name.removeprefix("ici:")]
            axes = [axis for axis, size in config.mesh.ici if size > 1 and config.mesh.role(axis) in members]
            key = "ici:" + "+".join(axes) if axes else "ici"
        found[key] = found.get(key, 0.0) + seconds
    return found
