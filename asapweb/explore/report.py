"""The Accuracy page: what `make fit` wrote down, in the order in which a reader asks for it.

accuracy.json: errors of held-out runs (`evaluation.accuracy_numbers` says what each number is); confidence.json: how
far stated gains came true; accuracy_sweeps.json of proposals: cases with a known answer.  docs/accuracy.md has errors
by source and chip, the largest ones, and ablations.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import perfmodel
import proposals
from perfmodel.efficiency import DESCRIBED, DISTANCES

Numbers = Mapping[str, Any]

ACCURACY_FILE = Path(__file__).with_name("accuracy.json")
CONFIDENCE_FILE = Path(perfmodel.__file__).with_name("confidence.json")
SWEEPS_FILE = Path(proposals.__file__).with_name("accuracy_sweeps.json")

SOURCES = {
    "ultrascale": "nanotron, 8–512 H100",
    "vtrain-single": "Megatron-DeepSpeed, 2–8 A100",
    "vtrain-multi": "Megatron-DeepSpeed, 64 and 256 A100",
    "all": "All sweeps",
}
_METHODS = ("random", "naive model", "regressor", "proposals")
#: What an interval that claims 80 % should hold.
CLAIMED_80 = (0.75, 0.85)
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


@cache
def read(path: Path) -> Numbers:
    numbers: Numbers = json.loads(path.read_bytes())
    return numbers


def context() -> dict[str, Any]:
    """Return what the page shows.

    confidence: scores and reliability where the model is known; sweeps: (source, its counts, [(method, scores)]) of
    proposals from every run of a sweep.
    """
    numbers, sweeps = read(ACCURACY_FILE), read(SWEEPS_FILE)
    points = numbers["points"]
    distances = [
        Line(f"{word}: {DESCRIBED[distance]}", numbers["distances"][kind][distance])
        for kind, word in KIND_WORDS.items()
        for distance in reversed(DISTANCES)
        if distance in numbers["distances"].get(kind, {})
    ]
    return {
        "numbers": numbers,
        "distances": distances,
        "heads": list(_heads(numbers)),
        "claimed_80": CLAIMED_80,
        "scatter": {
            "groups": [
                {
                    "name": word,
                    "points": [[p[key] for key in _OF_POINT] for p in numbers["points"] if p["kind"] == kind],
                }
                for kind, word in KIND_WORDS.items()
            ]
        },
        "points": points,
        "bar_scale": max(max(line.row["median"], line.row["naive_median"]) for line in distances),
        "sweeps": [
            (words, sweeps["sources"][name], [(method, sweeps["methods"][name][method]) for method in _METHODS])
            for name, words in SOURCES.items()
            if name in sweeps["methods"]
        ],
        "confidence": read(CONFIDENCE_FILE)["known"],
    }


def _heads(numbers: Numbers) -> Iterator[tuple[str, Numbers, str]]:
    """Yield kind, scores and distance in words of the nearest and the farthest distance that most predictions have."""
    for kind, word in KIND_WORDS.items():
        known = numbers["distances"].get(kind, {})
        for distance in ("model", next((d for d in reversed(DISTANCES) if d in known), "")):
            if distance in known:
                yield word, known[distance], DESCRIBED[distance]
