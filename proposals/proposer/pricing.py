"""The prices of candidates as proposals state them: `perfmodel.price` of a run, flattened."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from diagnosis.report import Diagnosis
from experiments.step_profile import PROFILE, StepProfile
from perfmodel.confidence import Confidence
from perfmodel.config import ExperimentConfig, Mesh, missing_facts
from perfmodel.observation import Observation
from perfmodel.prediction import predict as predict_alone
from perfmodel.price import Evidence, transfer_spread
from perfmodel.step_time import Z80
from perfmodel.workload import GROUPS
from proposals.plan import Memory, Predicted, Range
from proposals.proposer.observed import Observed
from proposals.proposer.space import Candidates

Floats = npt.NDArray[np.float64]

#: Verdicts that no mesh or training key answers.  Idle chips wait for a pipeline's other stages or for kernel launches,
#: which both shorten.
OFF_CHIP = ("input", "host")


@dataclass(frozen=True)
class ProposalPrices:
    """Arrays over the candidates.

    time_s: expected step, with its bounds and 80 % interval; gain: log of the speed-up per token (and chip, where there
    are fewer); sigma: the model's own spread of it; spread: the one of the stated range.  parts_s: the candidate's step
    by the names of the diagnosis (`compute`, `hbm`, `ici:<group>`, `dcn`, `input`, `host`, `idle`, `other`), adding up
    to time_s.  seconds: whether the profile had a step time; measured: whether anything was.  confidence: how far gains
    like these were measured to come true.
    """

    assumed: tuple[str, ...]
    time_s: Floats
    lower_s: Floats
    low80_s: Floats
    high80_s: Floats
    upper_s: Floats
    gain: Floats
    sigma: Floats
    spread: Floats
    parts_s: dict[str, Floats]
    seconds: bool
    measured: bool
    confidence: Confidence

    def predicted(self, candidates: Candidates, index: int) -> Predicted:
        """The contract's numbers of one candidate, the same as `price.predict` gives.  What precedents say of it only
        ranks it and moves its confidence."""
        spread = float(self.spread[index])
        parts = {name: float(values[index]) for name, values in self.parts_s.items() if values[index] > 0}
        step = Range(
            lower=float(self.lower_s[index]),
            estimate=float(self.time_s[index]),
            upper=float(self.upper_s[index]),
            low80=float(self.low80_s[index]),
            high80=float(self.high80_s[index]),
        )
        if not self.measured:  # without evidence the interval is that of the model alone
            alone = predict_alone(candidates.configured(index)).step_time_s
            step = Range(**alone) if alone else step
        speedup = float(np.exp(self.gain[index]) / candidates.chips_ratio[index])
        return Predicted(
            step_time_s=step if self.seconds else None,
            speedup=speedup,
            speedup_low80=speedup * float(np.exp(-Z80 * spread)),
            speedup_high80=speedup * float(np.exp(Z80 * spread)),
            sigma=float(self.sigma[index]),
            hbm_per_chip_bytes=_memory(candidates, index),
            breakdown_s=by_axis(parts, candidates.config, candidates.mesh(index)) if self.seconds else {},
            missing=self.assumed if self.seconds else (*self.assumed, "step_time"),
        )


def _memory(candidates: Candidates, index: int) -> Memory | None:
    if missing_facts(candidates.config):
        return None
    return Memory(**{name: float(value[index]) for name, value in candidates.used.parts().items()})


def evidence_of_profile(
    config: ExperimentConfig, profile: StepProfile, diagnosis: Diagnosis, observed: Observed, confidence: Confidence
) -> Evidence:
    """Return the evidence of a profiled run.  config: of the run."""
    return Evidence(
        config,
        observation(observed, profile, diagnosis),
        "profile",
        profile.memory.peak_bytes,
        stand_in=observed.stand_in,
        confidence=confidence,
    )


def observation(observed: Observed, profile: StepProfile, diagnosis: Diagnosis) -> Observation:
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


def price(c: Candidates, evidence: Evidence, observed: Observed, diagnosis: Diagnosis) -> ProposalPrices:
    """Price every candidate under the evidence."""
    calibration = evidence.calibration
    assert calibration is not None
    spreads = [transfer_spread(c.with_change(change), evidence) for change in c.changes]
    transfer = c.per_change(spreads) if any(spreads) else 0.0
    priced = calibration.price_workload(c.work, c.spread(c.mesh_doublings), transfer)
    time_s = c.flat(priced.step_time_s)
    return ProposalPrices(
        assumed=tuple(calibration.assumed),
        time_s=time_s,
        lower_s=c.flat(priced.lower_s),
        low80_s=c.flat(priced.low80_s),
        high80_s=c.flat(priced.high80_s),
        upper_s=c.flat(priced.upper_s),
        gain=np.log(observed.step_s / time_s * c.tokens_ratio * c.chips_ratio),
        sigma=c.flat(priced.sigma),
        spread=c.flat(priced.spread),
        parts_s={name: c.flat(values) for name, values in priced.parts_s.items()},
        seconds=observed.timed,
        measured=evidence.is_measured,
        confidence=calibration.confidence.where_chips_wait(waiting_share(diagnosis, observed)),
    )


def waiting_share(diagnosis: Diagnosis, observed: Observed) -> float:
    """Return the share (0–1) of the step that waits for input, or for the host where that is the verdict."""
    parts = diagnosis.breakdown_share
    share = parts.get("input", 0.0)
    return share + (parts.get("host", 0.0) if diagnosis.bottleneck.primary == "host" else 0.0)


def exposed_s(prices: ProposalPrices, candidates: Candidates) -> float:
    """Return the exposed communication of the current configuration, per step."""
    named = (values for name, values in prices.parts_s.items() if name.startswith("ici") or name == "dcn")
    return float(sum(named, np.zeros(len(candidates)))[candidates.baseline])


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
    if profile.step_time_s is None or not diagnosis.breakdown_s:
        return baseline
    step = baseline.step_time_s.estimate if baseline.step_time_s else profile.step_time_s
    exact = Range(lower=step, estimate=step, upper=step, low80=step, high80=step)
    # Without a profile the bars are predicted, by the same groups of axes as the proposals'.
    parts = diagnosis.breakdown_s if profile.basis == PROFILE else baseline.breakdown_s
    return replace(
        baseline, step_time_s=exact, breakdown_s=dict(parts), speedup=1.0, speedup_low80=1.0, speedup_high80=1.0
    )
