"""The form of a mesh of one's own: between its fields and mesh and changes as the proposer takes them, both ways."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict

from experiments.config_form import PRECISIONS, REMATS, WEIGHT_SHARDINGS
from experiments.form_fields import Choice, Rows, Sheet, Whole, Words, whole
from perfmodel.config import ROLE_SYNONYMS, ROLES
from proposals.candidate import Candidate

#: Longest mesh or changes in an address.
MAX_GIVEN = 4000
_CURRENT = {"placeholder": "current"}


class OwnForm(Sheet):
    """Axes and training keys; an empty key is unchanged."""

    ici = Rows("ici_name", "ici_size")
    dcn = Rows("dcn_name", "dcn_size")
    offered = Rows("offered")
    global_batch = Whole(label="Global batch", attrs=_CURRENT)
    grad_accum = Whole(label="Micro-batches", attrs=_CURRENT)
    micro_batch = Whole(label="Micro-batch size", attrs=_CURRENT)
    virtual_stages = Whole(label="Virtual stages", attrs=_CURRENT)
    remat = Choice(REMATS, label="Remat")
    weight_sharding = Choice(WEIGHT_SHARDINGS, label="Weight sharding")
    precision = Choice(PRECISIONS, label="Precision")
    xla_flags = Words(label="XLA flags (full list)", attrs={**_CURRENT, "class": "input mono", "spellcheck": "false"})

    def settings(self) -> list[Any]:
        """The training keys except the flags."""
        return [self[name] for name in self.fields if name not in ("ici", "dcn", "offered", "xla_flags")]


def filled(training: Mapping[str, Any], changes: Mapping[str, Any]) -> OwnForm:
    """The form with these changes; each field shows the current value."""
    form = OwnForm(initial=dict(changes), auto_id="s-%s")
    for name, field in form.fields.items():
        field.help_text = "" if training.get(name) is None else f"now {training[name]}"
    return form


@dataclass(frozen=True)
class AxisSize:
    """One axis of the form.  place: `ici` or `dcn`; now: the current size; value: as typed."""

    place: str
    name: str
    now: int
    value: str


def from_form(form: QueryDict) -> Candidate:
    """What was filled in.  An axis left empty has size 1, and is not in the mesh where only the form offered it."""
    changes = OwnForm(form).filled_values()
    offered = {name for (name,) in changes.pop("offered", ())}
    mesh = {
        place: {name: whole(size) if size.strip() else 1 for name, size in changes.pop(place, ())}
        for place in ("ici", "dcn")
    }
    kept = {
        place: {name: size for name, size in axes.items() if size != 1 or name not in offered}
        for place, axes in mesh.items()
    }
    return Candidate(kept, changes)


def from_query(form: QueryDict) -> Candidate | None:
    """`?mesh=…&changes=…`, both JSON: where a link opens the form; None where they are none."""
    texts = form.get("mesh", ""), form.get("changes", "") or "{}"
    if not texts[0] or any(len(text) > MAX_GIVEN for text in texts):
        return None
    try:
        mesh, changes = (json.loads(text) for text in texts)
    except (ValueError, RecursionError):
        return None
    if not isinstance(mesh, dict) or not isinstance(changes, dict):
        return None
    places = {place: mesh.get(place) or {} for place in ("ici", "dcn")}
    return Candidate(places, changes) if all(isinstance(axes, dict) for axes in places.values()) else None


def axes(config: Mapping[str, Any], given: Mapping[str, Mapping[str, Any]]) -> list[AxisSize]:
    """The current axes with the sizes given, then those of the given mesh that are new."""
    mesh = config.get("mesh") or {}
    rows = []
    for place in ("ici", "dcn"):
        old, new = mesh.get(place) or {}, given.get(place) or {}
        if place == "dcn" and (config.get("hardware") or {}).get("slices", 1) == 1:
            continue
        for name in dict.fromkeys([*old, *new]):
            rows.append(AxisSize(place, str(name), old.get(name, 1), str(new.get(name, 1))))
    return rows


def offered(config: Mapping[str, Any], shown: list[AxisSize]) -> list[str]:
    """Axes by the name of their role that the mesh does not have, to be added."""
    roles = (config.get("mesh") or {}).get("axis_roles") or {}
    taken = {ROLE_SYNONYMS.get(role := roles.get(item.name, item.name), role) for item in shown if item.place == "ici"}
    if "data" in taken:
        taken.add("fsdp")
    return [role for role in ROLES if role not in ROLE_SYNONYMS and role not in taken]
