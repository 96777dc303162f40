"""Step-time and memory bars as segments in percent, so that pages draw them without inline styles.

The order of terms is the same on every page: compute, HBM, collectives by axis, DCN, host, input, idle, other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from perfmodel.config import ROLE_SYNONYMS

#: Shade of the ICI family by the role of its axis; order and labels carry what the shades cannot.
_ICI_SHADES = {"model": "ici", "seq": "ici-2", "expert": "ici-2", "pipeline": "ici-2"}
_TERMS = {
    "compute": ("Compute", "compute", 0),
    "hbm": ("HBM", "hbm", 1),
    "dcn": ("DCN", "dcn", 30),
    "host_transfer": ("Host transfers", "host", 39),
    "host": ("Host", "host", 40),
    "input": ("Input", "host", 41),
    "output": ("Output", "host", 42),
    "kernel_launches": ("Kernel launches", "idle", 48),
    "bubble": ("Pipeline bubble", "idle", 49),
    "idle": ("Idle", "idle", 50),
    "other": ("Other", "mute", 60),
}
#: Parts of a recorded step (`Step.breakdown_s`): words and colour class.
STEP_PARTS = {
    "compute": ("Device compute", "compute"),
    "collective": ("Collectives", "ici"),
    "device_to_device": ("Device to device", "ici-2"),
    "input": ("Input", "host"),
    "output": ("Output", "host"),
    "host_transfer": ("Host transfers", "host"),
    "host": ("Host", "host"),
    "launch": ("Launch", "host"),
    "compile": ("Compile", "host"),
    "other": ("Other", "mute"),
    "idle": ("Idle", "idle"),
}
_ICI_ORDER = {"ici": 10, "ici-2": 15, "ici-3": 20}

_MEMORY_PARTS = (
    ("params", "Parameters", "mem-1"),
    ("gradients", "Gradients", "mem-2"),
    ("optimizer", "Optimizer", "mem-3"),
    ("activations", "Activations", "mem-4"),
    ("temporary", "Temporary", "mem-5"),
    ("gathers", "Gathered weights", "mem-5"),
    ("other", "Other", "mem-5"),
)


@dataclass(frozen=True)
class Term:
    """One term of a step or a part of memory: its key, words, colour class and value (s or bytes)."""

    key: str
    label: str
    css: str
    value: float
    order: int = 0


@dataclass(frozen=True)
class Segment:
    """A drawn term: where it starts and how wide it is, in percent of the bar."""

    term: Term
    x: str
    width: str


def canonical_role(axis: str, roles: Mapping[str, str] | None = None) -> str:
    role = (roles or {}).get(axis, axis)
    return ROLE_SYNONYMS.get(role, role)


def axis_class(axis: str, roles: Mapping[str, str] | None = None) -> str:
    """Colour class of a mesh axis (`dcn` and combined axes `data, seq` included)."""
    if axis == "dcn" or axis.startswith("dcn."):
        return "dcn"
    return _ICI_SHADES.get(canonical_role(axes_of(axis)[0], roles), "ici-3")


def axes_of(text: str) -> list[str]:
    """`data, seq` and `data+seq` as names."""
    return [name.strip() for name in text.replace("+", ",").split(",")]


def term(key: str, value: float, roles: Mapping[str, str] | None = None) -> Term:
    """One key of `Diagnosis.breakdown_s` in words and colour."""
    if key in _TERMS:
        label, css, order = _TERMS[key]
        return Term(key, label, css, value, order)
    if key.startswith("ici"):
        axis = key.partition(":")[2]
        css = axis_class(axis, roles) if axis else "ici"
        label = f"Collectives on {' + '.join(axes_of(axis))}" if axis else "Collectives"
        return Term(key, label, css, value, _ICI_ORDER.get(css, 20))
    if key.startswith("dcn"):
        return Term(key, f"DCN {key.partition(':')[2]}".strip(), "dcn", value, 30)
    return Term(key, key.replace("_", " ").capitalize(), "idle", value, 60)


def step_terms(breakdown_s: Mapping[str, float], roles: Mapping[str, str] | None = None) -> list[Term]:
    """The terms of a step in the house's order; those that are nothing beside the step are left out."""
    least = sum(breakdown_s.values()) * 1e-6
    terms = [term(key, value, roles) for key, value in breakdown_s.items() if value and value > least]
    return sorted(terms, key=lambda part: (part.order, part.key))


def legend(terms: Iterable[Term]) -> list[tuple[str, str]]:
    """Return (colour class, words) of each colour among the terms, in their order."""
    words: dict[str, list[str]] = {}
    for item in sorted(terms, key=lambda each: (each.order, each.key)):
        said = words.setdefault(item.css, [])
        label = item.label.removeprefix("Collectives on ")
        if label not in said:
            said.append(label)
    return [(css, ", ".join(said)) for css, said in words.items()]


def memory_terms(parts_bytes: Mapping[str, float]) -> list[Term]:
    """The parts of `hbm_per_chip_bytes` in order; `total` and `capacity` are no parts."""
    known = [Term(key, label, css, parts_bytes[key]) for key, label, css in _MEMORY_PARTS if parts_bytes.get(key)]
    named = {key for key, _, _ in _MEMORY_PARTS} | {"total", "capacity"}
    rest = [
        Term(key, key.replace("_", " ").capitalize(), "mem-5", value)
        for key, value in parts_bytes.items()
        if key not in named and value
    ]
    return known + rest


def percent(value: float, scale: float) -> str:
    """Position on a bar whose full width is `scale`; clipped to the bar."""
    if scale <= 0:
        return "0%"
    return f"{min(max(value / scale, 0.0), 1.0) * 100:.3f}%"


def segments(terms: list[Term], scale: float) -> list[Segment]:
    """Terms laid end to end; `scale` is the value at full width."""
    drawn, at = [], 0.0
    for part in terms:
        drawn.append(Segment(part, percent(at, scale), percent(part.value, scale)))
        at += part.value
    return drawn
