"""The Accuracy page: what `make fit` wrote down, in the order in which a reader asks for it.

accuracy.json: errors of held-out runs (`evaluation.accuracy_numbers` says what each number is); confidence.json: how
far stated gains came true; accuracy.json and accuracy_sweeps.json of proposals: cases with a known answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import perfmodel
import proposals
from perfmodel.efficiency import DESCRIBED, DISTANCES

Numbers = Mapping[str, Any]

ACCURACY_FILE = Path(__file__).with_name("accuracy.json")
CONFIDENCE_FILE = Path(perfmodel.__file__).with_name("confidence.json")
CASES_FILE, SWEEPS_FILE = (Path(proposals.__file__).with_name(f"accuracy{part}.json") for part in ("", "_sweeps"))

SOURCES = {
    "ultrascale": "nanotron, 8–512 H100",
    "vtrain-single": "Megatron-DeepSpeed, 2–8 A100",
    "vtrain-multi": "Megatron-DeepSpeed, 64 and 256 A100",
    "all": "All sweeps",
}
_METHODS = ("random", "naive model", "regressor", "proposals")
_HALVES = {"development": "Development set", "held out": "Held-out set"}
_CASES = {
    "recipes, TPU": "Published recipes, TPU",
    "recipes, GPU": "Published recipes, GPU",
    "sweeps": "Measured sweeps",
}
#: What an interval that claims 80 % should hold.
CLAIMED_80 = (0.75, 0.85)
#: Sources as the tables of proposals name them, and those without sweeps.
RANKED = SOURCES | {"recipes": "Published recipes", "simumax": "Megatron-LM, 8 B200"}
KIND_WORDS = {"tpu": "TPU", "gpu": "GPU"}
_OF_POINT = ("measured_s", "estimate_s", "model", "chip", "id")
#: Rows of a group below which its shares say little.
FEW = 5


@dataclass(frozen=True)
class Line:
    """One row of a table of errors.  few: too few runs for shares to mean much."""

    name: str
    row: Numbers

    @property
    def few(self) -> bool:
        return int(self.row["rows"]) < FEW


@dataclass(frozen=True)
class Table:
    """A table of errors.  first: head of its first column."""

    id: str
    title: str
    first: str
    lines: list[Line]
    note: str = ""


def read(path: Path) -> Numbers | None:
    """Return a file of numbers; None where its program has not run."""
    try:
        return _read(path, path.stat().st_mtime_ns)
    except OSError:
        return None


@lru_cache(maxsize=8)
def _read(path: Path, stamp: int) -> Numbers:
    numbers: Numbers = json.loads(path.read_bytes())
    return numbers


def context(numbers: Numbers) -> dict[str, Any]:
    """`numbers`: of ACCURACY_FILE.  The rest as `of_proposals`."""
    distances = _by_distance(numbers)
    ranking = numbers["ranking"].items()
    return {
        "distances": distances,
        "tables": [_by_source(numbers), _by_chip(numbers)],
        "heads": list(_heads(numbers)),
        "claimed_80": CLAIMED_80,
        "ranking": [(RANKED.get(source, source), both["ours"], both["naive"]) for source, both in ranking],
        "ablation": _ablation(numbers.get("ablation")),
        "noise": list(numbers["noise"].items()),
        "worst": numbers["worst"],
        "optico": numbers["optico"],
        "unused": _unused(numbers["unmapped"]),
        "scatter": _scatter(numbers["points"]),
        "points": numbers["points"],
        "bar_scale": max((max(line.row["median"], line.row["naive_median"]) for line in distances.lines), default=0.0),
        **of_proposals(),
    }


def of_proposals() -> dict[str, Any]:
    """`confidence`: scores and reliability where the model is known; `cases`: rows by half, with the sweeps' own.

    `sweeps`: (source, its counts, [(method, scores)]) of proposals from every run of a sweep.  Each None where its
    program has not run.
    """
    stated, cases, sweeps = read(CONFIDENCE_FILE), read(CASES_FILE), read(SWEEPS_FILE)
    return {
        "sweeps": sweeps
        and [
            (words, sweeps["sources"][name], [(method, sweeps["methods"][name][method]) for method in _METHODS])
            for name, words in SOURCES.items()
            if name in sweeps["methods"]
        ],
        "confidence": stated and stated["known"],
        "cases": cases
        and [
            (
                words,
                [(title, cases["halves"][half][name]) for name, title in _CASES.items()],
                cases["halves"][half]["sweeps"],
            )
            for half, words in _HALVES.items()
        ],
    }


def _by_distance(numbers: Numbers) -> Table:
    lines = [
        Line(f"{word}: {DESCRIBED[distance]}", numbers["distances"][kind][distance])
        for kind, word in KIND_WORDS.items()
        for distance in reversed(DISTANCES)
        if distance in numbers["distances"].get(kind, {})
    ]
    return Table("distances", "By distance from the measured runs", "Distance", lines)


def _by_source(numbers: Numbers) -> Table:
    lines = [
        Line(f"{part}: {DESCRIBED[distance]}", row)
        for part, rows in numbers["parts"].items()
        for distance, row in rows.items()
    ]
    return Table("sources", "By source of the runs", "Source and distance", lines)


def _by_chip(numbers: Numbers) -> Table:
    lines = [
        Line(f"{chip}, {left} held out", row) for chip, rows in numbers["chips"].items() for left, row in rows.items()
    ]
    return Table("chips", "By chip", "Chip and held-out group", lines)


def _heads(numbers: Numbers) -> Iterator[tuple[str, Numbers, str]]:
    """Label, scores and distance in words of the nearest and the farthest distance that most predictions have."""
    for kind, word in KIND_WORDS.items():
        known = numbers["distances"].get(kind, {})
        for distance in ("model", next((d for d in reversed(DISTANCES) if d in known), "")):
            if distance in known:
                yield word, known[distance], DESCRIBED[distance]


def _ablation(rows: Sequence[Numbers] | None) -> dict[str, Any] | None:
    """Median error by part with everything, and what each missing term adds to it."""
    if not rows:
        return None
    parts = list(rows[0]["parts"])
    return {
        "parts": parts,
        "rows": [(row["term"], [row["parts"].get(part, {}).get("median") for part in parts]) for row in rows],
    }


def _unused(unmapped: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    reasons: dict[str, list[str]] = {}
    for row, reason in unmapped.items():
        reasons.setdefault(reason, []).append(row)
    return sorted(reasons.items(), key=lambda item: -len(item[1]))


def _scatter(points: Sequence[Numbers]) -> dict[str, Any]:
    return {
        "groups": [
            {
                "name": KIND_WORDS[kind],
                "points": [[p[key] for key in _OF_POINT] for p in points if p["kind"] == kind],
            }
            for kind in KIND_WORDS
        ]
    }
