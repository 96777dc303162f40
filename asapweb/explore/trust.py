"""How far a prediction can be trusted: the errors out of fold that `make fit` wrote down (docs/accuracy.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from perfmodel.accuracy import ACCURACY_FILE, load_accuracy
from perfmodel.chips import get_chip


@dataclass(frozen=True)
class Trust:
    """Errors of rows the fit had not seen.  scope: `chip` where the chip itself was measured, else `kind`: chips of its
    kind, each left out of the fit in turn.  Shares 0–1."""

    chip: str
    title: str
    scope: str
    rows: int
    median: float
    mean: float
    in_80_range: float

    @property
    def kind_word(self) -> str:
        return "TPU" if get_chip(self.chip).kind == "tpu" else "GPU"


def accuracy() -> Mapping[str, Any] | None:
    """The numbers of the last fit; None where there are none."""
    try:
        stamp = ACCURACY_FILE.stat().st_mtime_ns
    except OSError:
        return None
    return _loaded(stamp)


@lru_cache(maxsize=1)
def _loaded(stamp: int) -> Mapping[str, Any]:
    return load_accuracy()


def trust_in(chip: str) -> Trust | None:
    """What is known about errors on this chip; None before the first `make fit`."""
    numbers = accuracy()
    if numbers is None:
        return None
    part = get_chip(chip)
    row, scope = numbers["by_chip"].get(chip), "chip"
    if row is None:
        row, scope = numbers["foldings"].get("chip", {}).get(part.kind), "kind"
    if row is None:
        return None
    return Trust(chip, part.title, scope, row["rows"], row["median"], row["mean"], row["in_80_range"])
