"""Fit which computation a text asks for: multinomial logistic regression on MiniLM's vectors and what the text names.

`make palette` writes dialogue/computations/asked.npz from evaluation/questions: asked.toml, and the labelled questions
of live*.json, of which a computation that a labeller wanted in the second place or later counts half.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

QUESTIONS = Path("evaluation/questions")
#: Share of a further computation that a labeller wanted, beside the first.
FURTHER = 0.5
#: Shrinkage of the weights, factors of the unit vectors and of the signals, and steps of gradient descent.
SHRINKAGE, FACTOR, SIGNAL, STEPS = 0.3, 4.0, 1.0, 300
#: The run that texts without one are about.
ANY = "xprof-v5p"


@dataclass(frozen=True)
class Asked:
    """A text and the keys of the computations that answer it, the best first.  run: of evaluation/questions."""

    text: str
    wanted: Sequence[str]
    run: str = ANY
    before: Sequence[str] = ()


def labelled(leave_out: Collection[str] = ()) -> list[Asked]:
    """Return all labelled texts of runs whose profiles are here.  leave_out: stems of files."""
    asked = tomllib.loads((QUESTIONS / "asked.toml").read_text("utf-8"))
    found = [Asked(text, (key,)) for key, texts in asked.items() for text in texts]
    for file in sorted(QUESTIONS.glob("live*.json")):
        questions: list[Mapping[str, Any]] = [] if file.stem in leave_out else json.loads(file.read_text("utf-8"))
        found += [
            Asked(each["text"], tuple(each["wanted"]), each.get("run", ANY), tuple(each.get("before", ())))
            for each in questions
            if each.get("wanted")
        ]
    return found


def fit(examples: Sequence[Asked]) -> tuple[list[str], NDArray[np.float32]]:
    """Return the keys, and weights (features, keys) of a text's features."""
    from dialogue.computations.matching import features
    from dialogue.computations.table import TABLE
    from dialogue.computations.words import SEARCHED

    keys = [item.key for item in TABLE]
    examples = [
        *(Asked(item.title, (item.key,)) for item in TABLE),
        *(x for x in examples if set(x.wanted) & set(keys)),
    ]
    signals = [_signals(each) for each in examples]
    vectors = features([each.text[:SEARCHED] for each in examples], signals)
    factors = np.array([*[FACTOR] * 384, *[SIGNAL] * (vectors.shape[1] - 385), 1.0])
    vectors = vectors * factors
    shares = np.zeros((len(examples), len(keys)))
    for row, each in zip(shares, examples, strict=True):
        for place, key in enumerate(key for key in each.wanted if key in keys):
            row[keys.index(key)] = FURTHER if place else 1.0
    shares /= shares.sum(axis=1, keepdims=True)
    weights, shrunk = np.zeros((len(factors), len(keys))), np.array([*[SHRINKAGE] * (len(factors) - 1), 0.0])
    for _ in range(STEPS):
        scores = np.exp(vectors @ weights)
        given = scores / scores.sum(axis=1, keepdims=True)
        weights -= (vectors.T @ (given - shares) + shrunk[:, None] * weights) / len(examples)
    return keys, (weights * factors[:, None]).astype(np.float32)


@cache
def _signals(of: Asked) -> Sequence[float]:
    """Return what a text names of its run."""
    from dialogue.computations.mentions import mentions_of
    from evaluation.quality.palette import bench_of

    return mentions_of(bench_of(of.run), of.text, of.before).signals


def main() -> None:
    from dialogue.computations.matching import WEIGHTS

    keys, weights = fit(labelled())
    np.savez_compressed(WEIGHTS, keys=keys, weights=weights.astype(np.float16))
    print(f"{WEIGHTS}: {len(keys)} computations, {WEIGHTS.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "asapweb.settings")
    django.setup()
    main()
