"""Learn what clauses mean from the examples: `make fit`, or `python -m evaluation.fit_meaning`."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from functools import cache
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from knowledge.embedding.minilm import MiniLM
from proposals.agents.reasoner import intents, meaning, references
from proposals.agents.reasoner.spelling import plain

Floats = NDArray[np.float64]

EXAMPLES = Path(__file__).with_name("meaning.toml")
NUMBERS = Path(__file__).with_name("meaning.json")
#: Weight of the squares of the weights; 0.05 to 0.2 did alike in cross-validation.
RIDGE = 0.1
FOLDS = 5


@cache
def examples() -> tuple[tuple[str, str], ...]:
    """(text, intent)."""
    found = tomllib.loads(EXAMPLES.read_text(encoding="utf-8"))["examples"]
    return tuple((text, intent) for intent, texts in found.items() for text in texts)


def digest() -> str:
    """Names the examples that were learnt from."""
    return sha256(EXAMPLES.read_bytes()).hexdigest()[:16]


def rule_of(text: str) -> str:
    return intents.of(references.proposals(plain(text))[1])


@cache
def data() -> tuple[Floats, NDArray[np.int64], tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Features (examples, vector and rules), the number of each one's intent, intents, rules, and the rule of each."""
    texts = [text for text, _ in examples()]
    fitted = tuple(rule_of(text) for text in texts)
    kinds = [meaning.ALIKE.get(intent, intent) for _, intent in examples()]
    names = tuple(sorted(set(kinds)))
    rules = tuple(sorted({meaning.ALIKE.get(name, name) for name, _ in intents.RULES} | {""}))
    features = np.hstack([MiniLM().embed(texts), [meaning.ruled(rule, rules) for rule in fitted]])
    return features.astype(float), np.array([names.index(kind) for kind in kinds]), names, rules, fitted


def fit(features: Floats, wanted: NDArray[np.int64], count: int) -> tuple[Floats, Floats]:
    """Matrix (features, intents) and bias of the softmax regression of least regularised log loss."""
    rows, columns = features.shape
    asked = np.eye(count)[wanted]

    def loss(values: Floats) -> tuple[float, Floats]:
        matrix, bias = values[:-count].reshape(columns, count), values[-count:]
        logs = log_softmax(features @ matrix + bias, axis=1)
        lost = 0.5 * RIDGE * (matrix**2).sum() - logs[np.arange(rows), wanted].sum()
        miss = np.exp(logs) - asked
        return float(lost), np.concatenate([(features.T @ miss + RIDGE * matrix).ravel(), miss.sum(0)])

    start = np.zeros(columns * count + count)
    best = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 200}).x
    return best[:-count].reshape(columns, count), best[-count:]


def cross_validated() -> dict[str, dict[str, float]]:
    """Shares of the examples that were read right, not at all, and wrong while a fifth of them was left out; of those
    that ask nothing the share that was left alone.  By the rules alone, and with the meaning."""
    features, wanted, names, _, fitted = data()
    fold = _folds(wanted)
    chances = np.zeros((len(wanted), len(names)))
    for number in range(FOLDS):
        kept = fold != number
        matrix, bias = fit(features[kept], wanted[kept], len(names))
        chances[~kept] = softmax(features[~kept] @ matrix + bias, axis=1)
    by_rules = [meaning.ALIKE.get(rule, rule) for rule in fitted]
    by_meaning = []
    for row, ((text, _), rule) in enumerate(zip(examples(), fitted, strict=True)):
        found = dict(zip(names, chances[row].tolist(), strict=True))
        by_meaning.append(meaning.ALIKE.get(name := meaning.decide(rule, text, found).intent, name))
    truth = [names[number] for number in wanted]
    return {"rules": _shares(truth, by_rules), "meaning": _shares(truth, by_meaning)}


def _folds(wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """A fold for each example, every intent spread evenly."""
    draw = np.random.default_rng(0)
    fold = np.zeros(len(wanted), np.int64)
    for intent in np.unique(wanted):
        members = np.flatnonzero(wanted == intent)
        draw.shuffle(members)
        fold[members] = np.arange(len(members)) % FOLDS
    return fold


def _shares(truth: list[str], said: list[str]) -> dict[str, float]:
    asks = [(want, got) for want, got in zip(truth, said, strict=True) if want != meaning.NOTHING]
    count = Counter(
        "right" if got == want else "unread" if got in ("", meaning.NOTHING) else "wrong" for want, got in asks
    )
    idle = [got in ("", meaning.NOTHING) for want, got in zip(truth, said, strict=True) if want == meaning.NOTHING]
    shares = {kind: count[kind] / len(asks) for kind in ("right", "unread", "wrong")}
    return shares | {"left_alone": float(np.mean(idle))}


def main() -> None:
    features, wanted, names, rules, _ = data()
    matrix, bias = fit(features, wanted, len(names))
    np.savez_compressed(
        meaning.WEIGHTS, matrix=matrix.astype(np.float32), bias=bias.astype(np.float32), rules=rules, intents=names
    )
    numbers = {"examples": len(wanted), "intents": len(names), "of": digest(), **cross_validated()}
    NUMBERS.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
