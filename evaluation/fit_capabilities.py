"""Fit what makes probabilities of similarities: `make fit`, or `python -m evaluation.fit_capabilities [QUESTIONS]`.

Each example of a capability is read as if it were none, and its own capability is right; sentences of off_topic.txt are
none.  The weights maximise the likelihood.  How sharp the probabilities are, and from which one on is answered, is
set on
questions of others (a JSON list of {id, before, text}; dev_wanted.json says by id which capabilities answer them): a
wrong answer costs twice what a right one gains.  Without them both stay as they were.  Vectors of the examples are
written beside the weights, so that nobody waits for them at the start.
"""

from __future__ import annotations

import json
import sys
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
RIGHT = Path(__file__).with_name("dev_wanted.json")
#: Of the weights: towards where they start, so that few examples do not drive them far.
PRIOR = 1e-3

Sample = tuple[NDArray[np.float64], int]


def samples() -> list[Sample]:
    """Features of each example without itself, and the place of its capability; last of all for none."""
    drawn = []
    place = {key: number for number, key in enumerate(wanted.keys())}
    at = 0
    for key, item in registry().items():
        for text in (*item.examples, *wanted.phrases().get(key, ())):
            said = read(text)
            drawn.append((wanted.features(said.words, said.names, without=at), place[key]))
            at += 1
        at += 2  # title and description
    for text in OFF_TOPIC.read_text("utf-8").splitlines():
        said = read(text)
        drawn.append((wanted.features(said.words, said.names), place[wanted.OUTSIDE]))
    return drawn


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

    solution = minimize(loss, first, method="L-BFGS-B")
    return replace(start, **dict(zip(names, np.round(solution.x, 3).tolist(), strict=True)))


def asked(path: Path) -> list[tuple[NDArray[np.float64], set[int]]]:
    """Features of questions of others, without those that go on from earlier ones, and the capabilities that answer."""
    place = {key: number for number, key in enumerate(wanted.keys())}
    right = json.loads(RIGHT.read_text("utf-8"))
    questions = []
    for item in json.loads(path.read_text("utf-8")):
        if item["id"] in right and not item["before"]:
            said = read(item["text"])
            keys = {place.get(key, len(place)) for key in right[item["id"]]}
            keys |= {place[wanted.OUTSIDE]} if item["kind"] == "off-topic" else set()
            questions.append((wanted.features(said.words, said.names), keys))
    return questions


def sharpened(w: Weights, sharpness: float) -> Weights:
    names = [name for name in asdict(w) if name != "least"]
    return replace(w, **{name: round(getattr(w, name) * sharpness, 3) for name in names})


def calibrated(w: Weights, rows: list[tuple[NDArray[np.float64], set[int]]]) -> tuple[float, float]:
    """The sharpness at which the questions are likeliest, and the least probability at which answering is worth it."""

    def loss(sharpness: float) -> float:
        made = sharpened(w, sharpness)
        return -float(np.mean([np.log(sum(wanted.chances(x, made)[y] for y in ys) + 1e-12) for x, ys in rows]))

    sharpness = float(min(np.arange(0.8, 2.01, 0.1), key=loss))
    made = sharpened(w, sharpness)
    tops = [
        (float(max(p[:-1])), int(np.argmax(p[:-1])) in ys)
        for p, ys in ((wanted.chances(x, made), ys) for x, ys in rows)
    ]
    grid = np.arange(0.2, 0.81, 0.05)
    gain = [sum((1 if right else -2) for chance, right in tops if chance >= least) for least in grid]
    return round(sharpness, 2), float(np.round(grid[int(np.argmax(gain))], 2))


def report(rows: list[Sample], w: Weights) -> dict[str, float | int]:
    """How the examples are read when each is left out."""
    count = {"right": 0, "wrong": 0, "offered": 0, "offered_right": 0, "none_left_alone": 0, "none": 0}
    for x, y in rows:
        probabilities = wanted.chances(x, w)[:-1]
        order = np.argsort(-probabilities)
        if y == len(probabilities) - 1:
            count["none"] += 1
            count["none_left_alone"] += bool(probabilities[order[0]] < w.least or order[0] == y)
        elif probabilities[order[0]] >= w.least:
            count["right" if int(order[0]) == y else "wrong"] += 1
        else:
            count["offered"] += 1
            count["offered_right"] += y in [int(n) for n in order[: wanted.OFFERED]]
    return {**count, "examples": sum(y < len(wanted.keys()) - 1 for _, y in rows)}


def main() -> None:
    wanted.VECTORS.unlink(missing_ok=True)
    wanted.vectors.cache_clear()
    table, _ = wanted.vectors()
    np.savez_compressed(wanted.VECTORS, vectors=table.astype(np.float16), digest=wanted.digest())
    wanted.vectors.cache_clear()
    rows = samples()
    w, before = fit(rows), json.loads(wanted.WEIGHTS.read_text("utf-8"))
    others = asked(Path(sys.argv[1])) if len(sys.argv) > 1 else []
    sharpness, least = calibrated(w, others) if others else (before["sharpness"], before["least"])
    w = replace(sharpened(w, sharpness), least=least)
    numbers = {"examples_left_out": report(rows, w), "questions": _marked(w, others) if others else before["questions"]}
    wanted.WEIGHTS.write_text(json.dumps({**asdict(w), "sharpness": sharpness, **numbers}, indent=1) + "\n", "utf-8")
    print(json.dumps({**asdict(w), "sharpness": sharpness, **numbers}, indent=1))


def _marked(w: Weights, rows: list[tuple[NDArray[np.float64], set[int]]]) -> dict[str, int]:
    """How the questions of others are read: by the intended capability, another, or offered with it among three."""
    count = {"asked": len(rows), "right": 0, "wrong": 0, "offered_right": 0, "offered": 0, "left_alone": 0}
    for x, ys in rows:
        probabilities = wanted.chances(x, w)[:-1]
        order = [int(n) for n in np.argsort(-probabilities)]
        if probabilities[order[0]] >= w.least:
            count["right" if order[0] in ys else "wrong"] += 1
        elif ys >= {len(probabilities)}:
            count["left_alone"] += 1
        else:
            count["offered_right" if ys & set(order[: wanted.OFFERED]) else "offered"] += 1
    return count


if __name__ == "__main__":
    main()
