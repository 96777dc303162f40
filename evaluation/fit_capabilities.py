"""Fit what is wanted of a clause: `make fit`, or `python -m evaluation.fit_capabilities`.

One logistic regression over the capabilities and *none of them*: of the similarities with a capability's texts, and of
a direction of the clause's vector for each.  It is fitted to the examples, each read as if it were none, to sentences
of off_topic.txt, which are none, and to questions of others (`QUESTIONS`; wanted.json says by id which capabilities
answer them).  From which probability on a capability is answered is set on the questions, read with all questions of
their author left out: a wrong answer costs twice what a right one gains.  Vectors and directions are written beside the
weights, so that nobody waits for them at the start.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp

from proposals.agents.capabilities import registry
from proposals.agents.notation import read
from proposals.agents.reasoner import intent
from proposals.agents.reasoner.intent import Directions, Weights

OFF_TOPIC = Path(__file__).with_name("off_topic.txt")
QUESTIONS = ("dev.json", "fresh_graded.json")
FOLDER = Path(__file__).with_name("questions")
RIGHT = FOLDER / "wanted.json"
#: Of the squares of the directions; of those of the weights' relative distance from where they start.
RIDGE, PRIOR = 0.3, 0.01
#: What a question of others weighs beside an example.
OF_OTHERS = 2.0

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """features: (capabilities, 4); said: the clause's vector; right: (capabilities + 1,), none of them last.  author:
    empty of an example."""

    features: Array
    said: Array
    right: NDArray[np.bool_]
    author: str = ""


def samples() -> list[Sample]:
    """Examples, each without itself, and what is off topic."""
    drawn = []
    at = 0
    for key in registry():
        for text in intent.compared_with(key):
            drawn.append(_sample(text, (key,), without=at))
            at += 1
    return drawn + [_sample(text, (intent.OUTSIDE,)) for text in OFF_TOPIC.read_text("utf-8").splitlines()]


def questions() -> list[Sample]:
    """Questions of others but for those that go on from earlier ones."""
    right = json.loads(RIGHT.read_text("utf-8"))
    every = [item for name in QUESTIONS for item in json.loads((FOLDER / name).read_text("utf-8"))]
    alone = [item for item in every if item["id"] in right and not item["before"]]
    return [_sample(item["text"], _keys(item, right[item["id"]]), author=_author(item)) for item in alone]


def _keys(item: dict[str, Any], right: list[str]) -> tuple[str, ...]:
    return (*right, intent.OUTSIDE) if item.get("kind") == "off-topic" else tuple(right)


def _author(item: dict[str, Any]) -> str:
    return str(item.get("author") or item["id"].rpartition("-")[2][0])


def _sample(text: str, keys: Sequence[str], without: int | None = None, author: str = "") -> Sample:
    place = {key: number for number, key in enumerate(intent.keys())}
    right = np.zeros(len(place) + 1, bool)
    right[[place.get(key, len(place)) for key in keys]] = True
    said = read(text)
    return Sample(intent.features(said.words, said.names, without), intent.vector(said.words), right, author)


def fit(rows: Sequence[Sample]) -> tuple[Weights, Directions]:
    """What makes the right capabilities of all rows likeliest."""
    features, said = np.stack([row.features for row in rows]), np.stack([row.said for row in rows])
    right = np.stack([row.right for row in rows])
    counts = np.array([OF_OTHERS if row.author else 1.0 for row in rows])
    size, dimension = features.shape[1], said.shape[1]
    start = Weights()
    names = ("mean", "nearest", "words", "taken", "nothing")
    first = np.array([getattr(start, name) for name in names])

    def loss(vector: Array) -> tuple[float, Array]:
        table, offset, w = np.split(vector, (size * dimension, size * (dimension + 1)))
        table = table.reshape(size, dimension)
        scores = np.hstack([features @ w[:4] + said @ table.T + offset, np.full((len(rows), 1), w[4])])
        every = log_softmax(scores, axis=1)
        mine = np.where(right, every, -np.inf)
        whole = logsumexp(mine, axis=1, keepdims=True)
        pull = (np.exp(every) - np.exp(mine - whole)) * counts[:, None]
        off = (w - first) / first
        value = -counts @ whole[:, 0] + RIDGE * (np.sum(table**2) + np.sum(offset**2)) + PRIOR * np.sum(off**2)
        slope_w = np.append(np.einsum("nk,nkf->f", pull[:, :-1], features), pull[:, -1].sum()) + 2 * PRIOR * off / first
        slope_table = pull[:, :-1].T @ said + 2 * RIDGE * table
        slope_offset = pull[:, :-1].sum(0) + 2 * RIDGE * offset
        return float(value), np.concatenate([slope_table.ravel(), slope_offset, slope_w])

    begin = np.concatenate([np.zeros(size * (dimension + 1)), first])
    solved = minimize(loss, begin, jac=True, method="L-BFGS-B", options={"maxiter": 300}).x
    table, offset, w = np.split(solved, (size * dimension, size * (dimension + 1)))
    weights = replace(start, **dict(zip(names, np.round(w, 3).tolist(), strict=True)))
    return weights, Directions(table.reshape(size, dimension), offset)


def read_as(rows: Sequence[Sample], fitted: tuple[Weights, Directions]) -> list[tuple[Array, NDArray[np.bool_]]]:
    """Probabilities of each row, and what is right."""
    return [(intent.chances(row.features, row.said, *fitted), row.right) for row in rows]


def authors_left_out(examples: Sequence[Sample], rows: Sequence[Sample]) -> list[tuple[Array, NDArray[np.bool_]]]:
    """Each question read by what was fitted without any question of its author."""
    made = []
    for author in sorted({row.author for row in rows}):
        others = [row for row in rows if row.author != author]
        made += read_as([row for row in rows if row.author == author], fit([*examples, *others]))
    return made


def least(rows: Sequence[tuple[Array, NDArray[np.bool_]]]) -> float:
    """The probability from which answering is worth it."""
    tops = [(float(p[:-1].max()), bool(right[int(np.argmax(p[:-1]))])) for p, right in rows]
    grid = np.arange(0.2, 0.81, 0.05)
    gain = [sum((1 if right else -2) for chance, right in tops if chance >= at) for at in grid]
    return float(np.round(grid[int(np.argmax(gain))], 2))


def counted(rows: Sequence[tuple[Array, NDArray[np.bool_]]], at: float) -> dict[str, int]:
    """How rows are read: as an intended capability, as another, or offered with one among three."""
    count = {"asked": len(rows), "right": 0, "wrong": 0, "offered_right": 0, "offered": 0, "left_alone": 0,
             "likeliest_right": 0, "of": 0}  # fmt: skip
    for p, right in rows:
        order = np.argsort(-p[:-1])
        count["of"] += bool(right[:-1].any())
        count["likeliest_right"] += bool(right[order[0]])
        if p[order[0]] >= at:
            count["right" if right[order[0]] else "wrong"] += 1
        elif not right[:-1].any():
            count["left_alone"] += 1
        else:
            count["offered_right" if right[order[: intent.OFFERED]].any() else "offered"] += 1
    return count


def main() -> None:
    intent.VECTORS.unlink(missing_ok=True)
    for kept in (intent._stored, intent.vectors, intent._space, intent.directions):
        kept.cache_clear()
    examples, asked = samples(), questions()
    unseen = authors_left_out(examples, asked)
    at = least(unseen)
    weights, directed = fit([*examples, *asked])
    np.savez_compressed(
        intent.VECTORS,
        vectors=intent.vectors()[0].astype(np.float16),
        rows=directed.rows.astype(np.float16),
        offset=directed.offset.astype(np.float16),
        digest=intent.digest(),
    )
    numbers = {**asdict(replace(weights, least=at)), "authors_left_out": counted(unseen, at)}
    intent.WEIGHTS.write_text(json.dumps(numbers, indent=1) + "\n", "utf-8")
    print(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
