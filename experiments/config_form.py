"""The configuration form: between its fields and the contract's JSON, both ways.

The form writes what a file would hold; it checks nothing itself.  A field left empty is an absent key, and text that is
no number is passed on as typed, so that the check can name it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.forms import Field
from django.http import QueryDict

import formatting
from experiments.consistency import Contradiction
from experiments.form_fields import Quantity, Rows, Sheet, Text, Tick, Whole, Words, whole
from perfmodel.catalogue import read_model
from perfmodel.chips import load_chips
from perfmodel.config import ROLES
from perfmodel.execution import load_profiles, profile_named

#: Axes offered to a form that starts empty, major to minor.
DEFAULT_AXES = ("replica", "data", "seq", "model")

PRECISIONS = ("bf16", "fp16", "fp8", "mxfp8", "nvfp4", "int8", "fp32")
WEIGHT_SHARDINGS = ("fsdp", "zero1", "none")
REMATS = ("full", "minimal", "none", "offload")
CUSTOM = "custom"

TRAINING_NUMBERS = ("global_batch", "seq_len", "grad_accum", "micro_batch", "virtual_stages")
TRAINING_WORDS = ("precision", "weight_sharding", "remat", "optimizer")

SHAPE_NUMBERS = ("layers", "d_model", "d_ff", "heads", "kv_heads", "head_dim", "vocab")
SHAPE_EXPERTS = (
    "experts", "experts_per_token", "d_ff_expert", "shared_experts", "first_dense_layers", "moe_layer_step",
)  # fmt: skip
SHAPE_LATENT = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
SHAPE_WINDOW = ("sliding_window", "sliding_window_every")


@dataclass(frozen=True)
class AxisField:
    """One axis of the form: name and size as typed, and the role where the name itself is none."""

    name: str
    size: str
    role: str = ""

    @property
    def needs_role(self) -> bool:
        return bool(self.name) and self.name not in ROLES


class Topology(Text):
    """Sizes in any of the spellings that people use: `4 × 4`, `4x4`, `[4, 4]`."""

    def to_python(self, value: str | None) -> Any:
        return [whole(part) for part in re.split(r"[\s,;x×*\[\]()]+", super().to_python(value)) if part]


#: What each input fills in, by its part and key in the configuration, and how its text is read.
INPUTS: Mapping[str, tuple[str, str, Field]] = {
    "name": ("", "name", Text()),
    "chip": ("hardware", "chip", Text()),
    "topology": ("hardware", "topology", Topology()),
    "slices": ("hardware", "slices", Whole()),
    "model": ("model", "name", Text()),
    **{f"shape_{key}": ("model", key, Whole()) for key in SHAPE_NUMBERS + SHAPE_EXPERTS + SHAPE_LATENT + SHAPE_WINDOW},
    "shape_mlp": ("model", "mlp", Text()),
    "shape_attention": ("model", "attention", Text()),
    "shape_tied_embeddings": ("model", "tied_embeddings", Tick("input and output tied")),
    **{key: ("training", key, Whole()) for key in TRAINING_NUMBERS},
    **{key: ("training", key, Text()) for key in TRAINING_WORDS},
    "xla_flags": ("training", "xla_flags", Words()),
    "framework": ("software", "framework", Text()),
    "step_time_s": ("measured", "step_time_s", Quantity({"": 1.0, "s": 1.0, "ms": 1e-3})),
    "peak_memory_gb": (
        "measured", "peak_memory_bytes", Quantity({"": 1e9, "gb": 1e9, "gib": 2.0**30, "mb": 1e6, "mib": 2.0**20})
    ),
}  # fmt: skip
_MESH = ("ici", "dcn", "axis_roles")
_SHOWN = {(part, key) for part, key, _ in INPUTS.values()} | {("mesh", key) for key in _MESH}
_PARTS = ("hardware", "mesh", "model", "training", "software", "measured")

#: The form's fields by name; axes come in rows.
ConfigForm: type[Sheet] = type(
    "ConfigForm", (Sheet,), {name: field for name, (_, _, field) in INPUTS.items()} | {
        place: Rows(f"{place}_name", f"{place}_size", f"{place}_role") for place in ("ici", "dcn")
    },
)  # fmt: skip

#: Where the form has room for a sentence, as `part-key`; the rest stands above the form.
SLOTS = (
    {"name", "model"}
    | {f"mesh-{key}" for key in _MESH}
    | {
        f"{part}-{key}"
        for name, (part, key, _) in INPUTS.items()
        if part and name not in ("model", "shape_mlp", "shape_attention", "shape_tied_embeddings")
    }
)


def data_from(form: QueryDict, base: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The contract's JSON as filled in; `base` gives the keys that the form does not show."""
    given, base = ConfigForm(form).filled_values(), base or {}
    is_custom = given.get("model") == CUSTOM
    parts: dict[str, dict[str, Any]] = {
        part: {key: value for key, value in _part(base, part).items() if (part, key) not in _SHOWN and part != "model"}
        for part in _PARTS
    }
    for name, (part, key, _) in INPUTS.items():
        if part and name in given and (part != "model" or is_custom == name.startswith("shape_")):
            parts[part][key] = given[name]
    if isinstance(peak := given.get("peak_memory_gb"), float):
        parts["measured"]["peak_memory_bytes"] = round(peak)
    axes = {place: _axes(given.get(place, ())) for place in ("ici", "dcn")}
    parts["mesh"]["ici"] = {axis: size for axis, (size, _) in axes["ici"].items()}
    if axes["dcn"] and given.get("slices", 1) != 1:
        parts["mesh"]["dcn"] = {axis: size for axis, (size, _) in axes["dcn"].items()}
    roles = {axis: role for rows in axes.values() for axis, (_, role) in rows.items() if role and axis not in ROLES}
    if roles:
        parts["mesh"]["axis_roles"] = roles
    asked = {"hardware", "mesh", *(["model"] if is_custom else [])}
    return {
        **({"name": given["name"]} if "name" in given else {}),
        **{part: values for part, values in parts.items() if values or part in asked},
        **{key: value for key, value in base.items() if key not in ("name", *_PARTS)},
    }


def _axes(rows: Iterable[tuple[str, str, str]]) -> dict[str, tuple[Any, str]]:
    """Size and role by axis, in the order of the rows; a row without a size is not there."""
    return {name.strip(): (whole(size), role) for name, size, role in rows if name.strip() and size.strip()}


def fields_from(data: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the form shows for a configuration, complete or not: text by field name, axes as rows."""
    data = data or {}
    if isinstance(data.get("model"), str):
        data = {**data, "model": {"name": data["model"]}}
    mesh, model = _part(data, "mesh"), _part(data, "model")
    roles, dims = {**_part(data, "axis_roles"), **_part(mesh, "axis_roles")}, _part(data, "hardware").get("topology")
    is_shape, peak = any(key in model for key in SHAPE_NUMBERS), _part(data, "measured").get("peak_memory_bytes")
    fields: dict[str, Any] = {
        name: _text((_part(data, part) if part else data).get(key))
        for name, (part, key, _) in INPUTS.items()
        if not name.startswith("shape_")
    }
    if isinstance(dims, list | tuple):
        fields["topology"] = " × ".join(map(_text, dims))
    if isinstance(peak, int | float) and not isinstance(peak, bool):
        fields["peak_memory_gb"] = f"{peak / 1e9:.12g}"
    return fields | {
        "slices": fields["slices"] or "1",
        "ici": _axis_fields(_part(mesh, "ici"), roles) or [AxisField(axis, "") for axis in DEFAULT_AXES],
        "dcn": _axis_fields(_part(mesh, "dcn"), roles) or [AxisField("data", "")],
        "model": _known_as(model) or CUSTOM if is_shape else fields["model"],
        "shape": {key: value for key, value in model.items() if key != "name"} if is_shape else {},
        "xla_flags": " ".join(map(_text, _part(data, "training").get("xla_flags") or ())),
    }


def _known_as(model: Mapping[str, Any]) -> str:
    """Name of the catalogued model that a shape without a name spells out; empty where it is none."""
    try:
        shape = read_model(model) if not model.get("name") else None
    except ValueError:
        return ""
    return shape.name if shape is not None else ""


def frameworks() -> dict[str, tuple[str, ...]]:
    """What the form offers as framework: names by the title of the execution profile that they choose, each in its
    first spelling."""
    return {profile.title: _spelt_once(profile.frameworks) for profile in load_profiles().values()}


def _spelt_once(names: Iterable[str]) -> tuple[str, ...]:
    first: dict[str, str] = {}
    for name in names:
        first.setdefault("".join(letter for letter in name if letter.isalnum()), name)
    return tuple(first.values())


def is_offered(framework: str) -> bool:
    return any(framework in names for names in frameworks().values())


def priced_as(data: Mapping[str, Any]) -> str:
    """How the framework is read: `not given: priced as …`, or as which profile a name counts; empty without a chip."""
    chip = load_chips().get(str(_part(data, "hardware").get("chip") or ""))
    if chip is None:
        return ""
    framework = _part(data, "software").get("framework")
    title = profile_named(framework if isinstance(framework, str) else None, chip.kind).title
    return f"priced as {title}" if framework else f"not given: priced as {title}"


def _part(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _axis_fields(axes: Mapping[str, Any], roles: Mapping[str, Any]) -> list[AxisField]:
    return [AxisField(str(axis), _text(size), _text(roles.get(axis))) for axis, size in axes.items()]


def pretty(data: Any) -> str:
    """JSON as one would write it by hand: short lists and objects on one line."""
    text = json.dumps(data, indent=2, ensure_ascii=False)
    for pattern in (r"\[\s+([^\[\]{}]*?)\s+\]", r"\{\s+([^\[\]{}]*?)\s+\}"):
        text = re.sub(pattern, _one_line, text)
    return text


def _one_line(match: re.Match[str]) -> str:
    inner = re.sub(r"\s*\n\s*", " ", match[1])
    return f"{match[0][0]}{inner}{match[0][-1]}" if len(inner) <= 60 else match[0]


def product_check(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """`1×4×16×4 = 256 of 256 chips` as parts: {"text", "ok", "hint"}; None while there is nothing to multiply."""
    sizes = list(_part(_part(data, "mesh"), "ici").values())
    topology = _part(data, "hardware").get("topology")
    if not sizes or not all(isinstance(size, int) and 0 < size < 10**7 for size in sizes):
        return None
    product = 1
    for size in sizes:
        product *= size
    text = f"{formatting.topology(sizes)} = {product:,}"
    if not isinstance(topology, list) or not topology or not all(isinstance(d, int) and d > 0 for d in topology):
        return {"text": f"{text} chips per slice", "ok": None, "hint": "Enter the topology to check against."}
    chips = 1
    for dim in topology:
        chips *= dim
    shape = formatting.topology(topology)
    if product == chips:
        laid = f"Laid out row-major on {shape}, minor axis last."
        return {"text": f"{text} of {chips:,} chips", "ok": True, "hint": laid}
    if product < chips and chips % product == 0:
        hint = f"Multiply one axis by {chips // product:,}."
    elif product > chips and product % chips == 0:
        hint = f"Divide one axis by {product // chips:,}."
    else:
        hint = f"Choose sizes whose product is {chips:,}, the number of chips in {shape}."
    return {"text": f"{text}, needs {chips:,}", "ok": False, "hint": hint}


def slot_of(field: str) -> str:
    """Where the form shows something about a dotted field: at the field, else at the nearest part that has a place."""
    parts = field.split(".")
    depth = next((n for n in range(len(parts), 0, -1) if "-".join(parts[:n]) in SLOTS), 0)
    return "-".join(parts[:depth]) or "form"


def errors_by_slot(errors: Mapping[str, str]) -> dict[str, str]:
    """Errors by the form's slot; a sentence about a part of a field says which."""
    placed: dict[str, str] = {}
    for field, message in errors.items():
        slot = slot_of(field)
        if rest := field if slot == "form" else field[len(slot) + 1 :]:
            message = f"{rest} {message}" if message[:1].islower() else f"{rest}: {message}"
        placed[slot] = f"{placed[slot]} {message}" if slot in placed else message
    return placed


def by_slot(items: Iterable[Contradiction], named_model: bool = False) -> dict[str, list[Contradiction]]:
    """Contradictions by the form's slot.  named_model: sizes stand at the model, whose shape is not shown then."""
    placed: dict[str, list[Contradiction]] = {}
    for item in items:
        slot = "model" if named_model and item.field.startswith("model.") else slot_of(item.field)
        placed.setdefault(slot, []).append(item)
    return placed
