"""The configuration as far as a profile contains it, with the evidence of each field and what is unavailable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from experiments.consistency.facts import Fact, Facts
from experiments.consistency.topology import near
from formatting import listed
from perfmodel.catalogue import recognised_by
from perfmodel.chips import chips_of_device, load_chips

FROM_PROFILE, SUGGESTED = "from profile", "suggested"

#: Facts as a person reads them, in the order of the form.
LABELS = {
    "kind": "Device",
    "chip": "Chip",
    "recorded": "Recorded",
    "devices": "Devices of the program",
    "mesh": "Mesh",
    "framework": "Framework",
    "seq_len_per_device": "Sequence per device",
    "kv_len": "Keys and values",
    "batch_per_device": "Batch per device",
    "tokens_per_device": "Tokens per device",
    "layers": "Layers",
    "d_model": "d_model",
    "d_ff_per_device": "d_ff per device",
    "heads_per_device": "Heads per device",
    "kv_heads_per_device": "KV heads per device",
    "head_dim": "head_dim",
    "vocab_per_device": "Vocabulary per device",
    "precision": "Precision",
    "remat": "Remat",
}


@dataclass(frozen=True)
class Mark:
    """Where a prefilled field comes from: FROM_PROFILE or SUGGESTED, and on what evidence."""

    by: str
    why: str


@dataclass(frozen=True)
class Prefilled:
    """data: the contract's JSON as far as the profile has it.  marks: by dotted field."""

    data: dict[str, Any]
    marks: Mapping[str, Mark] = field(default_factory=dict)


def prefilled(facts: Facts, name: str = "") -> Prefilled:
    """Chip, topology, mesh, framework, lengths, model, precision and remat, each only where the profile has it."""
    data: dict[str, Any] = {"name": name} if name else {}
    marks: dict[str, Mark] = {}
    training: dict[str, Any] = {}

    def mark(where: str, fact: Fact, by: str = FROM_PROFILE) -> None:
        marks[where] = Mark(by, fact.because)

    chip = load_chips().get(facts.value("chip") or "")
    devices = facts.value("devices") or (facts.value("recorded") or {}).get("devices") or 0
    counted = facts.known.get("devices") or facts.known.get("recorded")
    hardware: dict[str, Any] = {}
    chips = devices
    if chip is not None:
        hardware["chip"] = chip.name
        mark("hardware.chip", facts.known["chip"])
        chips = max(1, devices // chip.devices_per_chip) if devices else 0
        if chips and counted is not None:
            hardware |= {"topology": near(chip, chips), "slices": 1}
            mark("hardware.topology", counted, SUGGESTED)
    mesh = _mesh(facts, chips)
    if hardware:
        data["hardware"] = hardware
    if mesh:
        data["mesh"] = {"ici": mesh}
        groups_fact = facts.known.get("mesh")
        why = groups_fact or Fact(None, "", ("All devices on one axis, since no collective has replica groups.",))
        mark("mesh.ici", why, SUGGESTED)
    if (fact := facts.known.get("framework")) is not None:
        data["software"] = {"framework": fact.value}
        mark("software.framework", fact)
    roles_known = "mesh" in facts and "mesh_roles" not in facts.unavailable
    tensor = mesh.get("model", 1) * mesh.get("tensor", 1)
    model = model_of(facts, tensor) if roles_known or devices == 1 else None
    if model is not None:
        data["model"] = model[0]
        marks["model"] = Mark(FROM_PROFILE, model[1])
    along = mesh.get("seq", 1) * mesh.get("context", 1)
    local, keys = facts.known.get("seq_len_per_device"), facts.known.get("kv_len")
    if local is not None and keys is not None and keys.value > local.value:
        training["seq_len"] = keys.value
        mark("training.seq_len", keys)
    elif local is not None and (roles_known or devices == 1):
        training["seq_len"] = local.value * along
        marks["training.seq_len"] = Mark(SUGGESTED, f"{local.because} Multiplied by the sequence axes of the mesh.")
    batch = facts.known.get("batch_per_device")
    if batch is not None and (roles_known or devices == 1):
        training["global_batch"] = batch.value * prod(mesh.get(axis, 1) for axis in ("replica", "data", "fsdp"))
        marks["training.global_batch"] = Mark(SUGGESTED, f"{batch.because} Multiplied by the batch axes of the mesh.")
    for key in ("precision", "remat"):
        if (fact := facts.known.get(key)) is not None:
            training[key] = fact.value
            mark(f"training.{key}", fact)
    if training:
        data["training"] = training
    return Prefilled(data, marks)


def as_table(facts: Facts) -> list[dict[str, Any]]:
    """What the profile has and lacks, as rows: label, text, because, sure, why it is unavailable."""
    rows = []
    for name, label in LABELS.items():
        fact = facts.known.get(name)
        if fact is not None:
            rows.append({"label": label, "text": fact.text, "because": fact.because, "sure": fact.sure, "why": ""})
        elif name in facts.unavailable:
            rows.append({"label": label, "text": "", "because": "", "sure": "", "why": _why(facts, name)})
    return rows


def _why(facts: Facts, name: str) -> str:
    possible = chips_of_device(str(facts.value("kind") or "")) if name == "chip" else ()
    if len(possible) > 1:
        return f"{facts.value('kind')} is {listed([load_chips()[key].title for key in possible], 'or')}"
    return facts.unavailable[name]


def _mesh(facts: Facts, chips: int) -> dict[str, int]:
    """The mesh that the groups suggest, in chips; else all chips on one axis."""
    fact = facts.known.get("mesh")
    if fact is not None and chips:
        mesh: dict[str, int] = dict(fact.value)
        last = list(mesh)[-1]
        total = prod(mesh.values())
        if total == chips:
            return mesh
        if total % chips == 0 and mesh[last] % (total // chips) == 0:
            mesh[last] //= total // chips
            return mesh
    return {"data": chips} if chips else {}


def model_of(facts: Facts, tensor: int) -> tuple[dict[str, Any], str] | None:
    """The model by its shape on tensor axes of so many chips, and on what that rests: a catalogued one, else the shape
    where all of it is known."""
    shape: dict[str, int] = {}
    for key in ("layers", "d_model", "head_dim"):
        if (fact := facts.known.get(key)) is not None:
            shape[key] = fact.value
    for key, name in (("d_ff", "d_ff_per_device"), ("heads", "heads_per_device"), ("vocab", "vocab_per_device")):
        if (fact := facts.known.get(name)) is not None:
            shape[key] = fact.value * tensor
    kv = facts.known.get("kv_heads_per_device")
    if kv is not None and (tensor == 1 or kv.value > 1):
        shape["kv_heads"] = kv.value * tensor
    if not {"layers", "d_model", "d_ff"} <= set(shape):
        return None
    text = ", ".join(f"{key} {size:,}" for key, size in shape.items())
    if (known := recognised_by(shape)) is not None:
        return {"name": known}, f"Recognised by its shape: {text}."
    if {"layers", "d_model", "d_ff", "heads", "vocab"} <= set(shape):
        return dict(shape), f"Shape inferred from the ops: {text}."
    return None
