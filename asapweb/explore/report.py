"""The Accuracy page: the numbers of perfmodel/accuracy.json in the order in which a reader asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfmodel.accuracy import FOLDINGS, HEADLINE

#: What a range that claims 80 % should hold, and bounds should.
CLAIMED_80 = (0.75, 0.85)
CLAIMED_BOUNDS = 0.95
KIND_WORDS = {"tpu": "TPU", "gpu": "GPU"}
#: Rows of a group below which its shares say little.
FEW = 5


@dataclass(frozen=True)
class Line:
    """One row of a table of errors.  few: too few runs for shares to mean much."""

    name: str
    row: Mapping[str, Any]

    @property
    def few(self) -> bool:
        return int(self.row["rows"]) < FEW

    @property
    def gain(self) -> float:
        """Naive median error over ours: above one is better."""
        return float(self.row["naive_median"]) / max(float(self.row["median"]), 1e-9)


def context(numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "heads": [(KIND_WORDS.get(kind, kind), row) for kind, row in numbers["foldings"][HEADLINE].items()],
        "claimed_80": CLAIMED_80,
        "claimed_bounds": CLAIMED_BOUNDS,
        "headline_words": FOLDINGS[HEADLINE],
        "tables": _tables(numbers),
        "ranking": sorted(numbers["ranking"], key=lambda row: -row["meshes"]),
        "ranking_summary": _ranking(numbers["ranking"]),
        "worst": numbers["worst"],
        "optico": numbers.get("optico"),
        "unused": _unused(numbers.get("unmapped", {})),
        "scatter": _scatter(numbers["points"]),
        "points": numbers["points"],
        "bar_scale": max((max(row["median"], row["naive_median"]) for row in numbers["by_chip"].values()), default=0.0),
    }


def _tables(numbers: Mapping[str, Any]) -> list[tuple[str, str, str, list[Line]]]:
    """(id, title, head of the first column, lines)."""
    folds = [
        Line(f"{KIND_WORDS.get(kind, kind)}: {FOLDINGS.get(name, name)}", row)
        for name, kinds in numbers["foldings"].items()
        for kind, row in kinds.items()
    ]

    def lines(key: str) -> list[Line]:
        return [Line(_words(name), row) for name, row in numbers[key].items()]

    return [
        ("chips", "By chip", "Chip", lines("by_chip")),
        ("parallelism", "By kind of parallelism", "Axes larger than one", lines("by_parallelism")),
        ("folds", "By what was left out of the fit", "Left out", folds),
        ("sorts", "Dense models and mixtures of experts", "Models", lines("by_sort")),
        ("precisions", "By chip and precision", "Chip, precision", lines("by_chip_and_precision")),
        ("models", "By model and chip", "Model on chip", lines("by_model")),
    ]


def _words(name: str) -> str:
    kind, colon, rest = name.partition(": ")
    return f"{KIND_WORDS.get(kind, kind)}: {rest}" if colon else name


def _ranking(rows: list[Mapping[str, Any]]) -> dict[str, Any]:
    known = [row for row in rows if row["spearman"] is not None]
    return {
        "groups": len(rows),
        "right": sum(row["regret"] <= 1e-9 for row in rows),
        "within": sum(row["regret"] <= 0.01 for row in rows),
        "spearman": sum(row["spearman"] for row in known) / len(known) if known else None,
        "worst_regret": max((row["regret"] for row in rows), default=None),
    }


def _unused(unmapped: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    reasons: dict[str, list[str]] = {}
    for row, reason in unmapped.items():
        reasons.setdefault(reason, []).append(row)
    return sorted(reasons.items(), key=lambda item: -len(item[1]))


def _scatter(points: list[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "groups": [
            {
                "name": KIND_WORDS[kind],
                "points": [
                    [p["measured_s"], p["estimate_s"], p["model"], p["chip"], p["id"]]
                    for p in points
                    if p["kind"] == kind
                ],
            }
            for kind in KIND_WORDS
        ]
    }
