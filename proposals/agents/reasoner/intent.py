"""What a clause asks for: the nearest capabilities, each with a probability, and a probability that it is none of them.

The clause's sentence vector is compared with those of the capabilities' examples and descriptions; words that they
share, values that a form takes and a direction of the vector for each capability weigh in: one logistic regression,
fitted by `evaluation.fit_capabilities`.  Without the embedder words and values stand alone.
"""

from __future__ import annotations

import json
import logging
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from hashlib import sha256
from importlib.resources import files
from math import log
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from knowledge.embedding.base import EmbeddingError
from knowledge.embedding.minilm import DIMENSION, MiniLM
from proposals.agents import capabilities
from proposals.agents.capabilities import registry
from proposals.agents.notation import read

logger = logging.getLogger(__name__)

VECTORS = Path(__file__).with_name("examples.npz")
DESCRIBED = Path(__file__).with_name("described.toml")
WEIGHTS = Path(__file__).with_name("weights.json")
PHRASES = "phrases.toml"
#: What stands for everything that no capability is about: small talk, secrets, other trades.
OUTSIDE = "outside"
#: Directions of the examples with less than this share of the largest spread count less, the others alike: what all
#: questions about a run have in common tells nothing.
SMOOTHED = 0.3
#: Nearest capabilities offered where none is certain enough.
OFFERED = 3
#: Fields of a form by the names of the values that fill them; values without a field of their own fill these.
FILLS = {
    "mesh": ("mesh", "meshes"), "proposal": ("proposal", "proposals"), "bytes": ("usable_hbm_gb",),
    "share": ("memory_free_percent",),
}  # fmt: skip
#: Values that say nothing of what is wanted.
NEUTRAL = frozenset(("number", "quantity", "ratio", "bytes", "share", "bytes_per_s", "model_name"))
#: Rarity of a word that no capability's texts hold.
UNHEARD = 4.0
_WORD = re.compile(r"[a-z0-9]+")
_ENDING = re.compile(r"(?<=[a-z]{3})(ations?|ing|ed|es|s|ly)$")


@dataclass(frozen=True)
class Weights:
    """mean, nearest: of the similarity with a capability's texts; words: of the words shared with one of them;
    taken: of the share of the values that its form takes; nothing: of being none; least: probability from which a
    capability is answered."""

    mean: float = 22.0
    nearest: float = 8.0
    words: float = 7.5
    taken: float = 1.5
    nothing: float = 1.0
    least: float = 0.5

    @property
    def of_features(self) -> NDArray[np.float64]:
        """Of the columns of `features`."""
        return np.array([self.mean, self.nearest, self.words, self.taken])


@dataclass(frozen=True)
class Directions:
    """What a clause's vector by itself says of each capability.  rows: (capabilities, dimension); offset:
    (capabilities,)."""

    rows: NDArray[np.float64]
    offset: NDArray[np.float64]

    @classmethod
    def none(cls) -> Directions:
        return cls(np.zeros((len(keys()), DIMENSION)), np.zeros(len(keys())))

    def scores(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.rows @ vector + self.offset


@cache
def keys() -> tuple[str, ...]:
    return (*registry(), OUTSIDE)


def fields_of(key: str) -> tuple[str, ...]:
    return registry()[key].fields if key != OUTSIDE else ()


@cache
def weights() -> Weights:
    data = json.loads(WEIGHTS.read_text("utf-8"))
    return Weights(**{name: data[name] for name in asdict(Weights())})


def texts() -> list[tuple[str, str]]:
    """(key, text) of everything that a clause is compared with, values replaced as in a clause."""
    rows = []
    for key in registry():
        rows += [(key, read(text).words) for text in compared_with(key)]
    rows += [(OUTSIDE, text) for text in phrases()[OUTSIDE]]
    return rows


def compared_with(key: str) -> tuple[str, ...]:
    """The texts of one capability.  Rewording what people read of it needs no new fit: the classifier keeps the title
    and the description that it was fitted to."""
    item = registry()[key]
    return (*questions_of(key), *_described().get(key, (item.title, item.description)))


def fitted_title(key: str) -> str:
    """The title under which the classifier knows a capability; buttons of earlier versions have it."""
    return _described().get(key, (registry()[key].title,))[0]


@cache
def _described() -> Mapping[str, tuple[str, ...]]:
    return {key: tuple(each) for key, each in tomllib.loads(DESCRIBED.read_text("utf-8")).items()}


@cache
def phrases() -> Mapping[str, tuple[str, ...]]:
    """Further wordings by capability."""
    data = tomllib.loads(files(capabilities).joinpath(PHRASES).read_text("utf-8"))
    return {key: tuple(each) for key, each in data.items()}


def digest() -> str:
    return sha256(json.dumps(texts()).encode()).hexdigest()


@cache
def _stored() -> Mapping[str, NDArray[np.float32]]:
    """What was fitted to exactly these texts; empty where they have changed since."""
    if not VECTORS.exists():
        return {}
    with np.load(VECTORS) as file:
        same = str(file["digest"]) == digest()
        return {name: file[name].astype(np.float32) for name in ("vectors", "rows", "offset")} if same else {}


@cache
def vectors() -> tuple[NDArray[np.float32], tuple[str, ...]]:
    """Vectors of `texts()`, and the key of each; computed anew where those that ship are of other texts."""
    rows, stored = texts(), _stored()
    table = stored["vectors"] if stored else embed([text for _, text in rows])
    return table, tuple(key for key, _ in rows)


@cache
def directions() -> Directions:
    """As fitted; none where the texts have changed since."""
    stored = _stored()
    if not stored:
        return Directions.none()
    return Directions(stored["rows"].astype(np.float64), stored["offset"].astype(np.float64))


def embed(clauses: Sequence[str]) -> NDArray[np.float32]:
    """Unit vectors, or zeros without the embedder."""
    try:
        return _embedder().embed(clauses)
    except EmbeddingError:
        logger.warning("what is asked is read by words and values alone", exc_info=True)
        return np.zeros((len(clauses), DIMENSION), np.float32)


@cache
def _embedder() -> MiniLM:
    return MiniLM()


@lru_cache(maxsize=2048)
def _vector(clause: str) -> NDArray[np.float32]:
    return embed([clause])[0]


def warm() -> None:
    """Load the embedder, and compile it for clauses of usual lengths, before somebody waits for it."""
    vectors()
    for words in (3, 20, 40):
        _vector("runs like this one " * (words // 3))


def tokens(text: str) -> frozenset[str]:
    return frozenset(_ENDING.sub("", word) for word in _WORD.findall(text.lower()))


@cache
def _vocabulary() -> tuple[Mapping[str, float], tuple[frozenset[str], ...]]:
    """Inverse document frequencies over the capabilities, and the words of each text."""
    each = tuple(tokens(text) for _, text in texts())
    by_key: dict[str, set[str]] = {}
    for (key, _), words in zip(texts(), each, strict=True):
        by_key.setdefault(key, set()).update(words)
    by_key.pop(OUTSIDE)  # what is heard there is as rare as before
    count = len(by_key)
    every = {word for words in by_key.values() for word in words}
    return {w: log(count / sum(w in words for words in by_key.values())) for w in every}, each


def rarity(word: str) -> float:
    """Inverse document frequency of a word (an ending taken off) over the capabilities."""
    return _vocabulary()[0].get(word, UNHEARD)


def questions_of(key: str) -> tuple[str, ...]:
    """The questions that a capability says it answers."""
    return (*registry()[key].examples, *phrases().get(key, ()))


def words_of(some: Collection[str]) -> frozenset[str]:
    """Words of all texts of some capabilities."""
    _, each = _vocabulary()
    weighted = zip(vectors()[1], each, strict=True)
    return frozenset(word for key, words in weighted if key in some for word in words)


@cache
def _space() -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean and whitening of the texts' vectors, and the texts in that space, of unit length."""
    table = vectors()[0].astype(np.float64)
    mean = table.mean(0)
    _, spread, directions = np.linalg.svd(table - mean, full_matrices=False)
    scale = directions.T / (spread + SMOOTHED * max(spread[0], 1e-9))
    return mean, scale, _unit((table - mean) @ scale)


def vector(clause: str) -> NDArray[np.float64]:
    """Unit vector of a clause in that space: (dimension,)."""
    mean, scale, _ = _space()
    return _unit((_vector(clause).astype(np.float64) - mean) @ scale)


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-9)


def features(clause: str, values: Collection[str], without: int | None = None) -> NDArray[np.float64]:
    """Mean and largest similarity, shared words, and values that the form takes, of every capability:
    (capabilities, 4).

    clause: with its values replaced.  values: names of those.  without: a text that does not count (to fit).
    """
    cosines = _space()[2] @ vector(clause)
    rare, each = _vocabulary()
    words = tokens(clause)
    whole = sum(rare.get(word, UNHEARD) for word in words) or 1.0
    shared = np.array([sum(rare.get(w, UNHEARD) for w in words & text) / whole for text in each])
    said = set(values) - NEUTRAL
    scores = np.zeros((len(keys()), 4))
    for number, (key, mine) in enumerate(zip(keys(), _rows(), strict=True)):
        rows = mine if without is None else mine[mine != without]
        fields = set(fields_of(key))
        taken = sum(bool(fields & set(FILLS.get(name, (name,)))) for name in said)
        scores[number] = cosines[rows].mean(), cosines[rows].max(), shared[rows].max(), taken / max(len(said), 1)
    return scores


@cache
def _rows() -> tuple[NDArray[np.int64], ...]:
    """Places in `texts()` by capability."""
    owners = np.array(vectors()[1])
    return tuple(np.flatnonzero(owners == key) for key in keys())


def chances(
    scored: NDArray[np.float64], said: NDArray[np.float64], w: Weights, directed: Directions
) -> NDArray[np.float64]:
    """Probabilities of the capabilities, and of none of them last.  scored: their features; said: the clause's
    vector."""
    from scipy.special import softmax  # as in perfmodel.arrays: slow to import, and only a question needs it

    return np.asarray(softmax(np.append(scored @ w.of_features + directed.scores(said), w.nothing)))


def nearest(clause: str, values: Collection[str]) -> list[tuple[str, float]]:
    """Capabilities by probability, the likeliest first."""
    probabilities = chances(features(clause, values), vector(clause), weights(), directions())[:-1]
    order = np.argsort(-probabilities)
    return [(keys()[int(n)], float(probabilities[int(n)])) for n in order]
