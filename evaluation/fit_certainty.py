"""Fit how likely an answer is to be right.

`python -m evaluation.fit_certainty QUESTIONS RUNS ANSWERS` writes the answers to questions of others, each shown
however unlikely, with the signs of `reasoner.answer_confidence` beside them, for somebody to add `"mark"`: right,
partly, wrong, offered or refused (files as `evaluation.quality.evaluate` has them).  `python -m
evaluation.fit_certainty MARKED` keeps of each its signs, its mark and a digest of question and answer in
graded_answers.json, so that a mark is never taken for that of another answer, and fits; without arguments the fit is
over what is kept.

The least probability is set on the questions by which the reading was not fitted (`evaluation.fit_capabilities`): a
reading that has seen a question is nearer than it would be.  Of these, read with whole runs left out of the fit, at
most a share of `MOST_WRONG` is answered wrongly.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from evaluation.fit_capabilities import RIGHT
from evaluation.quality import evaluate
from proposals.agents.reasoner import answer_confidence

KEPT = Path(__file__).with_name("graded_answers.json")
MOST_WRONG = 0.05
#: What a mark is worth.
WORTH = {"right": 1.0, "partly": 0.5, "wrong": 0.0, "offered": 0.0, "refused": 0.0}
#: Of the weights of standardised signs, so that a few answers do not drive them far.
PRIOR = 1.0

Array = NDArray[np.float64]


@contextmanager
def everything_shown() -> Iterator[list[list[float]]]:
    """The reasoner shows whatever it computes; the signs of each answer that it would have judged."""
    judged: list[list[float]] = []
    own = answer_confidence.signs

    def signs(*given: Any) -> list[float]:
        judged.append(own(*given))
        return judged[-1]

    with (
        mock.patch.object(answer_confidence, "signs", signs),
        mock.patch.object(answer_confidence, "probability", return_value=1.0),
    ):
        yield judged


def shown(questions: Path, runs: Path) -> Iterator[dict[str, Any]]:
    with everything_shown() as judged:
        for row in evaluate.answers(questions, runs):
            yield {**row, "signs": [round(x, 3) for x in judged[-1]] if judged else []}
            judged.clear()


def kept(marked: Path) -> list[dict[str, Any]]:
    """Compact rows of graded answers; those that the certainty does not judge have no signs."""
    return [
        {
            "id": item["id"], "run": item["run"], "mark": item["mark"],
            "digest": sha256(f"{item['text']}\n{item['answer'].strip()}".encode()).hexdigest()[:16],
            "signs": item["signs"],
        }
        for item in map(json.loads, marked.read_text("utf-8").splitlines())
    ]  # fmt: skip


def fitted(x: Array, y: Array) -> Array:
    """Weights of the signs, the constant first.  An answer worth 0.5 counts half as right and half as wrong."""
    scaler = StandardScaler().fit(x[:, 1:])
    z = scaler.transform(x[:, 1:])
    model = LogisticRegression(C=0.5 / PRIOR, tol=1e-8).fit(
        np.vstack([z, z]), np.repeat([1, 0], len(y)), sample_weight=np.concatenate([y, 1 - y])
    )
    w = model.coef_[0] / scaler.scale_
    return np.array([model.intercept_[0] - w @ scaler.mean_, *w])


def left_out(x: Array, y: Array, runs: Array) -> Array:
    """Probability of each answer by weights fitted to the answers of all other runs."""
    predicted = np.zeros(len(y))
    for run in set(runs.tolist()):
        mine = runs == run
        predicted[mine] = 1 / (1 + np.exp(-x[mine] @ fitted(x[~mine], y[~mine])))
    return predicted


def least(chances: Array, marks: Array, most: int) -> float:
    """The lowest probability at which the number of wrong answers stays within a limit."""
    wrong = np.sort(chances[marks == "wrong"])[::-1]
    edge = float(wrong[most]) if len(wrong) > most else 0.0
    above = chances[chances > edge]
    return round((float(above.min()) + edge) / 2, 3) if len(above) else 1.0


def fit() -> dict[str, Any]:
    rows = json.loads(KEPT.read_text("utf-8"))
    seen = json.loads(RIGHT.read_text("utf-8")).keys()
    some = [row for row in rows if row["signs"]]
    x, marks = np.array([row["signs"] for row in some]), np.array([row["mark"] for row in some])
    y, runs = np.array([WORTH[mark] for mark in marks]), np.array([row["run"] for row in some])
    unseen = np.array([row["id"] not in seen for row in some])
    chances, marks = left_out(x, y, runs)[unseen], marks[unseen]
    new = [row for row in rows if row["id"] not in seen]
    sure = Counter(row["mark"] for row in new if not row["signs"])  # whatever the probability
    at = least(chances, marks, int(MOST_WRONG * len(new)) - sure["wrong"])
    given = Counter(marks[chances >= at].tolist()) + sure
    return {
        "weights": dict(zip(answer_confidence.SIGNS, np.round(fitted(x, y), 3).tolist(), strict=True)),
        "least": at,
        "graded": {"questions": len(rows), **Counter(row["mark"] for row in rows)},
        "unseen": {"questions": len(new), **Counter(row["mark"] for row in new)},
        "unseen_runs_left_out": {"judged_and_shown": int((chances >= at).sum()), **given},
    }


def main() -> None:
    files = [Path(each) for each in sys.argv[1:]]
    if len(files) == 3:
        with files[2].open("w", encoding="utf-8") as file:
            for row in shown(*files[:2]):
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        return
    if files:
        lines = ",\n".join(json.dumps(row) for row in kept(files[0]))
        KEPT.write_text(f"[\n{lines}\n]\n", "utf-8")
    numbers = fit()
    answer_confidence.WEIGHTS.write_text(json.dumps(numbers, indent=1) + "\n", "utf-8")
    print(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
