"""Prices from a measured baseline: a configuration whose step time is known calibrates what others would take.

baseline = baseline_of(config)              # config.measured.step_time_s is what was measured
prices = baseline.price([candidate, …])
prices[0].prediction.step_time_s["estimate"], prices[0].calibrated_from["speedup"]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, hypot, log
from typing import Any

import numpy as np

from formatting import compared, listed, plain
from perfmodel import legality, memory
from perfmodel.calibration import Calibration, calibrate
from perfmodel.config import ConfigError, ExperimentConfig, Mesh
from perfmodel.config_file import with_mesh
from perfmodel.execution import framework_of
from perfmodel.observation import Observation
from perfmodel.priced import Z80
from perfmodel.prices import CalibratedPrices
from perfmodel.step_time import Prediction, by_axis, check_products, missing_facts, predict
from perfmodel.topology import Floats
from perfmodel.workload import Workload, from_config

#: What a calibration carries over to: training keys whose effect on every term is modelled.
CARRIED = ("global_batch", "seq_len", "grad_accum", "micro_batch", "virtual_stages", "weight_sharding", "remat")
#: Standard deviation of log(time) added where the candidate runs on another kind of chip than the baseline did: what
#: one chip misses of the model says little about the other.
SPREAD_OF_ANOTHER_CHIP = 0.3
#: Measured over predicted step time from which the configuration is more likely wrong than the model.
DOUBTFUL_RATIO = 5.0
#: Names of a calibration's parts that a prediction calls otherwise.
_PREDICTED_NAMES = {"idle": "bubble", "other": "overhead"}
_WORDS = {
    "model": "the model",
    "training.global_batch": "the global batch",
    "training.seq_len": "the sequence length",
}


@dataclass(frozen=True)
class Calibrated:
    """A prediction relative to a baseline.

    calibrated_from: name and mesh of the baseline, its measured `step_time_s` and `peak_memory_bytes` (None if not
    measured), `measured_over_predicted` step time there, and `speedup` {estimate, low80, high80} of the candidate per
    token.
    """

    prediction: Prediction
    calibrated_from: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The keys of `asap predict`, and `calibrated_from`."""
        return {**self.prediction.to_json(), "calibrated_from": dict(self.calibrated_from)}


@dataclass(frozen=True)
class Baseline:
    """A configuration that ran.  predicted: what the model alone says of it.  Build it with `baseline_of`."""

    config: ExperimentConfig
    calibration: Calibration
    predicted: Prediction

    @property
    def step_time_s(self) -> float:
        assert self.calibration.observation.step_time_s is not None
        return self.calibration.observation.step_time_s

    @property
    def measured_over_predicted(self) -> float:
        assert self.predicted.step_time_s is not None
        return self.step_time_s / self.predicted.step_time_s["estimate"]

    def of_workload(self, workload: Workload) -> tuple[Floats, memory.MemoryUse]:
        """Seconds per step and memory per chip of the candidates of a workload, calibrated from the baseline."""
        seconds = self.calibration.price_workload(workload, np.zeros(1)).step_time_s
        return seconds, self.memory(memory.per_chip(workload))

    def memory(self, used: memory.MemoryUse) -> memory.MemoryUse:
        """Computed memory as the measured peak corrects it; as computed where no peak was measured.

        Weights, gradients and optimizer are what they must be, so that activations and buffers take the difference,
        and those of a candidate as many times of what is computed.  Where not even the states fit into the peak (some
        are offloaded), every part is scaled.
        """
        peak, own = self.calibration.observation.memory_bytes, self.predicted.hbm_per_chip_bytes
        if not peak or own is None:
            return used
        known = {name: value or 0.0 for name, value in own.items()}
        beyond = peak - (known["total"] - known["activations"])
        if beyond > 0:
            return replace(used, activations=used.activations * (beyond / known["activations"]))
        parts = ("params", "optimizer", "gradients", "activations")
        return replace(used, **{name: getattr(used, name) * (peak / known["total"]) for name in parts})

    @property
    def facts(self) -> dict[str, Any]:
        """What `calibrated_from` says of the baseline."""
        return {
            "name": self.config.name,
            "mesh": self.config.mesh.to_json(),
            "step_time_s": self.step_time_s,
            "peak_memory_bytes": self.calibration.observation.memory_bytes,
            "measured_over_predicted": self.measured_over_predicted,
        }

    @property
    def doubts(self) -> tuple[str, ...]:
        """A warning where the measured step is so long that the configuration is hardly that of the run."""
        if self.measured_over_predicted < DOUBTFUL_RATIO:
            return ()
        ratio = plain(self.measured_over_predicted, "speedup")
        return (
            f"measured.step_time_s: is {ratio} the predicted step time; check that model, batch and chips match the "
            "measured run",
        )

    def filled(self, candidate: ExperimentConfig) -> ExperimentConfig:
        """The candidate with what it leaves open of model, batch and sequence length taken from the baseline."""
        training, own = candidate.training, self.config.training
        training = replace(
            training,
            global_batch=training.global_batch or own.global_batch,
            seq_len=training.seq_len or own.seq_len,
        )
        return replace(candidate, model=candidate.model or self.config.model, training=training)

    def price(self, candidates: Sequence[ExperimentConfig]) -> tuple[Calibrated, ...]:
        """Price configurations; the baseline itself comes out as it was measured.

        Raises ConfigError for a mesh whose product is not the number of chips.
        """
        for config in candidates:
            check_products(config)
        filled = [self.filled(config) for config in candidates]
        prices = self.calibration.price(filled)
        return tuple(self._one(config, prices, at, candidates[at]) for at, config in enumerate(filled))

    def _one(self, config: ExperimentConfig, prices: CalibratedPrices, at: int, given: ExperimentConfig) -> Calibrated:
        own = predict(config)
        assert own.step_time_s is not None and own.breakdown_s is not None
        time = float(prices.step_time_s[at])
        sigma = self._sigma(config, float(prices.sigma[at]), own)
        low, high = time * exp(-Z80 * sigma), time * exp(Z80 * sigma)
        ratio = time / own.step_time_s["estimate"]
        step = {
            "lower": min(own.step_time_s["lower"] * ratio, low),
            "estimate": time,
            "upper": max(own.step_time_s["upper"] * ratio, high),
            "low80": low,
            "high80": high,
        }
        work = from_config(config)
        used = memory.per_chip(work)
        used = self.memory(used)
        tokens = self._tokens(config) / self._tokens(self.config)
        chips = config.hardware.chips / self.config.hardware.chips
        speedup = self.step_time_s / time * tokens / chips
        prediction = replace(
            own,
            step_time_s=step,
            breakdown_s=_scaled(own.breakdown_s, ratio),
            parts_s=by_axis(config.mesh, _parts(prices, at), work),
            hbm_per_chip_bytes={name: float(value.reshape(-1)[0]) for name, value in used.parts().items()},
            fits=bool(used.fits.reshape(-1)[0]),
            mfu=own.mfu / ratio if own.mfu else None,
            hfu=own.hfu / ratio if own.hfu else None,
            tokens_per_s_per_chip=own.tokens_per_s_per_chip / ratio if own.tokens_per_s_per_chip else None,
            violations=legality.check(config, used),
            warnings=(*own.warnings, *self.doubts, *self._assumptions(config, given)),
            # What held-out runs were off by says nothing of a calibrated prediction.
            error=None,
            stall={**own.stall, "step_time_s": own.stall["step_time_s"] * ratio} if own.stall and sigma else None,
        )
        gain = {"estimate": speedup, "low80": speedup * exp(-Z80 * sigma), "high80": speedup * exp(Z80 * sigma)}
        return Calibrated(prediction, {**self.facts, "speedup": gain})

    def _sigma(self, config: ExperimentConfig, calibrated: float, own: Prediction) -> float:
        """Standard deviation of log(time): the calibration's, and the model's own where it does not carry over."""
        if _same_run(config, self.config):
            return 0.0
        carried = {key: getattr(self.config.training, key) for key in CARRIED}
        alike = replace(config, mesh=self.config.mesh, training=replace(config.training, **carried))
        if calibrated > 0 and _same_run(alike, self.config):
            return calibrated
        assert own.step_time_s is not None
        middle = own.step_time_s["estimate"]
        spread = max(log(middle / own.step_time_s["low80"]), log(own.step_time_s["high80"] / middle)) / Z80
        if config.hardware.chip != self.config.hardware.chip:
            spread = hypot(spread, SPREAD_OF_ANOTHER_CHIP)
        return hypot(calibrated, spread)

    def _assumptions(self, config: ExperimentConfig, given: ExperimentConfig) -> list[str]:
        said = []
        open_ = [_WORDS[name] for name in missing_facts(given)]
        if open_:
            said.append(f"{listed(open_)} {'are' if len(open_) > 1 else 'is'} taken from the baseline")
        if config.hardware.chip != self.config.hardware.chip:
            said.append(
                f"calibrated on {self.config.hardware.chip} for {config.hardware.chip}: calibration transfers poorly "
                "between chips, so the interval is wider"
            )
        return said

    @staticmethod
    def _tokens(config: ExperimentConfig) -> float:
        return float(config.training.global_batch_tokens or 1)


def baseline_of(config: ExperimentConfig) -> Baseline:
    """The baseline of a configuration with a measured step time.

    Raises ConfigError naming the first of `lacking`, or a mesh whose product is not the number of chips.
    """
    check_products(config)
    wrong = lacking(config)
    if wrong:
        field, message = next(iter(wrong.items()))
        raise ConfigError(field, message)
    assert config.measured is not None
    seen = Observation(config.measured.step_time_s, {}, memory_bytes=config.measured.peak_memory_bytes)
    return Baseline(config, calibrate(config, seen), predict(config))


def measured_calibration(config: ExperimentConfig) -> Calibration | None:
    """By the measured step time; None without one.  Raises ConfigError as `baseline_of`."""
    measured = config.measured is not None and config.measured.step_time_s is not None
    return baseline_of(config).calibration if measured else None


def answer(
    given: ExperimentConfig, mesh: Mesh | None = None, baseline: Baseline | None = None, warnings: Sequence[str] = ()
) -> dict[str, Any]:
    """What `asap predict` says of one configuration: its name, mesh and prediction.

    mesh: in place of its own.  baseline: what to calibrate from; without one, another mesh of a configuration with a
    measured step time is calibrated from that, and the configuration itself is predicted by the model alone.
    warnings: of its file, to stand before the prediction's.  Raises ConfigError.
    """
    config = with_mesh(given, mesh) if mesh is not None else given
    if baseline is None and config.measured != given.measured and given.measured is not None:
        baseline = baseline_of(given) if given.measured.step_time_s is not None else None
    answered: Prediction | Calibrated
    if baseline is None:
        own = predict(config)
        answered = replace(own, warnings=(*warnings, *own.warnings))
    else:
        answered = baseline.price([config])[0]
        said = (*warnings, *answered.prediction.warnings)
        answered = replace(answered, prediction=replace(answered.prediction, warnings=said))
    return {"name": config.name, "mesh": config.mesh.to_json(), **answered.to_json()}


def lacking(config: ExperimentConfig) -> dict[str, str]:
    """Why nothing can be calibrated from a configuration: sentences by dotted field; empty where it can."""
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
    own = predict(config)
    assert own.step_time_s is not None and own.mfu is not None
    least = own.mfu * own.step_time_s["estimate"]
    if step_s < least:
        chips = f"{config.hardware.chips:,} {config.hardware.chip}"
        given, floor = compared(step_s, least, "s")
        missing["measured.step_time_s"] = (
            f"is {given}, but the model's FLOPs take at least {floor} at the peak of {chips}; check the "
            "step time (in seconds), model, batch and chips"
        )
    return missing


def _same_run(one: ExperimentConfig, two: ExperimentConfig) -> bool:
    """Whether the same program would run on the same chips; the order of the mesh's axes counts."""

    def facts(config: ExperimentConfig) -> tuple[Any, ...]:
        hardware, mesh = config.hardware, config.mesh
        axes = [tuple((axis, mesh.role(axis), n) for axis, n in side if n > 1) for side in (mesh.ici, mesh.dcn)]
        site = tuple(sorted(hardware.overrides.items()))
        place = (hardware.chip, hardware.topology, hardware.slices, site, *axes)
        return (place, config.model, config.training, framework_of(config), config.extra.get("software_year"))

    return facts(one) == facts(two)


def _parts(prices: CalibratedPrices, at: int) -> dict[str, Any]:
    """The calibration's parts of one candidate under the names of a prediction."""
    terms: dict[str, Any] = {}
    for name, values in prices.parts_s.items():
        key = "hbm" if name.startswith("hbm") else _PREDICTED_NAMES.get(name, name)
        value = np.asarray(np.broadcast_to(values, prices.step_time_s.shape)[at], dtype=np.float64)
        terms[key] = terms.get(key, 0.0) + value
    return terms


def _scaled(values: Mapping[str, Any], ratio: float) -> dict[str, Any]:
    return {
        key: _scaled(value, ratio) if isinstance(value, Mapping) else value * ratio for key, value in values.items()
    }
