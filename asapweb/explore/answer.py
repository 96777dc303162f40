"""Say what the performance model says of a state, in the shape the page draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from experiments import bars
from experiments.bars import Term
from perfmodel.chips import get_chip
from perfmodel.config import ExperimentConfig
from perfmodel.prediction import Prediction
from perfmodel.price import NOTHING, Evidence, predict
from proposals.plan import Memory

#: What a missing fact costs, in a sentence; key: dotted name as in `Prediction.missing`.
MISSING = {
    "model": "Choose a model or enter its shape: compute, traffic and memory depend on it.",
    "training.global_batch": "Enter the global batch: FLOPs per step and activations depend on it.",
    "training.seq_len": "Enter the sequence length: tokens per step and activations depend on it.",
}


@dataclass(frozen=True)
class Bar:
    """One step as terms.  Seconds; bounds and 80 % interval only where predicted.  origin: measured or predicted."""

    label: str
    terms: list[Term]
    total_s: float
    origin: str
    time: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Answer:
    """Everything the page says beside the list of all meshes.  bounded: whether the roofline's bounds are shown, which
    know nothing of what was measured; is_measured: it is the run, priced as it was measured."""

    config: ExperimentConfig
    prediction: Prediction
    bounded: bool = True
    is_measured: bool = False

    @property
    def chip_title(self) -> str:
        return get_chip(self.config.hardware.chip).title

    @property
    def missing(self) -> list[str]:
        return [MISSING.get(name, f"{name} is missing.") for name in self.prediction.missing]

    @cached_property
    def terms(self) -> list[tuple[Term, float | None]]:
        """The terms that are not zero, in the order of the bars, each in the estimate (what shows of it) and in the
        bounds (`Prediction.breakdown_s`)."""
        if self.prediction.parts_s is None or self.prediction.breakdown_s is None:
            return []
        shown, bounds = flat(self.prediction.parts_s), flat(self.prediction.breakdown_s)
        rows = [
            (bars.term(key, shown.get(key, 0.0), self.config.mesh.axis_roles), bounds.get(key))
            for key in {**shown, **bounds}
            if shown.get(key) or bounds.get(key)
        ]
        return sorted(rows, key=lambda row: (row[0].order, row[0].key))

    @property
    def communication(self) -> float | None:
        """Exposed share of the estimate, of the terms as they are shown."""
        if not self.terms or self.prediction.step_time_s is None:
            return None
        talking = sum(term.value for term, _ in self.terms if term.key.startswith(("ici", "dcn")))
        return talking / self.prediction.step_time_s["estimate"]

    @property
    def free_bytes(self) -> float | None:
        """Return the bytes of the capacity that are left; below zero where memory does not suffice, None where the
        total is not known."""
        used = self.prediction.hbm_per_chip_bytes
        return None if used is None or used["total"] is None else (used["capacity"] or 0.0) - used["total"]

    @property
    def over_bytes(self) -> float | None:
        free = self.free_bytes
        return -free if free is not None and free < 0 else None

    @property
    def known_bytes(self) -> float | None:
        """Return the bytes that a chip needs before its activations."""
        used = self.prediction.hbm_per_chip_bytes
        return sum(used[key] or 0.0 for key in ("params", "optimizer", "gradients")) if used is not None else None

    @cached_property
    def memory(self) -> Memory | None:
        used = self.prediction.hbm_per_chip_bytes
        return Memory(**{key: value or 0.0 for key, value in used.items()}) if used is not None else None

    @property
    def parts(self) -> list[tuple[Term, float]]:
        """The parts of the memory that are known, each with its share of the capacity."""
        held = self.memory
        return [(term, term.value / held.capacity) for term in bars.memory_terms(vars(held))] if held else []


def answer(config: ExperimentConfig, evidence: Evidence = NOTHING) -> Answer:
    """Price the configuration's own mesh under the evidence.  Raises ConfigError as `perfmodel.price.predict` does."""
    return Answer(config, predict(config, evidence), evidence is NOTHING, evidence.has_step_of(config))


def flat(parts: Mapping[str, Any]) -> dict[str, float]:
    """Return terms with the ICI axes beside the others, `ici:model` and so on."""
    result = {key: value for key, value in parts.items() if not isinstance(value, Mapping) and key != "exposed_comms"}
    return result | {f"ici:{axis}": value for axis, value in parts.get("ici", {}).items()}


def bar(label: str, config: ExperimentConfig, prediction: Prediction) -> Bar | None:
    if prediction.parts_s is None or prediction.step_time_s is None:
        return None
    terms = bars.step_terms(flat(prediction.parts_s), config.mesh.axis_roles)
    return Bar(label, terms, prediction.step_time_s["estimate"], "predicted", prediction.step_time_s)
