"""The model shapes the catalogue knows, from models.toml.  A row without a source does not load."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from os.path import commonprefix
from pathlib import Path
from types import MappingProxyType
from typing import Any

from perfmodel.data_file import EXACT, DataError, read_rows
from perfmodel.shapes import ModelShape

MODELS_FILE = Path(__file__).with_name("models.toml")

_SHAPE_FIELDS = {field.name: field for field in fields(ModelShape)}


class UnknownModelError(KeyError):
    """No model of that name.  `suggestion` is the nearest known name, or empty."""

    def __init__(self, name: str, suggestion: str) -> None:
        self.name = name
        self.suggestion = suggestion
        hint = f"did you mean {suggestion!r}?" if suggestion else "give its shape instead (layers, d_model, …)"
        super().__init__(f"{name!r} is not in the catalogue; {hint}")

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class CatalogueEntry:
    """A catalogued shape with the parameter counts its authors publish (None where they publish none).

    names_shape: of several models of one shape (releases with other weights) the one that a nameless shape is called.
    """

    __pydantic_config__ = EXACT

    shape: ModelShape
    params: float | None = None
    active_params: float | None = None
    aliases: tuple[str, ...] = ()
    names_shape: bool = False


def normalised(name: str) -> str:
    """A name as it is compared: lower case, without organisation prefix, `Instruct` suffix, and punctuation."""
    text = name.strip().lower().rsplit("/", 1)[-1]
    text = re.sub(r"^(meta-|nvidia-)", "", text)
    text = re.sub(r"[-_ ](instruct|chat|base|it|hf|pt|bf16|fp8)$", "", text)
    return re.sub(r"[^a-z0-9.]+", "", text)


def parse_models(data: Mapping[str, Any]) -> dict[str, CatalogueEntry]:
    """Entries of a parsed models.toml.  Raises DataError on a row without source or with an unknown key."""
    citations = data["sources"]
    entries: dict[str, dict[str, Any]] = {}
    for name, row in data.items():
        if name == "sources":
            continue
        if row.get("source") not in citations:
            raise DataError(f"{name}: a row without a source does not load")
        shape = {key: row[key] for key in row if key in _SHAPE_FIELDS}
        entries[name] = {key: row[key] for key in row if key not in _SHAPE_FIELDS}
        entries[name]["shape"] = {**shape, "name": name, "source": citations[row["source"]]}
    return read_rows(CatalogueEntry, entries)


@cache
def load_catalogue() -> Mapping[str, CatalogueEntry]:
    """All entries by name, in the order of the file."""
    with MODELS_FILE.open("rb") as file:
        return MappingProxyType(parse_models(tomllib.load(file)))


@cache
def _names() -> Mapping[str, str]:
    table: dict[str, str] = {}
    for name, entry in load_catalogue().items():
        for known in (name, *entry.aliases):
            if table.setdefault(normalised(known), name) != name:
                raise DataError(f"{known!r} names two models")
    return MappingProxyType(table)


#: Families by the start of their names; what is not here is a family of its own.
_FAMILIES = (
    ("deepseek", ("deepseek", "kimi")),
    ("llama", ("llama2", "llama3", "llama-2", "llama-3", "mistral")),
    ("llama4", ("llama4", "llama-4")),
    ("mixtral", ("mixtral",)),
    ("gemma", ("gemma",)),
    ("gpt-oss", ("gpt-oss", "gpt_oss")),
    ("gpt", ("gpt3", "gpt-3", "megatron", "turing", "mt-nlg", "alpa-gpt")),
    ("nemotron", ("nemotron",)),
    ("qwen", ("qwen",)),
    ("maxtext", ("maxtext",)),
)


def architecture(shape: ModelShape) -> str:
    """Family of architectures a shape belongs to (`deepseek`, `gpt-oss`), by its name or, nameless, by its sizes."""
    name = shape.name.lower().rsplit("/", 1)[-1].removeprefix("nvidia-").removeprefix("meta-")
    if not name:
        same = (shape.layers, shape.d_model, shape.heads, shape.vocab, shape.experts)
        for entry in load_catalogue().values():
            known = entry.shape
            if (known.layers, known.d_model, known.heads, known.vocab, known.experts) == same:
                name = known.name
                break
    for family, starts in _FAMILIES:
        if name.startswith(starts):
            return family
    return ""


def model_names() -> tuple[str, ...]:
    return tuple(load_catalogue())


#: What tells a shape: a configuration that spells these out, and nothing that differs from it, is that model.
_TELLING = ("layers", "d_model", "d_ff", "heads", "kv_heads", "head_dim", "vocab")
#: May be left out of a spelt-out shape; experts and latent attention are part of it.
_MAY_BE_OMITTED = ("mlp", "tied_embeddings", "sliding_window", "sliding_window_every")


def recognised(shape: ModelShape, given: Collection[str] | None = None) -> str:
    """Name of the catalogued model of this shape, empty where there is none.

    given: the keys that were spelt out; what is not among them may be as in the catalogue.  Without, all count.
    """
    omitted = () if given is None else [key for key in _MAY_BE_OMITTED if key not in given]
    keys = [key for key in _SHAPE_FIELDS if key not in ("name", "source", *omitted)]
    return _one_name(
        name
        for name, entry in load_catalogue().items()
        if all(getattr(entry.shape, k) == getattr(shape, k) for k in keys)
    )


def recognised_by(sizes: Mapping[str, int]) -> str | None:
    """Name of the only shape in the catalogue with these sizes of _TELLING; None where none or several have them.

    Vocabularies are padded to whole shards, by up to 2 %.
    """
    names = []
    for name, entry in load_catalogue().items():
        known = {key: getattr(entry.shape, key) for key in _TELLING}
        padded = sizes.get("vocab", known["vocab"])
        same = all(known[key] == size for key, size in sizes.items() if key != "vocab")
        if same and 0 <= padded - known["vocab"] <= 0.02 * known["vocab"]:
            names.append(name)
    shapes = {replace(load_catalogue()[name].shape, name="", source="") for name in names}
    return _one_name(names) if len(shapes) == 1 else None


def _one_name(names: Iterable[str]) -> str:
    """Of models of one shape, the one that names it; else the first of the file."""
    candidates = list(names)
    return next(
        (name for name in candidates if load_catalogue()[name].names_shape), candidates[0] if candidates else ""
    )


def get_model(name: str) -> ModelShape:
    """The catalogued shape of this name or alias, whatever its case and punctuation.  Raises UnknownModelError."""
    key = normalised(name)
    table = _names()
    if key in table:
        return load_catalogue()[table[key]].shape
    near = difflib.get_close_matches(key, list(table), n=5)
    # Of names about as close, the one that starts alike: a family is named first, its size last.
    near.sort(key=lambda known: -len(commonprefix([known, key])))  # noqa: RUF071 - names, not paths
    raise UnknownModelError(name, table[near[0]] if near else "")
