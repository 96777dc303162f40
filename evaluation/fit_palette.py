"""Fit which computation a text asks for: multinomial logistic regression on MiniLM's vectors.

`make palette` writes dialogue/computations/asked.npz from evaluation/questions: asked.toml, and the labelled questions
of live*.json, of which a computation that a labeller wanted in the second place or later counts half.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

QUESTIONS = Path("evaluation/questions")
#: Share of a further computation that a labeller wanted, beside the first.
FURTHER = 0.5
#: Shrinkage of the weights, factor of the unit vectors, and steps of gradient descent.
SHRINKAGE, FACTOR, STEPS = 0.3, 4.0, 300


def labelled(leave_out: Collection[str] = ()) -> list[tuple[str, Sequence[str]]]:
    """Return (text, keys of the computations that answer it, the best first).  leave_out: stems of files."""
    asked = tomllib.loads((QUESTIONS / "asked.toml").read_text("utf-8"))
    found: list[tuple[str, Sequence[str]]] = [(text, (key,)) for key, texts in asked.items() for text in texts]
    for file in sorted(QUESTIONS.glob("live*.json")):
        questions: list[Mapping[str, Any]] = [] if file.stem in leave_out else json.loads(file.read_text("utf-8"))
        found += [(each["text"], each["wanted"]) for each in questions if each.get("wanted")]
    return found


def fit(examples: Sequence[tuple[str, Sequence[str]]]) -> tuple[list[str], NDArray[np.float32]]:
    """Return the keys, and weights (385, keys) of a text's vector with a 1 behind it."""
    from dialogue.computations.matching import SEARCHED, features
    from dialogue.computations.table import TABLE

    keys = [item.key for item in TABLE]
    known = [(text, wanted) for text, wanted in examples if set(wanted) & set(keys)]
    examples = [*((item.title, (item.key,)) for item in TABLE), *known]
    vectors = features([text[:SEARCHED] for text, _ in examples]) * np.array([*[FACTOR] * 384, 1.0])
    shares = np.zeros((len(examples), len(keys)))
    for row, (_, wanted) in zip(shares, examples, strict=True):
        for place, key in enumerate(key for key in wanted if key in keys):
            row[keys.index(key)] = FURTHER if place else 1.0
    shares /= shares.sum(axis=1, keepdims=True)
    weights, shrunk = np.zeros((385, len(keys))), np.array([*[SHRINKAGE] * 384, 0.0])[:, None]
    for _ in range(STEPS):
        scores = np.exp(vectors @ weights)
        given = scores / scores.sum(axis=1, keepdims=True)
        weights -= (vectors.T @ (given - shares) + shrunk * weights) / len(examples)
    return keys, (weights * np.array([*[FACTOR] * 384, 1.0])[:, None]).astype(np.float32)


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
