"""What each candidate would take, by the calibration (`perfmodel.calibration`), and what is added to it.

*Schedule flags* hide part of the exposed communication.  The range grows where the profile lists few ops, and where it
was recorded on another kind of chip.  Further judgements were tried on landscapes kept apart and did not earn their
place (docs/accuracy-calibration.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from diagnosis.report import Diagnosis
from experiments.step_profile import PROFILE, StepProfile
from perfmodel.calibration import Calibration, calibrate
from perfmodel.config import ExperimentConfig, Mesh
from perfmodel.observation import Observation
from perfmodel.priced import Z80
from perfmodel.step_time import missing_facts
from perfmodel.workload import GROUPS
from proposals.plan import Memory, Predicted, Range
from proposals.proposer.changes import exposed_share, shares_of_schedule
from proposals.proposer.confidence import Confidence, shipped
from proposals.proposer.observed import Observed
from proposals.proposer.space import Candidates

Floats = npt.NDArray[np.float64]

#: Verdicts that no mesh or training key answers.  Idle chips wait for a pipeline's other stages or for kernel launches,
#: which both shorten.
OFF_CHIP = ("input", "host")
#: Standard deviation added where the profile was recorded on another kind of chip than the configuration names.
SPREAD_OF_STAND_IN = 0.3
#: Of exposed communication, what schedule flags hide on average, and the spread of that share.
HIDDEN_SHARE = 0.5
HIDDEN_SPREAD = 0.3


@dataclass(frozen=True)
class Prices:
    """Arrays over the candidates.  time_s: expected step; gain: log of the speed-up per token (and chip, where there
    are fewer); sigma: its spread.

    parts_s: the candidate's step by the names of the diagnosis (`compute`, `hbm`, `ici:<group>`, `dcn`, `input`,
    `host`, `idle`, `other`), adding up to time_s.  memory_high_bytes: the most that the measured peak becomes, None
    where no peak was measured.  seconds: whether the profile had a step time.  confidence: how far gains like these
    were measured to come true.  sigma_of_baseline: spread of the logarithm of the baseline's own time, 0 where it was
    measured.
    """

    calibration: Calibration
    time_s: Floats
    gain: Floats
    sigma: Floats
    parts_s: dict[str, Floats]
    memory_high_bytes: Floats | None
    seconds: bool
    confidence: Confidence
    sigma_of_baseline: float = 0.0

    def take(self, keep: npt.NDArray[np.int64]) -> Prices:
        high = self.memory_high_bytes
        return replace(
            self,
            time_s=self.time_s[keep],
            gain=self.gain[keep],
            sigma=self.sigma[keep],
            parts_s={name: values[keep] for name, values in self.parts_s.items()},
            memory_high_bytes=None if high is None else high[keep],
        )

    def predicted(self, candidates: Candidates, index: int) -> Predicted:
        """The contract's numbers of one candidate: the model's, part by part.  What precedents say of it only ranks it
        and moves its confidence.

        The ranges are as wide as measured gains lay around predicted ones.
        """
        gain, sigma = float(self.gain[index]), float(self.sigma[index])
        spread = float(self.confidence.range_sigma(sigma))
        time = float(self.time_s[index])
        parts = {name: float(values[index]) for name, values in self.parts_s.items() if values[index] > 0}
        work = sum(parts.get(name, 0.0) for name in ("compute", "hbm", "ici:model", "dcn"))
        absolute = np.hypot(spread, self.sigma_of_baseline)
        low, high = time * np.exp(-Z80 * absolute), time * np.exp(Z80 * absolute)
        step = Range(
            lower=min(max(parts.values(), default=0.0), float(low)),
            estimate=time,
            upper=max(float(high), time * 1.5, work),
            low80=float(low),
            high80=float(high),
        )
        missing = tuple(self.calibration.assumed)
        speedup = float(np.exp(gain) / candidates.chips_ratio[index])
        return Predicted(
            step_time_s=step if self.seconds else None,
            speedup=speedup,
            speedup_low80=speedup * float(np.exp(-Z80 * spread)),
            speedup_high80=speedup * float(np.exp(Z80 * spread)),
            sigma=sigma,
            hbm_per_chip_bytes=_memory(candidates, index),
            breakdown_s=by_axis(parts, candidates.config, candidates.mesh(index)) if self.seconds else {},
            missing=missing if self.seconds else (*missing, "step_time"),
        )


def _memory(candidates: Candidates, index: int) -> Memory | None:
    if missing_facts(candidates.config):
        return None
    return Memory(**{name: float(value[index]) for name, value in candidates.used.parts().items()})


def observation(
    config: ExperimentConfig, observed: Observed, profile: StepProfile, diagnosis: Diagnosis
) -> Observation:
    """What was measured, in the form the calibration takes."""
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


def calibrated(config: ExperimentConfig, profile: StepProfile, diagnosis: Diagnosis, observed: Observed) -> Calibration:
    return calibrate(config, observation(config, observed, profile, diagnosis))


def price(
    candidates: Candidates,
    calibration: Calibration,
    observed: Observed,
    diagnosis: Diagnosis,
    seconds: bool,
    confidence: Confidence | None = None,
) -> Prices:
    """Price every candidate.  seconds: whether the profile had a step time; confidence: default the shipped fit."""
    c = candidates
    priced = calibration.price_workload(c.work, c.spread(c.mesh_doublings))
    distance, ran = c.doublings(), np.arange(len(c)) == c.baseline
    parts = {name: c.flat(values) for name, values in priced.parts_s.items()}
    each = c.tokens_ratio * c.chips_ratio  # tokens on a chip
    unsure = _hide(parts, c, observed, diagnosis)
    total = sum(parts.values(), np.zeros(len(c)))
    moved = (distance > 0) | c.changes_work()
    thin = 0.1 * (1.0 - observed.coverage) * moved
    stand_in = SPREAD_OF_STAND_IN * float(observed.stand_in) * moved
    sigma = np.sqrt(c.flat(priced.sigma) ** 2 + thin**2 + stand_in**2 + (unsure / total) ** 2)
    high, learnt = priced.memory_high_bytes, confidence or shipped()
    if diagnosis.bottleneck.primary in OFF_CHIP:
        learnt = learnt.where_chips_wait()
    return Prices(
        calibration=calibration,
        time_s=total,
        gain=np.log(observed.step_s / total * each),
        sigma=np.where(ran, 0.0, sigma),
        parts_s=parts,
        memory_high_bytes=None if high is None else c.flat(high),
        seconds=seconds,
        confidence=learnt.where_assumed() if "model" in calibration.assumed else learnt,
    )


def _hide(parts: dict[str, Floats], c: Candidates, observed: Observed, diagnosis: Diagnosis) -> Floats:
    """Takes from each part what schedule flags hide of its exposed communication; returns how unsure that is, in
    seconds."""
    exposed, before = exposed_share(diagnosis) * observed.step_s, float(_communication_s(parts, len(c))[c.baseline])
    unsure = np.zeros(len(c))
    if exposed <= 0 or before <= 0:
        return unsure
    each = [shares_of_schedule(c.config, change, diagnosis) for change in c.changes]
    for name in parts:
        shares = np.array([shares.get(name, 0.0) for shares in each])[c.change_of]
        borne = min(1.0, exposed / before) * shares * parts[name]
        parts[name] = parts[name] - HIDDEN_SHARE * borne
        unsure = unsure + HIDDEN_SPREAD * np.abs(borne)
    return unsure


def _communication_s(parts: dict[str, Floats], count: int) -> Floats:
    """Communication of each candidate."""
    return sum((values for name, values in parts.items() if name.startswith("ici") or name == "dcn"), np.zeros(count))


def exposed_s(prices: Prices, candidates: Candidates, observed: Observed, diagnosis: Diagnosis) -> float:
    """Exposed communication of the current configuration, per step."""
    total = float(_communication_s(prices.parts_s, len(candidates))[candidates.baseline])
    exposed = exposed_share(diagnosis) * observed.step_s
    return min(exposed, total) if total > 0 else exposed


def by_axis(parts: dict[str, float], config: ExperimentConfig, mesh: Mesh) -> dict[str, float]:
    """Parts with `ici:<axis>` in the user's axis names; a group over several axes is listed under their joint name."""
    seconds_by_axis: dict[str, float] = {}
    for name, seconds in parts.items():
        key = name
        if name.startswith("ici:"):
            axes = axes_of_group(name.removeprefix("ici:"), config, mesh)
            key = "ici:" + "+".join(axes) if axes else "ici"
        seconds_by_axis[key] = seconds_by_axis.get(key, 0.0) + seconds
    return seconds_by_axis


def axes_of_group(group: str, config: ExperimentConfig, mesh: Mesh) -> list[str]:
    """The axes of a mesh, larger than one, that communicate as this group."""
    members = GROUPS[group]
    return [axis for axis, size in mesh.ici if size > 1 and config.mesh.role(axis) in members]


def as_measured(profile: StepProfile, diagnosis: Diagnosis, baseline: Predicted) -> Predicted:
    """The baseline's bars are what was measured, not what the model makes of it."""
    if profile.step_time_s is None or baseline.step_time_s is None or not diagnosis.breakdown_s:
        return baseline
    step = baseline.step_time_s.estimate
    exact = Range(lower=step, estimate=step, upper=step, low80=step, high80=step)
    # Without a profile the bars are predicted, by the same groups of axes as the proposals'.
    parts = diagnosis.breakdown_s if profile.basis == PROFILE else baseline.breakdown_s
    return replace(baseline, step_time_s=exact, breakdown_s=dict(parts), speedup=1.0)
