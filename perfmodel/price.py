"""One price: what a configuration takes under the evidence of a run.  Every page, command, tool and campaign asks here.

    evidence = evidence_of(config)            # the configuration's own `measured`, or NOTHING
    predict(other, evidence).step_time_s["estimate"]

The same configuration (`config_key`) under the same evidence (`Evidence.digest`) has one step time, one
interval, one memory verdict and one list of violations, whoever asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from math import log
from typing import Any

import numpy as np

from formatting import compared, listed, plain
from perfmodel import legality, memory
from perfmodel.arrays import Floats, kept
from perfmodel.calibration import Calibration, Prices, calibrate
from perfmodel.confidence import Confidence
from perfmodel.config import (
    ConfigError,
    ExperimentConfig,
    Mesh,
    check_products,
    config_key,
    filled_from,
    framework_of,
    missing_facts,
    placement,
)
from perfmodel.config_file import with_mesh
from perfmodel.efficiency import load_efficiencies
from perfmodel.legality import MemoryPosterior, MemoryRun, memory_posterior
from perfmodel.observation import Observation
from perfmodel.prediction import Prediction, by_axis
from perfmodel.prediction import predict as predict_alone
from perfmodel.roofline import mfu
from perfmodel.step_time import Z80, combine
from perfmodel.terms import step_terms
from perfmodel.workload import Workload, from_config

#: Standard deviation of log(time) added where a candidate runs on another kind of chip than the baseline did: what the
#: model misses of one chip says little about another.
SPREAD_OF_ANOTHER_CHIP = 0.3
#: Measured over predicted step time from which the configuration is more likely wrong than the model.
DOUBTFUL_RATIO = 5.0
_WORDS = {
    "model": "the model",
    "training.global_batch": "the global batch",
    "training.seq_len": "the sequence length",
}


@dataclass(frozen=True)
class Evidence:
    """Measurements of a run; `NOTHING` without any.

    config: the configuration that ran, gaps and all.  observation: of its step; None where only its peak memory is
    known.  name: what pages and answers call the evidence by.  peak_bytes: of the fullest chip.  stand_in: whether the
    profile was recorded on another kind of chip.  confidence: how far gains were measured to come true, None for the
    shipped fit.  is_measured: False where the step of the observation is the model's own, of a run without measurements
    whose candidates are compared.
    """

    config: ExperimentConfig | None = None
    observation: Observation | None = None
    name: str = "nothing measured"
    peak_bytes: float | None = None
    stand_in: bool = False
    confidence: Confidence | None = None
    is_measured: bool = True

    @cached_property
    def digest(self) -> str:
        """The same text for the same evidence, 16 hexadecimal digits; empty for NOTHING."""
        if self.config is None:
            return ""
        told = (config_key(self.config), self.observation, self.peak_bytes, self.stand_in, self.confidence)
        return sha256(repr(told).encode()).hexdigest()[:16]

    @cached_property
    def calibration(self) -> Calibration | None:
        """The calibration from the observation; None without one.  Raises ConfigError as `calibrate`."""
        if self.config is None or self.observation is None:
            return None
        return calibrate(self.config, self.observation, confidence=self.confidence, stand_in=self.stand_in)

    @cached_property
    def memory(self) -> MemoryPosterior:
        """The memory posterior of this workload; what was not run says nothing of it."""
        ran, peak = self.config, self.peak_bytes
        if self.calibration is not None and self.observation is not None:
            ran, peak = self.calibration.baseline, self.observation.memory_bytes
        elif peak is None:
            return MemoryPosterior()
        if ran is None or missing_facts(ran) or not self.is_measured:
            return MemoryPosterior()
        return memory_posterior([MemoryRun(memory.per_chip(from_config(ran)), peak)])

    @cached_property
    def alone(self) -> Prediction:
        """The prediction of the model alone for the run."""
        assert self.config is not None
        return predict_alone(self.config)

    @property
    def step_time_s(self) -> float | None:
        return self.observation.step_time_s if self.observation is not None else None

    @property
    def measured_over_predicted(self) -> float:
        """Measured step time over what the model alone predicts; 1 where one of the two is not known."""
        alone = self.alone.step_time_s
        return self.step_time_s / alone["estimate"] if self.step_time_s and alone else 1.0

    @property
    def facts(self) -> dict[str, Any]:
        """The content of `calibrated_from`."""
        assert self.config is not None
        return {
            "name": self.config.name,
            "evidence": self.name,
            "mesh": self.config.mesh.to_json(),
            "step_time_s": self.step_time_s,
            "peak_memory_bytes": self.peak_bytes,
            "measured_over_predicted": self.measured_over_predicted,
        }

    @property
    def doubts(self) -> tuple[str, ...]:
        """A warning where what was measured is hardly of the configuration: its step too long, its FLOPs or the time of
        its matmuls other than those of model, batch and sequence length."""
        calibration = self.calibration
        if calibration is not None and (found := calibration.disagreement) is not None:
            is_work = found.of == "work"
            where = "in matmuls and attention" if is_work else "and chip"
            recorded, modelled = compared(found.recorded, found.modelled, "s" if is_work else "flops")
            facts = "the assumed model makes" if "model" in calibration.assumed else "model, batch and length make"
            return (
                f"The profile recorded {recorded} per step {where}, but {facts} {modelled}: check model, batch, length "
                "and precision.",
            )
        has_profile = self.observation is not None and any(self.observation.parts_s.values())
        if has_profile or self.measured_over_predicted < DOUBTFUL_RATIO:
            return ()
        ratio = plain(self.measured_over_predicted, "speedup")
        return (
            f"The measured step time is {ratio} the predicted one: check that model, batch and chips match the run.",
        )

    def filled(self, candidate: ExperimentConfig) -> ExperimentConfig:
        """Return the candidate with what it leaves open of model, batch and sequence length taken from the run."""
        if self.config is None:
            return candidate
        return filled_from(candidate, self.calibration.baseline if self.calibration is not None else self.config)

    def is_run(self, config: ExperimentConfig) -> bool:
        """Return True if the configuration is that of the run, however it is written."""
        return self.config is not None and config_key(self.filled(config)) == config_key(self.filled(self.config))

    def has_step_of(self, config: ExperimentConfig) -> bool:
        """Return True if the configuration is that of the run and its step was measured."""
        return self.calibration is not None and self.is_measured and self.is_run(config)


NOTHING = Evidence()


def evidence_of(config: ExperimentConfig) -> Evidence:
    """Return what a configuration says was measured of itself.

    A step time that cannot calibrate (`lacking`) is no evidence; a peak memory alone is evidence of memory.
    """
    measured = config.measured
    if measured is None or (measured.step_time_s is not None and lacking(config)):
        return NOTHING
    return _evidence_of_measured(config)


@kept(64)
def _evidence_of_measured(config: ExperimentConfig) -> Evidence:
    assert config.measured is not None
    step_s, peak = config.measured.step_time_s, config.measured.peak_memory_bytes
    if step_s is None:
        return Evidence(config, None, "measured peak memory", peak) if peak else NOTHING
    seen = Observation(step_s, {}, memory_bytes=peak, coverage=0.0)
    return Evidence(config, seen, "measured step time", peak)


def baseline_of(config: ExperimentConfig) -> Evidence:
    """Return the evidence of a configuration with a measured step time.

    Raises ConfigError naming the first of `lacking`, or a mesh whose product is not the number of chips.
    """
    check_products(config)
    for field, message in lacking(config).items():
        raise ConfigError(field, message)
    return evidence_of(config)


def transfer_spread(config: ExperimentConfig, evidence: Evidence) -> float:
    """Return the standard deviation of log(time) that a candidate adds for what the calibration does not carry over:
    another chip, model, precision or optimizer, another program; 0 where none of these changes."""
    calibration = evidence.calibration
    if calibration is None:
        return 0.0
    ran = calibration.baseline
    if _carried(config) == _carried(ran):
        return 0.0
    own = predict_alone(config).step_time_s
    if own is None:
        return SPREAD_OF_ANOTHER_CHIP
    spread = log(own["high80"] / own["low80"]) / (2.0 * Z80)
    return float(np.hypot(spread, SPREAD_OF_ANOTHER_CHIP if config.hardware.chip != ran.hardware.chip else 0.0))


def _carried(config: ExperimentConfig) -> tuple[object, ...]:
    """Return the settings that must be the same for a calibration to carry over unchanged."""
    hardware, training = config.hardware, config.training
    return (
        hardware.chip, tuple(sorted(hardware.overrides.items())), config.model, training.precision, training.optimizer,
        training.sequence_parallel, training.loss_parallel, training.xla_flags, framework_of(config),
        config.extra.get("software_year"),
    )  # fmt: skip


def price(configs: Sequence[ExperimentConfig], evidence: Evidence) -> Prices:
    """Price configurations of the run of the evidence, which must hold an observation."""
    assert evidence.calibration is not None
    transfer = [transfer_spread(evidence.filled(config), evidence) for config in configs]
    return evidence.calibration.price(configs, np.array(transfer))


def step_times_s(config: ExperimentConfig, work: Workload, distance: Floats, evidence: Evidence = NOTHING) -> Floats:
    """Return the seconds per step of `predict` for a space of configurations of one run, without parts and spread: what
    orders it.  distance: of each mesh from the run's (`config.mesh_distance`)."""
    if evidence.calibration is not None:
        return evidence.calibration.step_time_s(work, distance)
    return combine(step_terms(work), load_efficiencies().for_config(config)).estimate_s


def predict(config: ExperimentConfig, evidence: Evidence = NOTHING) -> Prediction:
    """Return step time, memory and legality of a configuration under the evidence; the run itself is as measured.

    What the configuration leaves open is taken from the run.  Raises ConfigError for a chip that is not known or a mesh
    whose product is not the number of chips.
    """
    return predict_all([config], evidence)[0]


def predict_all(configs: Sequence[ExperimentConfig], evidence: Evidence = NOTHING) -> tuple[Prediction, ...]:
    """Return `predict` of each configuration."""
    for config in configs:
        check_products(config)
    if evidence.config is None or not evidence.is_measured:
        return tuple(predict_alone(config) for config in configs)
    if evidence.calibration is None:
        return tuple(_with_memory(predict_alone(config), evidence.filled(config), evidence) for config in configs)
    if not configs:
        return ()
    prices = price(configs, evidence)
    return tuple(_one(config, evidence, prices, at) for at, config in enumerate(configs))


def _one(given: ExperimentConfig, evidence: Evidence, prices: Prices, at: int) -> Prediction:
    config = evidence.filled(given)
    own = predict_alone(config)
    assert own.step_time_s is not None and own.breakdown_s is not None

    step = prices.range_at(at)
    ratio, ran = step["estimate"] / own.step_time_s["estimate"], prices.spread[at] == 0.0
    assert evidence.calibration is not None
    per_chip = evidence.calibration.baseline.hardware.chips / config.hardware.chips
    speedup = {"estimate": prices.speedup, "low80": prices.speedup_low80, "high80": prices.speedup_high80}
    prediction = replace(
        own,
        step_time_s=step,
        breakdown_s=_scaled(own.breakdown_s, ratio),
        parts_s=by_axis(config.mesh, _parts(prices, at, config.mesh)),
        mfu=own.mfu / ratio if own.mfu else None,
        hfu=own.hfu / ratio if own.hfu else None,
        tokens_per_s_per_chip=own.tokens_per_s_per_chip / ratio if own.tokens_per_s_per_chip else None,
        warnings=(*own.warnings, *evidence.doubts, *_assumptions(config, given, evidence)),
        # What held-out runs were off by says nothing of a calibrated prediction.
        error=None,
        stall={**own.stall, "step_time_s": own.stall["step_time_s"] * ratio} if own.stall and not ran else None,
        calibrated_from={
            **evidence.facts, "speedup": {name: float(values[at]) * per_chip for name, values in speedup.items()},
        },
    )  # fmt: skip
    return _with_memory(prediction, config, evidence)


def _with_memory(prediction: Prediction, config: ExperimentConfig, evidence: Evidence) -> Prediction:
    """Return the prediction with memory as the evidence corrects it, and the rules that it then breaks."""
    if missing_facts(config):
        return prediction
    used = evidence.memory.corrected(memory.per_chip(from_config(config)))
    fits = bool(evidence.memory.fits(used).reshape(-1)[0])
    return replace(
        prediction,
        hbm_per_chip_bytes={name: float(value.reshape(-1)[0]) for name, value in used.parts().items()},
        fits=fits,
        violations=violations(config, evidence, used),
    )


def violations(
    config: ExperimentConfig, evidence: Evidence, used: memory.MemoryUse | None = None
) -> tuple[legality.Violation, ...]:
    """Return the rules that a configuration breaks under the evidence: the run itself is legal, and a rule that
    it breaks forbids nothing on its own placement.

    used: its memory as the evidence corrects it, where already known; else it is judged if the configuration says
    enough.
    """
    if used is None and not missing_facts(config):
        used = evidence.memory.corrected(memory.per_chip(from_config(config)))
    ran = evidence.config
    if ran is None:
        return legality.check(config, used)
    if evidence.is_run(config):
        return ()
    fits = None if used is None else bool(evidence.memory.fits(used).reshape(-1)[0])
    broken = legality.check(config, used, fits)
    if placement(config.mesh) != placement(ran.mesh) or config.hardware != ran.hardware:
        return broken
    mended = {item.rule for item in legality.check(ran)} - {"memory"}
    return tuple(item for item in broken if item.rule not in mended)


def answer(
    given: ExperimentConfig,
    mesh: Mesh | None = None,
    baseline: Evidence | None = None,
    warnings: Sequence[str] = (),
) -> dict[str, Any]:
    """Return what `asap predict` says of one configuration: its name, mesh and prediction.

    mesh: in place of its own.  baseline: evidence to predict by; without it, what the file says was measured of itself.
    A file with a measured step time is answered with that, and `model_alone` holds what the model says without it.
    warnings: of its file, to stand before the prediction's.  Raises ConfigError.
    """
    config = with_mesh(given, mesh) if mesh is not None else given
    evidence = baseline or evidence_of(given)
    prediction = predict(config, evidence)
    prediction = replace(prediction, warnings=(*warnings, *prediction.warnings))
    answered = {"name": config.name, "mesh": config.mesh.to_json(), **prediction.to_json()}
    if evidence.has_step_of(config):
        answered["model_alone"] = {"step_time_s": predict_alone(evidence.filled(config)).step_time_s}
    return answered


def lacking(config: ExperimentConfig) -> dict[str, str]:
    """Return why nothing can be calibrated from a configuration: sentences by dotted field; empty where it can."""
    missing = {}
    step_s = config.measured.step_time_s if config.measured is not None else None
    if step_s is None:
        missing["measured.step_time_s"] = (
            "is missing; give the mean step time of the run, in seconds, as measured: {step_time_s: 2.31}"
        )
    for name in missing_facts(config):
        missing[name] = (
            f"is missing; without {_WORDS[name]} a step time alone does not allow predictions for other configurations"
        )
    if missing or step_s is None:
        return missing
    check_products(config)
    least = mfu(config, 1.0, config.training.precision)
    if least is not None and step_s < least:
        chips = f"{config.hardware.chips:,} {config.hardware.chip}"
        given, floor = compared(step_s, least, "s")
        missing["measured.step_time_s"] = (
            f"is {given}, but the model's FLOPs take at least {floor} at the peak of {chips}; check the "
            "step time (in seconds), model, batch and chips"
        )
    return missing


def _assumptions(config: ExperimentConfig, given: ExperimentConfig, evidence: Evidence) -> list[str]:
    assert evidence.config is not None
    said = []
    open_ = [_WORDS[name] for name in missing_facts(given)]
    if open_:
        said.append(f"{listed(open_)} {'are' if len(open_) > 1 else 'is'} taken from the baseline")
    if config.hardware.chip != evidence.config.hardware.chip:
        said.append(
            f"calibrated on {evidence.config.hardware.chip} for {config.hardware.chip}: calibration transfers poorly "
            "between chips, so the interval is wider"
        )
    return said


def _parts(prices: Prices, at: int, mesh: Mesh) -> dict[str, Any]:
    """Return the calibration's parts of one candidate under the names of a prediction; idle time of a pipeline is its
    bubble."""
    names = {"other": "overhead"} | ({"idle": "bubble"} if mesh.size("pipeline") > 1 else {})
    terms: dict[str, Any] = {}
    for name, values in prices.parts_s.items():
        part = "hbm" if name.startswith("hbm") else names.get(name, name)
        terms[part] = terms.get(part, 0.0) + values[at]
    return terms


def _scaled(values: Mapping[str, Any], ratio: float) -> dict[str, Any]:
    return {
        name: _scaled(value, ratio) if isinstance(value, Mapping) else value * ratio for name, value in values.items()
    }
