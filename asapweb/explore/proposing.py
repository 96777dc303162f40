"""How good proposals are, for the Accuracy page: their confidence (`make fit`) and cases with a known answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import perfmodel
import proposals

_FOLDER = Path(proposals.__file__).parent
CONFIDENCE_FILE = Path(perfmodel.__file__).with_name("confidence.json")
CASES_FILE = _FOLDER / "accuracy.json"
SWEEPS_FILE = _FOLDER / "accuracy_sweeps.json"
SOURCES = {
    "ultrascale": "nanotron, 8–512 H100",
    "vtrain-single": "Megatron-DeepSpeed, 2–8 A100",
    "vtrain-multi": "Megatron-DeepSpeed, 64 and 256 A100",
    "all": "All sweeps",
}
_METHODS = ("random", "naive model", "regressor", "proposals")
_HALVES = {"development": "Development set", "held out": "Held-out set"}
_ROWS = ("recipes, TPU", "recipes, GPU", "sweeps")
_NAMES = {
    "recipes, TPU": "Published recipes, TPU",
    "recipes, GPU": "Published recipes, GPU",
    "sweeps": "Measured sweeps",
}


@cache
def _read(path: Path) -> Mapping[str, Any] | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        return None


def context() -> dict[str, Any]:
    """`confidence`: scores and reliability where the model is known; `cases`: rows by half, with the sweeps' own.

    `sweeps`: (source, its counts, [(method, scores)]) of proposals from every run of a sweep.  Each None where its
    program has not run.
    """
    stated, cases, sweeps = _read(CONFIDENCE_FILE), _read(CASES_FILE), _read(SWEEPS_FILE)
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
            (words, [(_NAMES[name], cases["halves"][half][name]) for name in _ROWS], cases["halves"][half]["sweeps"])
            for half, words in _HALVES.items()
        ],
    }
