"""The model part of a configuration: a catalogue name, a shape, or a Hugging Face style config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from perfmodel.catalogue import UnknownModelError, get_model, load_catalogue, recognised
from perfmodel.checks import Checker, shown
from perfmodel.shapes import ModelShape

#: Sizes beyond which a shape is a mistake, not a model.
LIMITS = {
    "layers": 100_000,
    "d_model": 10_000_000,
    "d_ff": 10_000_000,
    "heads": 100_000,
    "kv_heads": 100_000,
    "head_dim": 100_000,
    "vocab": 100_000_000,
    "experts": 1_000_000,
    "experts_per_token": 100_000,
    "d_ff_expert": 10_000_000,
    "shared_experts": 100_000,
    "first_dense_layers": 100_000,
    "moe_layer_step": 100_000,
    "q_lora_rank": 1_000_000,
    "kv_lora_rank": 1_000_000,
    "qk_nope_head_dim": 100_000,
    "qk_rope_head_dim": 100_000,
    "v_head_dim": 100_000,
    "sliding_window": 1_000_000_000,
    "sliding_window_every": 100_000,
}
REQUIRED = ("layers", "d_model", "d_ff", "heads", "vocab")
_AT_LEAST_ONE = {*REQUIRED, "kv_heads", "head_dim", "moe_layer_step"}
SHAPE_KEYS = tuple(field.name for field in fields(ModelShape))
_MLP = {"gated": "gated", "swiglu": "gated", "geglu": "gated", "plain": "plain", "gelu": "plain", "relu": "plain"}
_ATTENTION = {"gqa": "gqa", "mha": "gqa", "mqa": "gqa", "mla": "mla"}

#: Names of Hugging Face configurations, in the order in which they are preferred.
_HF_NAMES: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "d_model": ("hidden_size", "n_embd", "d_model"),
    "d_ff": ("intermediate_size_mlp", "intermediate_size", "n_inner", "ffn_dim"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "vocab": ("vocab_size",),
    "experts": ("n_routed_experts", "num_local_experts", "num_experts"),
    "experts_per_token": ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk"),
    "d_ff_expert": ("moe_intermediate_size",),
    "shared_experts": ("n_shared_experts", "num_shared_experts"),
    "first_dense_layers": ("first_k_dense_replace",),
    "moe_layer_step": ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq"),
    "q_lora_rank": ("q_lora_rank",),
    "kv_lora_rank": ("kv_lora_rank",),
    "qk_nope_head_dim": ("qk_nope_head_dim",),
    "qk_rope_head_dim": ("qk_rope_head_dim",),
    "v_head_dim": ("v_head_dim",),
}
_HF_SIGNS = ("hidden_size", "num_hidden_layers", "n_embd", "n_layer", "model_type", "architectures", "text_config")
_PLAIN_TYPES = ("gpt2", "gpt_neox", "gptj", "opt", "bloom", "falcon", "nemotron", "phi", "starcoder2", "gpt_bigcode")
_TIED_BY_DEFAULT = ("gpt2", "gemma", "gemma2", "gemma3", "gemma3_text", "gemma4", "gemma4_text", "opt", "bloom")


def read_model(check: Checker, value: Any, field: str = "model") -> ModelShape | None:
    """The shape a configuration's `model` means; None where absent or wrong (then `check` has the complaint)."""
    if value is None or value == {}:
        return None
    if isinstance(value, str):
        return _named(check, value, field)
    data = check.mapping(field, value)
    if not data:
        return None
    if any(key in data for key in _HF_SIGNS):
        return _hugging_face(check, data, field)
    given = [key for key in data if key in SHAPE_KEYS and key not in ("name", "source")]
    check.unknown_keys(field, data, SHAPE_KEYS)
    name = check.text(f"{field}.name", data.get("name"), limit=200).strip()
    if not given:
        if not name:
            check.fail(f"{field}.name", "is missing; name a model of the catalogue or give layers, d_model, …")
            return None
        return _named(check, name, f"{field}.name")
    base: dict[str, Any] = {}
    if name and not all(key in data for key in REQUIRED):
        try:
            shape = get_model(name)
        except UnknownModelError:
            shape = None
        if shape is not None:
            base = {key: getattr(shape, key) for key in SHAPE_KEYS}
            base["source"] = f"{shape.source}, changed by the user"
    return _shape(check, {**base, **data}, field, name, source=base.get("source", "given by the user"))


def _named(check: Checker, name: str, field: str) -> ModelShape | None:
    if not name.strip() or len(name) > 200:
        check.fail(field, "must be the name of a model in at most 200 characters")
        return None
    try:
        return get_model(name)
    except UnknownModelError as error:
        hint = f"did you mean {error.suggestion!r}?" if error.suggestion else "give layers, d_model, d_ff, heads, vocab"
        check.fail(field, f"{shown(name)} is not in the catalogue of {len(load_catalogue())} models; {hint}")
        return None


def _shape(check: Checker, data: Mapping[str, Any], field: str, name: str, source: str) -> ModelShape | None:
    before = len(check.errors)
    values: dict[str, int] = {}
    for key, high in LIMITS.items():
        low = 1 if key in _AT_LEAST_ONE else 0
        if data.get(key) is not None:
            values[key] = check.required_integer(f"{field}.{key}", data[key], low, low=low, high=high)
    if "d_ff" not in values and values.get("experts") and values.get("d_ff_expert"):
        values["d_ff"] = values["d_ff_expert"]
    for key in REQUIRED:
        if key not in values:
            check.fail(f"{field}.{key}", "is missing; a shape needs layers, d_model, d_ff, heads and vocab")
    mlp = check.choice(f"{field}.mlp", data.get("mlp"), "gated", _MLP)
    attention = check.choice(f"{field}.attention", data.get("attention"), "gqa", _ATTENTION)
    tied = check.boolean(f"{field}.tied_embeddings", data.get("tied_embeddings"), False)
    if len(check.errors) > before:
        return None
    values.setdefault("kv_heads", values["heads"])
    values.setdefault("head_dim", max(1, values["d_model"] // values["heads"]))
    if values.get("experts"):
        values.setdefault("d_ff_expert", values["d_ff"])
        values.setdefault("experts_per_token", 1)
    _consistent(check, values, field, attention)
    if len(check.errors) > before:
        return None
    shape = ModelShape(**values, name=name, mlp=mlp, attention=attention, tied_embeddings=tied, source=source)
    known = recognised(shape, data) if not name else ""
    return get_model(known) if known else shape


def _consistent(check: Checker, values: Mapping[str, int], field: str, attention: str) -> None:
    get = values.get
    if values["heads"] % values["kv_heads"]:
        check.fail(f"{field}.kv_heads", f"is {get('kv_heads')}, which does not divide the {get('heads')} heads")
    experts, per_token = get("experts", 0), get("experts_per_token", 0)
    if experts and not 1 <= per_token <= experts:
        check.fail(f"{field}.experts_per_token", f"is {per_token}; give between 1 and the {experts} experts")
    if experts and not get("d_ff_expert"):
        check.fail(f"{field}.d_ff_expert", "is 0; give the width of one expert")
    if get("first_dense_layers", 0) > values["layers"]:
        check.fail(f"{field}.first_dense_layers", f"is more than the {values['layers']} layers")
    if attention == "mla":
        for key in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"):
            if not get(key):
                check.fail(f"{field}.{key}", 'is missing; attention "mla" needs it')


def _hugging_face(check: Checker, data: Mapping[str, Any], field: str) -> ModelShape | None:
    """A config.json as Hugging Face transformers writes it; its keys that do not change the cost are ignored."""
    outer = data
    if "text_config" in data:
        data = check.mapping(f"{field}.text_config", data["text_config"])
        if not data:
            return None
    values: dict[str, Any] = {}
    for key, names in _HF_NAMES.items():
        found = next((data[name] for name in names if data.get(name) is not None), None)
        if isinstance(found, list):
            found = found[0] if found else None
        if found is not None:
            values[key] = found
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
    values["mlp"] = "plain" if kind in _PLAIN_TYPES else "gated"
    tied = data.get("tie_word_embeddings", outer.get("tie_word_embeddings"))
    values["tied_embeddings"] = kind in _TIED_BY_DEFAULT if tied is None else tied
    window = data.get("sliding_window")
    if window and data.get("use_sliding_window", True):
        values["sliding_window"] = window
        layer_types = data.get("layer_types")
        if isinstance(layer_types, list) and layer_types.count("full_attention"):
            values["sliding_window_every"] = max(1, round(len(layer_types) / layer_types.count("full_attention")))
        elif data.get("sliding_window_pattern") is not None:
            values["sliding_window_every"] = data["sliding_window_pattern"]
    name = check.text(f"{field}.name", outer.get("name") or outer.get("_name_or_path"), limit=200)
    return _shape(check, values, field, name, source="a config.json given by the user")


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
