"""What flags, variables and arguments of compilers, NCCL and frameworks do, by name (flags.toml)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from perfmodel.data_file import EXACT, DataError, read_rows

_FILE = Path(__file__).with_name("flags.toml")
Takes = Literal["xla-tpu", "xla-gpu", "xla", "jax", "nccl", "cuda", "pytorch", "megatron", "maxtext"]
#: Words of a text that have the form of a flag, a variable or an argument with underscores or hyphens.
_WORD = re.compile(r"(?<![\w./-])-{0,2}([A-Za-z][A-Za-z0-9]*(?:[_-][A-Za-z0-9]+)+)(\*)?(?:=[\w.\-]+)?")
#: How a name begins that is nothing else than a flag.
_FORM = re.compile(
    r"^(?:xla_\w+_|nccl_|rccl_|cuda_|hip_|hsa_|nvte_|torch_|tf_|jax_|miopen_|pytorch_|tpu_)", re.IGNORECASE
)
#: What flags are put into, and beginnings of their names: neither is a flag.
_NO_FLAGS = frozenset(("xla_flags", "libtpu_init_args", "xla_gpu", "xla_tpu", "nccl_debug"))
#: Parts by which a name that is cut short is still that of a flag.
LEAST_PARTS = 3


class Flag(BaseModel):
    """A row of flags.toml; see there."""

    model_config = EXACT
    name: str
    takes: Takes
    does: str = Field(min_length=1)
    on: tuple[str, ...]
    memory: str = ""
    holds: tuple[str, ...] = ()
    needs_axis: tuple[str, ...] = ()
    called: tuple[str, ...] = ()
    sources: tuple[str, ...] = Field(min_length=1)


@cache
def load() -> dict[str, Flag]:
    """All flags by name in lower case.  Raises DataError."""
    data = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    flags = read_rows(Flag, {name: {"name": name, **row} for name, row in data["flag"].items()})
    for flag in flags.values():
        if not set(flag.sources) <= set(data["sources"]):
            raise DataError(f"{flag.name}: a flag without a known source does not load")
    return {_plain(name): flag for name, flag in flags.items()}


def citation(flag: Flag) -> str:
    """The titles of the documents that say what it does."""
    sources = tomllib.loads(_FILE.read_text(encoding="utf-8"))["sources"]
    return "; ".join(sources[key][0] for key in flag.sources)


def _plain(name: str) -> str:
    return name.lower().lstrip("-").replace("-", "_")


def named(text: str) -> Iterator[tuple[str, tuple[Flag, ...]]]:
    """Flags that a text names, as written, with what is known of each: several for `…_fusion*`, none where it has the
    form of a flag and is not known."""
    known, seen = load(), set[str]()
    lower = text.lower()
    for flag in known.values():
        if any(re.search(rf"\b{re.escape(name)}\b", lower) for name in flag.called):
            seen.add(_plain(flag.name))
            yield flag.name, (flag,)
    for match in _WORD.finditer(text):
        word = _plain(match[1])
        if word in seen or word in _NO_FLAGS:
            continue
        matches = tuple(flag for name, flag in known.items() if name not in seen and _means(word, name, bool(match[2])))
        if matches or _FORM.match(match[1]) or match[0].startswith("--"):
            seen |= {word, *(_plain(flag.name) for flag in matches)}
            yield match[0].partition("=")[0], matches


def _means(word: str, name: str, open_ended: bool) -> bool:
    """Whether a word is a flag's name: whole, its beginning before a `*`, or its end where it was cut short."""
    if open_ended:
        return name.startswith(word)
    return word == name or (word.count("_") >= LEAST_PARTS - 1 and name.endswith(f"_{word}"))
