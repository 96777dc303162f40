"""Fit how likely an answer is to be right: `python -m evaluation.fit_certainty [GRADED]`.

GRADED: a JSON list of {id, run, before, text, answer, mark, by}; mark: right, partly, wrong or refused; by: whose.  Of
each that was answered the signs of `reasoner.certainty`, the mark and a digest of question and answer are kept in
graded_answers.json, so that a mark is never taken for that of another answer; without GRADED the fit is over these.

The least probability is set so that of all graded questions, read with whole runs left out of the fit, at most a
share of `MOST_WRONG` is answered wrongly.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from proposals.agents import notation
from proposals.agents.capabilities import registry
from proposals.agents.reasoner import certainty, wanted
from proposals.agents.reasoner.form import SETTINGS
from proposals.agents.reasoner.understand import clauses

KEPT = Path(__file__).with_name("graded_answers.json")
MOST_WRONG = 0.05
#: What a mark is worth.
WORTH = {"right": 1.0, "partly": 0.5, "wrong": 0.0, "refused": 0.0}
#: Of the weights of standardised signs, so that a few answers do not drive them far.
PRIOR = 1.0
#: What takes a statement over, or leaves a deed to a person, is no answer that may be likely or not.
TOLD = ("hold", "forget", "decide")

Array = NDArray[np.float64]


def digest(item: dict[str, Any]) -> str:
    return sha256(f"{item['text']}\n{item['answer'].strip()}".encode()).hexdigest()[:16]


def answered(item: dict[str, Any]) -> list[str]:
    """The capabilities that answered, by the titles of the answer."""
    keys = {each.title: key for key, each in registry().items()}
    return [keys[title] for title in re.findall(r"(?m)^\*\*(.+?):\*\*", item["answer"]) if title in keys]


def signs(item: dict[str, Any], keys: list[str]) -> list[float]:
    """As the reasoner has them of its own answer."""
    best = dict.fromkeys(keys, 0.0)
    names: set[str] = set()
    for clause in clauses(item["text"]):
        read = notation.read(clause)
        near = dict(wanted.nearest(read.words, read.names))
        best = {key: max(chance, near[key]) for key, chance in best.items()}
        names |= read.names & SETTINGS
    fields = {name for key in keys for name in registry()[key].fields}
    chance = min(best.values())
    return certainty.signs(item["text"], keys, item["answer"], chance, bool(names & fields))


def kept(path: Path) -> list[dict[str, Any]]:
    """Compact rows of graded answers; those that no capability answered have no signs."""
    rows = []
    for item in json.loads(path.read_text("utf-8")):
        keys = answered(item)
        judged = bool(keys) and not set(keys) & set(TOLD)
        features = [round(x, 3) for x in signs(item, keys)] if judged else []
        rows.append({"id": item["id"], "run": item["run"], "mark": item["mark"],
                     "by": item.get("by", "grader"), "digest": digest(item),
                     "stated": bool(set(keys) & set(TOLD)), "signs": features})  # fmt: skip
    return rows


def fitted(x: Array, y: Array) -> Array:
    """Weights of the signs, the constant first."""
    mean, spread = x.mean(0), np.where(x.std(0) > 0, x.std(0), 1.0)
    mean[0], spread[0] = 0.0, 1.0
    z = (x - mean) / spread

    def loss(w: Array) -> float:
        score = z @ w
        return float(np.sum(np.logaddexp(0.0, score) - y * score) + PRIOR * np.sum(w[1:] ** 2))

    w = np.asarray(minimize(loss, np.zeros(z.shape[1]), method="L-BFGS-B").x) / spread
    w[0] -= float(w[1:] @ mean[1:])
    return w


def left_out(x: Array, y: Array, runs: Array) -> Array:
    """Probability of each answer by weights fitted to the answers of all other runs."""
    predicted = np.zeros(len(y))
    for run in set(runs.tolist()):
        mine = runs == run
        predicted[mine] = 1 / (1 + np.exp(-x[mine] @ fitted(x[~mine], y[~mine])))
    return predicted


def least(chances: Array, marks: Array, most: int) -> float:
    """The lowest probability at which at most so many wrong answers are given."""
    wrong = np.sort(chances[marks == "wrong"])[::-1]
    edge = float(wrong[most]) if len(wrong) > most else 0.0
    above = chances[chances > edge]
    return round((float(above.min()) + edge) / 2, 3) if len(above) else 1.0


def main() -> None:
    if len(sys.argv) > 1:
        lines = ",\n".join(json.dumps(row) for row in kept(Path(sys.argv[1])))
        KEPT.write_text(f"[\n{lines}\n]\n", "utf-8")
    rows = json.loads(KEPT.read_text("utf-8"))
    some = [row for row in rows if row["signs"]]
    x, marks = np.array([row["signs"] for row in some]), np.array([row["mark"] for row in some])
    y, runs = np.array([WORTH[mark] for mark in marks]), np.array([row["run"] for row in some])
    chances = left_out(x, y, runs)
    stated = sum(row["stated"] and row["mark"] == "wrong" for row in rows)  # answered whatever the probability
    at = least(chances, marks, int(MOST_WRONG * len(rows)) - stated)
    shown = Counter(marks[chances >= at].tolist())
    numbers = {
        "weights": dict(zip(certainty.SIGNS, np.round(fitted(x, y), 3).tolist(), strict=True)),
        "least": at,
        "graded": {"questions": len(rows), "answered": len(some), **Counter(marks.tolist())},
        "runs_left_out": {"shown": int(sum(shown.values())), **shown},
    }
    certainty.WEIGHTS.write_text(json.dumps(numbers, indent=1) + "\n", "utf-8")
    print(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
