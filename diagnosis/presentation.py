"""A stored diagnosis as the page shows it: tiles, terms, the matrix of collectives, the roofline's dots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from django.db.models import QuerySet

import formatting
from diagnosis.analyzer import report
from diagnosis.analyzer.kpis import COMPUTED
from diagnosis.models import OpRow
from diagnosis.report import Diagnosis
from experiments import bars, glossary
from experiments.step_profile import Timeline

#: key, label, unit, what it is a share of.
_TILES = (
    ("step_time_s", "Step time", "s", "mean over steps and cores"),
    ("duty_cycle", "Duty cycle", "share", "with any op running"),
    ("communication", "Communication", "share", "in collectives"),
    ("idle", "Idle", "share", "with no op running"),
    ("input", "Input", "share", "waiting for input"),
    ("flops_utilization", "FLOPs utilisation", "share", "of peak FLOP/s"),
    ("hbm_utilization", "HBM bandwidth", "share", "of the peak bandwidth"),
    ("memory_peak_share", "Peak memory", "share", "of device memory"),
    ("mfu", "MFU", "share", "model FLOPs over peak FLOP/s"),
    ("goodput", "Goodput", "share", "not lost to idle, input or host"),
)
#: Figures beside the main ones, folded away.
_MORE_TILES = (
    ("communication_exposed", "Communication, exposed", "share", "with no other op running"),
    ("communication_overlapped", "Overlapped communication", "share", "with other ops running"),
    ("communication_ops", "Communication by ops", "share", "summed over collective ops"),
    ("host", "Host", "share", "waiting for the host"),
    ("stragglers", "Stragglers", "share", "busy time of the slowest recorded core above the median"),
    ("step_time_spread", "Step-time variation", "share", "standard deviation over the mean"),
)
#: In the line below the verdict, which has the step and its parts already.
_STRIP = ("mfu", "flops_utilization", "hbm_utilization", "duty_cycle", "input", "memory_peak_share")
_STEP_SHARES = {
    "duty_cycle", "communication", "input", "idle", "communication_exposed", "communication_overlapped",
    "host",
}  # fmt: skip
#: The roofline's dots: the longest compute ops among the longest ops; smaller ones could not be seen.
MAX_DOTS, MAX_RANK, SMALLEST_DOT = 400, 2000, 1e-3
#: A roofline efficiency beyond this is no rounding: the roof stands too low for the op.
ROOF_REACHED = 1.005
OVER_ROOF = (
    "Above the roofline: caches served part of the data, or the device’s peak is higher than the profile reports."
)


@dataclass(frozen=True)
class Tile:
    """A KPI tile.  value None: `note` says why it was not measured."""

    key: str
    label: str
    value: float | None
    unit: str
    origin: str
    note: str
    main: bool = True

    @property
    def tooltip(self) -> str:
        """What the glossary says of it; empty where it says nothing."""
        known = glossary.by_key().get(self.key)
        return known.meaning if known else ""


@dataclass(frozen=True)
class Cell:
    """Time and bandwidth of one kind of collective on one axis; index: its row in the diagnosis.

    amount: time per step, or share of the device time where no step was marked.  exposed: seconds of it in flight that
    no other op hid; None without intervals or step.
    """

    index: int
    amount: float | None
    achieved: float | None
    possible: float | None
    exposed: float | None
    tensors: str


@dataclass(frozen=True)
class AxisRow:
    """One axis of the matrix, a cell per kind (None: none ran)."""

    axis: str
    css: str
    size: int | None
    cells: list[list[Cell]]
    amount: float
    share: float | None
    exposed_s: float | None
    key: str


@dataclass(frozen=True)
class Matrix:
    """unit: of the amounts, `s` per step and core, or `share` of the device time where no step was marked."""

    kinds: list[str]
    rows: list[AxisRow]
    unit: str
    exposure_known: bool


def tiles(diagnosis: Diagnosis) -> list[Tile]:
    """The KPIs as tiles, the main ones first; whatever else the diagnosis measured comes after."""
    kpis, missing = diagnosis.kpis, diagnosis.not_measured
    step = kpis.get("step_time_s")
    known = {key for key, *_ in (*_TILES, *_MORE_TILES)}
    others = [(key, key.replace("_", " ").capitalize(), "share", "") for key in kpis if key not in known]
    shown = []
    for key, label, unit, about in (*_TILES, *_MORE_TILES, *others):
        main = key in _STRIP
        if key not in kpis and not any(key == tile[0] for tile in _TILES):
            continue
        value = kpis.get(key)
        if value is None:
            reason = missing.get(key) or missing.get(key.removesuffix("_s")) or "not reported"
            shown.append(Tile(key, label, None, unit, "", reason, main))
            continue
        note = about if key != "step_time_s" or diagnosis.measured else "given with the configuration"
        if key in _STEP_SHARES and step:
            note = f"{formatting.seconds(value * step)} of the step {about}"
        elif key == "communication_ops" and step:  # ops outside the steps count as well
            note = f"{formatting.seconds(value * step)} per step, averaged over the recording, {about}"
        shown.append(Tile(key, label, value, unit, "computed" if key in COMPUTED else "measured", note, main))
    return sorted(shown, key=lambda tile: _STRIP.index(tile.key) if tile.main else len(_STRIP))


@dataclass(frozen=True)
class CoreSteps:
    """Steps of one core, in seconds: mean, slowest with its number, and mean of each part."""

    core: str
    host: str
    mean_s: float
    most_s: float
    most_step: int
    parts_s: list[float]


def core_steps(timeline: Timeline) -> tuple[list[str], list[CoreSteps]]:
    """(words of the parts of a step, a row per core); no rows where no core marks steps."""
    order = sorted(timeline.parts_s, key=lambda key: ([*bars.STEP_PARTS, key].index(key), key))
    used = [key for key in order if any(map(any, timeline.parts_s[key]))]
    rows = [
        CoreSteps(
            core, host, fmean(times), max(times), timeline.steps[times.index(max(times))],
            [fmean(timeline.parts_s[key][at]) for key in used],
        )
        for at, (core, host, times) in enumerate(
            zip(timeline.cores, timeline.hosts, timeline.durations_s, strict=True) if timeline.steps else ()
        )
    ]  # fmt: skip
    return [bars.STEP_PARTS.get(key, (key.replace("_", " ").capitalize(),))[0] for key in used], rows


def further_notes(diagnosis: Diagnosis, summary: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The profile's notes that are not among the diagnosis' warnings, which repeat the severe ones."""
    said = set(diagnosis.warnings)
    return [note for note in summary.get("notes") or () if note["message"] not in said]


def is_over_roof(efficiency: float | None) -> bool:
    return efficiency is not None and efficiency > ROOF_REACHED


def kpi_words(key: str) -> str:
    """A KPI's name as its tile has it."""
    more = {"time_per_token_s": "Chip time per token", "tokens_per_s_per_chip": "Tokens per second and chip"}
    names = {name: label for name, label, *_ in (*_TILES, *_MORE_TILES)}
    return names.get(key) or more.get(key) or key.replace("_", " ").capitalize()


def sections(diagnosis: Diagnosis) -> list[tuple[str, list[str]]]:
    """Headings and sentences of the report, in its order."""
    order = {heading: place for place, heading in enumerate(report.SECTIONS)}
    return sorted(diagnosis.report.items(), key=lambda item: order.get(item[0], len(order)))


@dataclass(frozen=True)
class Ceiling:
    """What is left of the step if the primary bottleneck took no time (Amdahl)."""

    label: str
    time_s: float
    speedup: float


def ceiling(diagnosis: Diagnosis) -> Ceiling | None:
    """None where the step is not divided, or the bottleneck is no term of it."""
    terms = diagnosis.breakdown_s
    if not diagnosis.measured:
        return None  # a bound is measured; what is predicted bounds nothing
    waits_for_tensors = "host_transfer" in terms
    words, *keys = {
        "communication": ("If all communication were overlapped", "ici", "dcn"),
        "memory": ("If no op were HBM-bound", "hbm"),
        "input": ("If input never stalled", "input"),
        "host": (
            ("If nothing were offloaded", "host_transfer")
            if waits_for_tensors
            else ("If the host never stalled the device", "host")
        ),
        "idle": ("If no core idled", "idle"),
    }.get(diagnosis.bottleneck.primary, ("",))
    total = sum(terms.values())
    left = total - sum(value for key, value in terms.items() if key.partition(":")[0] in keys)
    return Ceiling(words, left, total / left) if 0 < left < total else None


def matrix(diagnosis: Diagnosis, mesh: Mapping[str, Any] | None, step_s: float | None) -> Matrix:
    """Collectives per axis and kind; axes in the mesh's order, DCN last."""
    roles = (mesh or {}).get("axis_roles") or {}
    sizes: dict[str, int] = dict((mesh or {}).get("ici") or {})
    table: dict[str, dict[str, list[Cell]]] = {}
    kinds: list[str] = []
    shares: dict[str, float] = {}
    exposed: dict[str, float] = {}
    collectives = diagnosis.collectives
    unit = "s" if any(row.time_s is not None for row in collectives) else "share"
    for index, row in enumerate(collectives):
        axis, kind = axis_name(row.axis), row.kind
        if kind not in kinds:
            kinds.append(kind)
        cell = Cell(
            index, row.time_s if unit == "s" else row.share, row.achieved_bytes_per_s, row.possible_bytes_per_s,
            row.exposed_s if unit == "s" else None, ", ".join(row.tensors),
        )  # fmt: skip
        table.setdefault(axis, {}).setdefault(kind, []).append(cell)
        shares[axis] = shares.get(axis, 0.0) + row.share
        if row.exposed_s is not None:
            exposed[axis] = exposed.get(axis, 0.0) + row.exposed_s
    order = {axis: place for place, axis in enumerate(sizes)}
    rows = []
    for axis in sorted(table, key=lambda a: (a == "dcn", order.get(bars.axes_of(a)[0], 99), a)):
        cells = [table[axis].get(kind, []) for kind in kinds]
        amount = sum(cell.amount or 0.0 for group in cells for cell in group)
        share = amount / step_s if step_s and unit == "s" else shares.get(axis)
        css, size = bars.axis_class(axis, roles), _size(axis, sizes)
        rows.append(AxisRow(axis, css, size, cells, amount, share, exposed.get(axis), f"axis-{axis}"))
    rows.sort(key=lambda row: (row.axis == "dcn", -row.amount))
    return Matrix(kinds, rows, unit, any(row.hidden_share is not None for row in collectives))


def waiting_share(diagnosis: Diagnosis) -> float:
    """Share 0–1 of the step in the -done ops of asynchronous collectives."""
    return sum(row.waiting_share for row in diagnosis.collectives)


def _size(axis: str, sizes: Mapping[str, int]) -> int | None:
    size = 1
    for name in bars.axes_of(axis):
        if name not in sizes:
            return None
        size *= sizes[name]
    return size


def axis_name(axis: Any) -> str:
    """`model`, `data, seq`, `dcn`; `not matched` where no axis explains the participants."""
    if not axis:
        return "unmatched"
    return axis if isinstance(axis, str) else ", ".join(axis)


def roofline(diagnosis: Diagnosis, ops: QuerySet[OpRow], bounds: Mapping[str, str]) -> dict[str, Any] | None:
    """The chart's data in TFLOP/s and GB/s; None where no op has both rate and intensity.

    points: [name, intensity FLOP/byte, TFLOP/s, time, bound, rank], the longest MAX_DOTS; unit: of the time, `ms` per
    step or `percent` of the device time.
    """
    facts = diagnosis.roofline
    peak, bandwidth = facts.peak_flops_per_s, facts.peak_hbm_bytes_per_s
    rate, intensity = "data__flops_per_s", "data__operational_intensity"
    products = ops.filter(rank__lte=MAX_RANK, mesh_axis="", data__collective=None)
    products = products.filter(**{f"{rate}__gt": 0, f"{intensity}__gt": 0}).order_by("rank")
    points, unit = [], "ms"
    columns = ("name", "rank", "bound_by", "time_s", "time_share", rate, intensity)
    for name, rank, bound, time_s, share, flops, at in products.values_list(*columns)[:MAX_DOTS]:
        weight = time_s * 1e3 if time_s is not None else share * 100
        unit = "ms" if time_s is not None else "percent"
        points.append([name, at, flops / 1e12, weight, bounds.get(bound, bound), rank])
    if not points:
        return None
    longest = max(point[3] for point in points)
    points = [point for point in points if point[3] >= SMALLEST_DOT * longest]
    return {
        "unit": unit,
        "peak": peak / 1e12 if peak else None,
        "bw": bandwidth / 1e9 if bandwidth else None,
        "points": points,
    }
