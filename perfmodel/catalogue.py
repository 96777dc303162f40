"""Model shapes: the catalogue of models.toml, and the model part of a configuration.

A configuration gives a catalogue name, a shape, or a config.json as Hugging Face writes it.  A row of the catalogue
without a source does not load.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache
from os.path import commonprefix
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field, ValidationError

from perfmodel.config import ConfigError, ModelShape
from perfmodel.reading import (
    EXACT,
    Bool,
    Complaints,
    DataError,
    FilePart,
    Whole,
    choice,
    complaints,
    mapping,
    read_rows,
    shipped,
    shown,
)

SHAPE_KEYS = tuple(field.name for field in fields(ModelShape))


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
        shape = {key: row[key] for key in row if key in SHAPE_KEYS}
        entries[name] = {key: row[key] for key in row if key not in SHAPE_KEYS}
        entries[name]["shape"] = {**shape, "name": name, "source": citations[row["source"]]}
    return read_rows(CatalogueEntry, entries)


@cache
def load_catalogue() -> Mapping[str, CatalogueEntry]:
    """All entries by name, in the order of the file."""
    return MappingProxyType(parse_models(shipped("models.toml")))


@cache
def _names() -> Mapping[str, str]:
    table: dict[str, str] = {}
    for name, entry in load_catalogue().items():
        for known in (name, *entry.aliases):
            if table.setdefault(normalised(known), name) != name:
                raise DataError(f"{known!r} names two models")
    return MappingProxyType(table)


#: Starts of names by family; what is not here belongs to none.
_FAMILIES = {
    "deepseek": ("deepseek", "kimi"),
    "llama": ("llama2", "llama3", "llama-2", "llama-3", "mistral"),
    "llama4": ("llama4", "llama-4"),
    "gpt-oss": ("gpt-oss", "gpt_oss"),
    "gpt": ("gpt3", "gpt-3", "megatron", "turing", "mt-nlg", "alpa-gpt"),
    **{name: (name,) for name in ("mixtral", "gemma", "nemotron", "qwen", "maxtext")},
}


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
    return next((family for family, starts in _FAMILIES.items() if name.startswith(starts)), "")


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
    keys = [key for key in SHAPE_KEYS if key not in ("name", "source", *omitted)]
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


REQUIRED = ("layers", "d_model", "d_ff", "heads", "vocab")
_MLP = {"gated": "gated", "swiglu": "gated", "geglu": "gated", "plain": "plain", "gelu": "plain", "relu": "plain"}
_ATTENTION = {"gqa": "gqa", "mha": "gqa", "mqa": "gqa", "mla": "mla"}

#: Names of Hugging Face configurations.
_HF: Mapping[str, Any] = shipped("hugging_face.toml")


class ShapeFile(FilePart):
    """A shape as written.  The bounds are those beyond which it is a mistake, not a model."""

    PATH = "model"
    name: str = Field(default="", max_length=200)
    layers: Whole = Field(ge=1, le=100_000)
    d_model: Whole = Field(ge=1, le=10_000_000)
    d_ff: Whole = Field(ge=1, le=10_000_000)
    heads: Whole = Field(ge=1, le=100_000)
    kv_heads: Whole | None = Field(default=None, ge=1, le=100_000)
    head_dim: Whole | None = Field(default=None, ge=1, le=100_000)
    vocab: Whole = Field(ge=1, le=100_000_000)
    experts: Whole = Field(default=0, ge=0, le=1_000_000)
    experts_per_token: Whole | None = Field(default=None, ge=0, le=100_000)
    d_ff_expert: Whole | None = Field(default=None, ge=0, le=10_000_000)
    shared_experts: Whole = Field(default=0, ge=0, le=100_000)
    first_dense_layers: Whole = Field(default=0, ge=0, le=100_000)
    moe_layer_step: Whole = Field(default=1, ge=1, le=100_000)
    q_lora_rank: Whole = Field(default=0, ge=0, le=1_000_000)
    kv_lora_rank: Whole = Field(default=0, ge=0, le=1_000_000)
    qk_nope_head_dim: Whole = Field(default=0, ge=0, le=100_000)
    qk_rope_head_dim: Whole = Field(default=0, ge=0, le=100_000)
    v_head_dim: Whole = Field(default=0, ge=0, le=100_000)
    sliding_window: Whole = Field(default=0, ge=0, le=1_000_000_000)
    sliding_window_every: Whole = Field(default=0, ge=0, le=100_000)
    mlp: Annotated[str, choice(_MLP)] = "gated"
    attention: Annotated[str, choice(_ATTENTION)] = "gqa"
    tied_embeddings: Bool = False
    source: Any = ""

    def value(self, source: str) -> ModelShape:
        given = self.model_dump(exclude_none=True) | {"name": self.name.strip(), "source": source}
        given.setdefault("kv_heads", self.heads)
        given.setdefault("head_dim", max(1, self.d_model // self.heads))
        if self.experts:
            given.setdefault("d_ff_expert", self.d_ff)
            given.setdefault("experts_per_token", 1)
        return ModelShape(**given)


def read_model(value: Any, warnings: list[str] | None = None) -> ModelShape | None:
    """The shape a configuration's `model` means; None where absent.  `warnings` gets its unknown keys.

    Raises Complaints.
    """
    if value is None or value == {}:
        return None
    try:
        return _named(value, "model") if isinstance(value, str) else _read(mapping(value), warnings)
    except ValidationError as error:
        hint = "a shape needs layers, d_model, d_ff, heads and vocab"
        raise Complaints(complaints(error, "model", {f"model.{key}": hint for key in REQUIRED})) from error
    except ConfigError as error:
        raise Complaints([error]) from error


def _read(data: Mapping[str, Any], warnings: list[str] | None) -> ModelShape | None:
    if any(key in data for key in _HF["signs"]):
        return _hugging_face(data)
    data = {key: value for key, value in data.items() if value is not None}
    if not isinstance(name := data.get("name", ""), str | int | float):
        raise ConfigError("model.name", f"must be text, not {shown(name)}")
    name = str(name).strip()
    if not any(key in SHAPE_KEYS and key not in ("name", "source") for key in data):
        if not name:
            raise ConfigError("model.name", "is missing; name a model of the catalogue or give layers, d_model, …")
        ShapeFile.warn_of_unknown(data, warnings)
        return _named(name, "model.name")
    source = "given by the user"
    if name and not all(key in data for key in REQUIRED):
        with suppress(UnknownModelError):
            shape = get_model(name)
            data = {key: getattr(shape, key) for key in SHAPE_KEYS} | data
            source = f"{shape.source}, changed by the user"
    return _shape(data, source, warnings)


def _named(name: str, field: str) -> ModelShape:
    if not name.strip() or len(name) > 200:
        raise ConfigError(field, "must be the name of a model in at most 200 characters")
    try:
        return get_model(name)
    except UnknownModelError as error:
        hint = f"did you mean {error.suggestion!r}?" if error.suggestion else "give layers, d_model, d_ff, heads, vocab"
        text = f"{shown(name)} is not in the catalogue of {len(load_catalogue())} models; {hint}"
        raise ConfigError(field, text) from error


def _shape(data: Mapping[str, Any], source: str, warnings: list[str] | None = None) -> ModelShape:
    if "d_ff" not in data and data.get("experts") and data.get("d_ff_expert"):
        data = {**data, "d_ff": data["d_ff_expert"]}
    shape = ShapeFile.model_validate(data, context=warnings).value(source)
    if errors := [ConfigError(f"model.{key}", text) for key, text in _inconsistent(shape)]:
        raise Complaints(errors)
    known = recognised(shape, data) if not shape.name else ""
    return get_model(known) if known else shape


def _inconsistent(shape: ModelShape) -> Iterator[tuple[str, str]]:
    if shape.heads % shape.kv_heads:
        yield "kv_heads", f"is {shape.kv_heads}, which does not divide the {shape.heads} heads"
    if shape.experts and not 1 <= shape.experts_per_token <= shape.experts:
        yield "experts_per_token", f"is {shape.experts_per_token}; give between 1 and the {shape.experts} experts"
    if shape.experts and not shape.d_ff_expert:
        yield "d_ff_expert", "is 0; give the width of one expert"
    if shape.first_dense_layers > shape.layers:
        yield "first_dense_layers", f"is more than the {shape.layers} layers"
    if shape.attention == "mla":
        for key in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"):
            if not getattr(shape, key):
                yield key, 'is missing; attention "mla" needs it'


def _hugging_face(data: Mapping[str, Any]) -> ModelShape | None:
    """A config.json as Hugging Face transformers writes it; its keys that do not change the cost are ignored."""
    outer = data
    if "text_config" in data:
        if not isinstance(data["text_config"], Mapping):
            raise ConfigError(
                "model.text_config", f"must be a mapping of keys to values, not {shown(data['text_config'])}"
            )
        data = data["text_config"]
        if not data:
            return None
    values: dict[str, Any] = {}
    for key, names in _HF["names"].items():
        value = next((data[name] for name in names if data.get(name) is not None), None)
        if isinstance(value, list):
            value = value[0] if value else None
        if value is not None:
            values[key] = value
    kind = str(data.get("model_type", outer.get("model_type", ""))).lower()
    whole = {key: item for key, item in values.items() if isinstance(item, int) and not isinstance(item, bool)}
    if whole.get("d_model") and "d_ff" not in values:
        values["d_ff"] = 4 * whole["d_model"]
    if whole.get("experts"):
        # Llama 4 calls the expert's width intermediate_size; Mixtral has no other.
        values.setdefault("d_ff_expert", data.get("intermediate_size", values.get("d_ff")))
        if kind.startswith("llama4"):
            values.setdefault("shared_experts", 1)
    else:
        for key in ("experts_per_token", "d_ff_expert", "shared_experts", "first_dense_layers", "moe_layer_step"):
            values.pop(key, None)
    if whole.get("kv_lora_rank"):
        values["attention"] = "mla"
        values.pop("head_dim", None)
    values["mlp"] = "plain" if kind in _HF["plain"] else "gated"
    tied = data.get("tie_word_embeddings", outer.get("tie_word_embeddings"))
    values["tied_embeddings"] = kind in _HF["tied"] if tied is None else tied
    window = data.get("sliding_window")
    if window and data.get("use_sliding_window", True):
        values["sliding_window"] = window
        layer_types = data.get("layer_types")
        if isinstance(layer_types, list) and layer_types.count("full_attention"):
            values["sliding_window_every"] = max(1, round(len(layer_types) / layer_types.count("full_attention")))
        elif data.get("sliding_window_pattern") is not None:
            values["sliding_window_every"] = data["sliding_window_pattern"]
    values["name"] = outer.get("name") or outer.get("_name_or_path")
    return _shape(values, "a config.json given by the user")


def model_to_json(shape: ModelShape) -> dict[str, Any]:
    """What `read_model` reads back as the same shape: the name where the catalogue has it, else the shape."""
    if shape.name:
        try:
            if get_model(shape.name) == shape:
                return {"name": shape.name}
        except UnknownModelError:
            pass
    result: dict[str, Any] = {"name": shape.name} if shape.name else {}
    for item in fields(ModelShape):
        value = getattr(shape, item.name)
        if item.name not in ("name", "source") and value != item.default:
            result[item.name] = value
    return result
