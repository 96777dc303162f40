"""Fit what makes probabilities of similarities: `make fit`, or `python -m evaluation.fit_capabilities`.

Each example of a capability is read as if it were none, and its own capability is right; sentences of off_topic.txt are
none.  The six weights maximise the likelihood; the threshold is where a wrong answer costs as much as a right one gains.
Vectors of the examples are written beside them, so that nobody waits for them at the start.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp

from proposals.agents.capabilities import registry
from proposals.agents.notation import read
from proposals.agents.reasoner import wanted
from proposals.agents.reasoner.wanted import Weights

OFF_TOPIC = Path(__file__).with_name("off_topic.txt")
#: Of the weights: towards where they start, so that few examples do not drive them far.
PRIOR = 1e-3

Sample = tuple[NDArray[np.float64], int]


def samples() -> list[Sample]:
    """Features of each example without itself, and the place of its capability; last of all for none."""
    found = []
    place = {key: number for number, key in enumerate(wanted.keys())}
    at = 0
    for key, item in registry().items():
        for text in (*item.examples, *wanted.phrases().get(key, ())):
            said = read(text)
            found.append((wanted.features(said.words, said.names, without=at), place[key]))
            at += 1
        at += 2  # title and description
    for text in OFF_TOPIC.read_text("utf-8").splitlines():
        said = read(text)
        found.append((wanted.features(said.words, said.names), len(place)))
    return found


def fit(rows: list[Sample]) -> Weights:
    """All weights but `taken`, which examples, mostly without values, say nothing of."""
    start = Weights()
    names = [name for name in asdict(start) if name not in ("least", "taken")]
    first = np.array([getattr(start, name) for name in names])
    right = np.array([y for _, y in rows])
    stacked = np.stack([x for x, _ in rows])
    fixed = stacked[..., 3] * start.taken

    def loss(vector: NDArray[np.float64]) -> float:
        scores = stacked[..., :3] @ vector[:3] + fixed
        every = np.concatenate([scores, np.full((len(rows), 1), vector[3])], axis=1)
        likelihood = np.mean(logsumexp(every, axis=1) - every[np.arange(len(rows)), right])
        return float(likelihood + PRIOR * np.mean((vector - first) ** 2))

    found = minimize(loss, first, method="L-BFGS-B")
    made = replace(start, **dict(zip(names, np.round(found.x, 3).tolist(), strict=True)))
    return replace(made, least=threshold(rows, made))


def threshold(rows: list[Sample], w: Weights) -> float:
    """The least probability at which answering is worth it: a wrong answer costs twice what a right one gains."""
    tops = [(float(np.max(p[:-1])), int(np.argmax(p[:-1])) == y) for p, y in ((wanted.chances(x, w), y) for x, y in rows)]
    grid = np.arange(0.2, 0.81, 0.05)
    gain = [sum((1 if right else -2) for chance, right in tops if chance >= least) for least in grid]
    return float(np.round(grid[int(np.argmax(gain))], 2))


def report(rows: list[Sample], w: Weights) -> dict[str, float | int]:
    """How the examples are read when each is left out."""
    count = {"right": 0, "wrong": 0, "offered": 0, "offered_right": 0, "none_left_alone": 0, "none": 0}
    for x, y in rows:
        found = wanted.chances(x, w)[:-1]
        order = np.argsort(-found)
        if y == len(found):
            count["none"] += 1
            count["none_left_alone"] += bool(found[order[0]] < w.least)
        elif found[order[0]] >= w.least:
            count["right" if int(order[0]) == y else "wrong"] += 1
        else:
            count["offered"] += 1
            count["offered_right"] += y in [int(n) for n in order[: wanted.OFFERED]]
    return {**count, "examples": sum(y < len(found) for _, y in rows)}


def main() -> None:
    wanted.VECTORS.unlink(missing_ok=True)
    wanted.vectors.cache_clear()
    table, _ = wanted.vectors()
    np.savez_compressed(wanted.VECTORS, vectors=table.astype(np.float16), digest=wanted.digest())
    wanted.vectors.cache_clear()
    rows = samples()
    w = fit(rows)
    numbers = report(rows, w)
    wanted.WEIGHTS.write_text(json.dumps({**asdict(w), "left_out": numbers}, indent=1) + "\n", "utf-8")
    print(json.dumps({**asdict(w), **numbers}, indent=1))


if __name__ == "__main__":
    main()
