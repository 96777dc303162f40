"""Say what the performance model says of a state, in the shape the page draws.

The memory of a chip is a squarified treemap of rectangles in percent, so that a page draws it as SVG without scripts or
inline styles.  Source: Bruls, Huizing, van Wijk, Squarified Treemaps (2000): rows are filled while that makes their
rectangles squarer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments import bars
from experiments.bars import Term
from perfmodel.chips import get_chip
from perfmodel.config import ExperimentConfig
from perfmodel.prediction import Prediction
from perfmodel.price import NOTHING, Evidence, predict
from perfmodel.roofline import Operation, layer_operations, roofs

#: Width over height of the picture, which decides what is square.
ASPECT = 1.5


@dataclass(frozen=True)
class Rectangle:
    """Item `index` at x, y with width and height, all in percent of the whole."""

    index: int
    x: float
    y: float
    width: float
    height: float


def treemap(values: Sequence[float]) -> list[Rectangle]:
    """Rectangles whose areas are to each other as the values; those of no size are left out."""
    items = sorted(((value, index) for index, value in enumerate(values) if value > 0), reverse=True)
    total = sum(value for value, _ in items)
    if not total:
        return []
    width, height = ASPECT * 100.0, 100.0
    area = width * height / total
    x = y = 0.0
    rectangles: list[Rectangle] = []
    left = [(value * area, index) for value, index in items]
    while left:
        side = min(width - x, height - y)
        row = _row(left, side)
        thick = sum(size for size, _ in row) / side
        at = y if width - x >= height - y else x
        for size, index in row:
            long = size / thick
            if width - x >= height - y:
                rectangles.append(Rectangle(index, x / ASPECT, at, thick / ASPECT, long))
            else:
                rectangles.append(Rectangle(index, at / ASPECT, y, long / ASPECT, thick))
            at += long
        if width - x >= height - y:
            x += thick
        else:
            y += thick
        left = left[len(row) :]
    return rectangles


def _row(left: Sequence[tuple[float, int]], side: float) -> list[tuple[float, int]]:
    """As many of the largest as make the worst rectangle of the row squarer."""
    row = [left[0]]
    for item in left[1:]:
        if _worst([*row, item], side) > _worst(row, side):
            break
        row.append(item)
    return row


def _worst(row: Sequence[tuple[float, int]], side: float) -> float:
    total = sum(size for size, _ in row)
    return max(max(side**2 * size / total**2, total**2 / (side**2 * size)) for size, _ in row)


#: What a missing fact costs, in a sentence; key: dotted name as in `Prediction.missing`.
MISSING = {
    "model": "Choose a model or enter its shape: compute, traffic and memory depend on it.",
    "training.global_batch": "Enter the global batch: FLOPs per step and activations depend on it.",
    "training.seq_len": "Enter the sequence length: tokens per step and activations depend on it.",
}
#: Rules of `perfmodel.legality` in a few words, for tables.
RULES = {
    "chips": "axis sizes do not multiply to the chip count",
    "axis_role": "axis without a role",
    "topology": "does not fit evenly onto the topology",
    "batch": "batch does not divide",
    "sequence": "sequence does not divide",
    "heads": "heads do not divide",
    "kv_heads": "KV heads do not divide",
    "d_ff": "MLP width does not divide",
    "experts": "experts do not divide",
    "layers": "more stages than layers",
    "memory": "does not fit in memory",
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
class TermRow:
    """A term in the estimate (what shows of it) and in the bounds (`Prediction.breakdown_s`)."""

    term: Term
    bound_s: float | None


@dataclass(frozen=True)
class Part:
    """A rectangle of the memory picture.  share: of the capacity; named: whether its words fit inside."""

    term: Term
    box: Rectangle
    share: float
    named: bool


@dataclass(frozen=True)
class LayerOperation:
    """An operation of the layer: seconds per step and chip of the forward pass, at the roof."""

    operation: Operation
    time_s: float
    attainable: float
    bound_by: str


@dataclass(frozen=True)
class Answer:
    """Everything the page says beside the list of all meshes."""

    config: ExperimentConfig
    prediction: Prediction
    chip_title: str
    terms: list[TermRow]
    parts: list[Part]
    free_bytes: float | None
    over_bytes: float | None
    operations: list[LayerOperation]
    roofline: dict[str, Any] | None
    communication: float | None
    missing: list[str]

    @property
    def legal(self) -> bool:
        return not self.prediction.violations


def answer(config: ExperimentConfig, evidence: Evidence = NOTHING) -> Answer:
    """Price the configuration's own mesh under the evidence.  Raises ConfigError as `perfmodel.price.predict` does."""
    prediction = predict(config, evidence)
    parts, free, over = _memory(prediction)
    operations, roofline = _layer(config) if not prediction.missing else ([], None)
    return Answer(
        config=config,
        prediction=prediction,
        chip_title=get_chip(config.hardware.chip).title,
        terms=_terms(config, prediction),
        parts=parts,
        free_bytes=free,
        over_bytes=over,
        operations=operations,
        roofline=roofline,
        communication=_communication(prediction),
        missing=[MISSING.get(name, f"{name} is missing.") for name in prediction.missing],
    )


def flat(parts: Mapping[str, Any]) -> dict[str, float]:
    """Terms with the ICI axes beside the others, `ici:model` and so on."""
    result = {key: value for key, value in parts.items() if not isinstance(value, Mapping) and key != "exposed_comms"}
    return result | {f"ici:{axis}": value for axis, value in parts.get("ici", {}).items()}


def bar(label: str, config: ExperimentConfig, prediction: Prediction) -> Bar | None:
    if prediction.parts_s is None or prediction.step_time_s is None:
        return None
    terms = bars.step_terms(flat(prediction.parts_s), config.mesh.axis_roles)
    return Bar(label, terms, prediction.step_time_s["estimate"], "predicted", prediction.step_time_s)


def _terms(config: ExperimentConfig, prediction: Prediction) -> list[TermRow]:
    if prediction.parts_s is None or prediction.breakdown_s is None:
        return []
    shown, bounds = flat(prediction.parts_s), flat(prediction.breakdown_s)
    roles = config.mesh.axis_roles
    rows = [
        TermRow(bars.term(key, shown.get(key, 0.0), roles), bounds.get(key))
        for key in {**shown, **bounds}
        if shown.get(key) or bounds.get(key)
    ]
    return sorted(rows, key=lambda row: (row.term.order, row.term.key))


def _communication(prediction: Prediction) -> float | None:
    """Exposed share of the estimate."""
    if prediction.breakdown_s is None or prediction.step_time_s is None:
        return None
    return float(prediction.breakdown_s["exposed_comms"]) / prediction.step_time_s["estimate"]


def _memory(prediction: Prediction) -> tuple[list[Part], float | None, float | None]:
    """Rectangles of the parts and of what stays free; bytes free, bytes too many."""
    used = prediction.hbm_per_chip_bytes
    if used is None:
        return [], None, None
    capacity, total = used["capacity"] or 0.0, used["total"]
    terms = bars.memory_terms({key: value for key, value in used.items() if value is not None})
    free = None if total is None else capacity - total
    rest = capacity - sum(term.value for term in terms)
    label = "Free" if total is not None else "Activations and free"
    shown = [*terms, Term("free", label, "free", rest)] if rest > 0 else terms
    parts = [
        Part(shown[box.index], box, shown[box.index].value / capacity, box.width > 21 and box.height > 16)
        for box in treemap([term.value for term in shown])
    ]
    return parts, free, -free if free is not None and free < 0 else None


def _layer(config: ExperimentConfig) -> tuple[list[LayerOperation], dict[str, Any]]:
    """Operations of one layer under the roofs of the chip, and the same for the chart."""
    peak, bandwidth = roofs(config)
    operations = []
    for operation in layer_operations(config):
        at_compute = operation.compute_s(peak) >= operation.transfer_s(bandwidth)
        operations.append(
            LayerOperation(
                operation,
                operation.lower_s(peak, bandwidth) * operation.occurrences,
                operation.attainable_flops_per_s(peak, bandwidth),
                "Compute" if at_compute else "HBM",
            )
        )
    points = [
        [item.operation.name, item.operation.intensity, item.attainable / 1e12, item.time_s * 1e3, item.bound_by, rank]
        for rank, item in enumerate(operations, start=1)
    ]
    return operations, {"peak": peak / 1e12, "bw": bandwidth / 1e9, "points": points}
