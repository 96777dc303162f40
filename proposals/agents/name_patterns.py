"""How chips and models of the data files are spelt in a message: patterns of their names, and the key that is meant."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from perfmodel.catalogue import load_catalogue
from perfmodel.chips import load_chips

#: Names that engineers use for a chip beside its key.
_ALIASES = {"trillium": "v6e", "ironwood": "tpu7x", "v5litepod": "v5e", "a100": "a100-80gb"}


def chip_names() -> str:
    """A pattern of the names of all chips, with maker and plural."""
    keys = [re.escape(key).replace(r"\-", r"[- ]?") for key in sorted(load_chips(), key=len, reverse=True)]
    return (
        rf"(?<![\w.])(?:tpu[- ]?|nvidia\s|amd\s)?(?:{'|'.join([*keys, *_ALIASES, 'a100', 'v100'])})(?:s)?(?![\w.]|-\d)"
    )


def chip_named(text: str) -> str:
    """The key of the chip that a text matched by `chip_names` names; the text itself where there is no such chip."""
    word = re.sub(r"^(?:tpu[- ]?(?=v)|nvidia\s|amd\s)", "", text.lower()).replace(" ", "-")
    known = load_chips()
    for name in (word, word.rstrip("s"), _ALIASES.get(word.rstrip("s"), "")):
        if name in known:
            return name
    return next((key for key in known if key.startswith(word.rstrip("s"))), word)


@lru_cache(maxsize=1)
def _models() -> Mapping[str, str]:
    return {re.sub(r"[^a-z0-9]", "", name.lower()): name for name in load_catalogue()}


def model_names() -> str:
    """A pattern of the names of all models of the catalogue, in any spelling."""
    names = (
        re.sub(r"(?<=[a-z])(?=\d)|[-_ ]", r"[-_ .]?", name) for name in sorted(load_catalogue(), key=len, reverse=True)
    )
    return rf"(?<![\w.])(?:{'|'.join(names)})(?![\w.]*\d)"


def model_named(text: str) -> str:
    """The name in the catalogue of the model that a text names; the text itself where there is none."""
    word = re.sub(r"[^a-z0-9]", "", text.lower())
    return _models().get(word, text)
