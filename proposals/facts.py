"""Settings of a run, and facts of it that may be missing, in words."""

from __future__ import annotations

from collections.abc import Iterable

from formatting import listed

_WORDS = {
    "model": "the model", "training.global_batch": "the global batch", "training.seq_len": "the sequence length",
    "hardware": "the chips", "step_time": "the step time",
}  # fmt: skip


_SETTINGS = {"seq_len": "sequence length", "grad_accum": "gradient accumulation", "micro_batch": "micro-batch"}


def setting(key: str) -> str:
    """A training key within a sentence: `weight sharding`, `sequence length`."""
    return _SETTINGS.get(key, key.replace("_", " "))


def in_words(names: Iterable[str]) -> str:
    """`the model, the global batch and the step time`: each once, in the order in which they are asked for.

    names: configuration paths, or `step_time`; a sentence is passed on as it is.
    """
    given = sorted(set(names), key=lambda name: ([*_WORDS, name].index(name), name))
    said = [_WORDS.get(name, name.rpartition(".")[2].replace("_", " ") if " " not in name else name) for name in given]
    return listed(said)


def not_known(names: Iterable[str]) -> str:
    """`the model and the sequence length are unknown`."""
    given = set(names)
    return f"{in_words(given)} {'is' if len(given) == 1 else 'are'} unknown"
