"""The Accuracy page: the numbers of asapweb/explore/accuracy.json in the order in which a reader asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from asapweb.explore.accuracy import Ablation, Accuracy, ErrorScores, Point
from asapweb.explore.proposing import SOURCES
from perfmodel.efficiency import DESCRIBED, DISTANCES

#: What an interval that claims 80 % should hold.
CLAIMED_80 = (0.75, 0.85)
#: Sources as the tables of proposals name them, and those without sweeps.
RANKED = SOURCES | {"recipes": "Published recipes", "simumax": "Megatron-LM, 8 B200"}
KIND_WORDS = {"tpu": "TPU", "gpu": "GPU"}
#: Rows of a group below which its shares say little.
FEW = 5


@dataclass(frozen=True)
class Line:
    """One row of a table of errors.  few: too few runs for shares to mean much."""

    name: str
    row: ErrorScores

    @property
    def few(self) -> bool:
        return int(self.row.rows) < FEW


@dataclass(frozen=True)
class Table:
    """A table of errors.  first: head of its first column."""

    id: str
    title: str
    first: str
    lines: list[Line]
    note: str = ""


def context(numbers: Accuracy) -> dict[str, Any]:
    distances = _by_distance(numbers)
    return {
        "distances": distances,
        "tables": [_by_source(numbers), _by_chip(numbers)],
        "heads": list(_heads(numbers)),
        "claimed_80": CLAIMED_80,
        "ranking": [(RANKED.get(source, source), both.ours, both.naive) for source, both in numbers.ranking.items()],
        "ablation": _ablation(numbers.ablation),
        "noise": list(numbers.noise.items()),
        "worst": numbers.worst,
        "optico": numbers.optico,
        "unused": _unused(numbers.unmapped),
        "scatter": _scatter(numbers.points),
        "points": numbers.points,
        "bar_scale": max((max(line.row.median, line.row.naive_median) for line in distances.lines), default=0.0),
    }


def _by_distance(numbers: Accuracy) -> Table:
    lines = [
        Line(f"{word}: {DESCRIBED[distance]}", numbers.distances[kind][distance])
        for kind, word in KIND_WORDS.items()
        for distance in reversed(DISTANCES)
        if distance in numbers.distances.get(kind, {})
    ]
    return Table("distances", "By distance from the measured runs", "Distance", lines)


def _by_source(numbers: Accuracy) -> Table:
    lines = [
        Line(f"{part}: {DESCRIBED[distance]}", row)
        for part, rows in numbers.parts.items()
        for distance, row in rows.items()
    ]
    return Table("sources", "By source of the runs", "Source and distance", lines)


def _by_chip(numbers: Accuracy) -> Table:
    lines = [
        Line(f"{chip}, {left} held out", row) for chip, rows in numbers.chips.items() for left, row in rows.items()
    ]
    return Table("chips", "By chip", "Chip and held-out group", lines)


def _heads(numbers: Accuracy) -> Iterator[tuple[str, ErrorScores, str]]:
    """Label, scores and distance in words of the nearest and the farthest distance that most predictions have."""
    for kind, word in KIND_WORDS.items():
        known = numbers.distances.get(kind, {})
        for distance in ("model", next((d for d in reversed(DISTANCES) if d in known), "")):
            if distance in known:
                yield word, known[distance], DESCRIBED[distance]


def _ablation(rows: Sequence[Ablation] | None) -> dict[str, Any] | None:
    """Median error by part with everything, and what each missing term adds to it."""
    if not rows:
        return None
    parts = list(rows[0].parts)
    return {
        "parts": parts,
        "rows": [(row.term, [row.parts[part].median if part in row.parts else None for part in parts]) for row in rows],
    }


def _unused(unmapped: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    reasons: dict[str, list[str]] = {}
    for row, reason in unmapped.items():
        reasons.setdefault(reason, []).append(row)
    return sorted(reasons.items(), key=lambda item: -len(item[1]))


def _scatter(points: Sequence[Point]) -> dict[str, Any]:
    return {
        "groups": [
            {
                "name": KIND_WORDS[kind],
                "points": [[p.measured_s, p.estimate_s, p.model, p.chip, p.id] for p in points if p.kind == kind],
            }
            for kind in KIND_WORDS
        ]
    }
