"""The modules of a program as a tree, from the framework paths of its ops: time and phases per level.  Pure.

A path such as ``jit(train_step)/transpose(jvp(while))/body/layer_0/mlp/dot_general`` holds the user's names, the
wrappers of JAX around them and the words of control flow; the scope of an op is what is left of it,
``train_step/layer_0/mlp/dot_general``.  Siblings that differ in a number only (layers) are shown as one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

#: The tree keeps this many of its largest nodes; what is left out is counted in its parent.
MAX_NODES = 400
#: So many numbered siblings become one.
SIBLINGS = 3
MAX_DEPTH = 12
#: Stands for a number in the scope of merged siblings.
ANY_NUMBER = "#"

_WRAPPED = re.compile(
    r"^(?:jit|pjit|jvp|vjp|transpose|checkpoint|remat|remat2|shard_map|vmap|xmap|pmap|custom_vjp_call|custom_jvp_call|"
    r"closed_call|core_call|linearize)\((.*)\)$"
)
_PLUMBING = frozenset(
    ("while", "body", "cond", "branch", "scan", "closed_call", "core_call", "checkpoint", "remat", "remat2", "pjit",
     "rematted_computation", "shard_map", "main", "jvp", "transpose", "custom_vjp_call", "custom_jvp_call", "")
)  # fmt: skip
_NUMBER = re.compile(r"\d+")
_PHASES = ("forward", "backward", "recompute", "optimizer")
_COLUMNS = {"compute": "compute", "hbm": "hbm", "ici": "ici", "dcn": "ici"}


def _segments(path: str) -> list[str]:
    """Split at slashes outside parentheses."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(path):
        if letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
        elif letter == "/" and depth <= 0:
            parts.append(path[start:at])
            start = at + 1
    return [*parts, path[start:]]


def _unwrapped(segment: str) -> list[str]:
    while match := _WRAPPED.match(segment):
        segment = match[1]
    if segment.startswith("(") and segment.endswith(")"):
        # A fusion of several paths: `(mlp/dot_general:attention/dot_general)`.
        paths = [part for part in segment[1:-1].split(":") if part]
        several = [[name for piece in _segments(path) for name in _unwrapped(piece)] for path in paths]
        several = [names for names in several if names]
        modules = dict.fromkeys("/".join(part[:-1]) for part in several if len(part) > 1)
        leaves = dict.fromkeys(part[-1] for part in several)
        return [part for part in (" + ".join(modules), " + ".join(leaves)) if part]
    return [] if segment in _PLUMBING else [segment]


@lru_cache(maxsize=32768)
def scope(path: str) -> str:
    """The path without wrappers and control flow; empty where nothing is left."""
    first = path.split(";", 1)[0].strip()
    names = [name for segment in _segments(first) for name in _unwrapped(segment)]
    return "/".join(names[:MAX_DEPTH])


def pattern(node: str) -> str:
    """A regular expression (PostgreSQL and Python) for the scopes below a node of the tree."""
    return "^" + r"\d+".join(re.escape(part) for part in node.split(ANY_NUMBER)) + "(/|$)"


@dataclass
class _Node:
    time_s: float | None = 0.0
    share: float = 0.0
    ops: int = 0
    merged: int = 1
    phases: dict[str, float] = field(default_factory=dict)
    resources: dict[str, float] = field(default_factory=dict)
    children: dict[str, _Node] = field(default_factory=dict)

    def absorb(self, other: _Node) -> None:
        self.time_s = None if self.time_s is None or other.time_s is None else self.time_s + other.time_s
        self.share += other.share
        self.ops += other.ops
        for mine, theirs in ((self.phases, other.phases), (self.resources, other.resources)):
            for key, value in theirs.items():
                mine[key] = mine.get(key, 0.0) + value
        for name, child in other.children.items():
            if name in self.children:
                self.children[name].absorb(child)
            else:
                self.children[name] = child


@dataclass(frozen=True)
class Row:
    """One op of the tree.  time_s per step and core, share of the device time, resource as `OpDiagnosis.resource`."""

    scope: str
    time_s: float | None
    share: float
    phase: str
    resource: str


def build(rows: Iterable[Row]) -> dict[str, Any]:
    """The tree as JSON: {name, scope, time_s, share, ops, merged, phases, resources, left_out, children}.

    merged: how many numbered siblings the node stands for.  phases and resources: shares.  left_out: ops below it that
    no shown child holds.  Children by descending share; the root has no name.
    """
    root = _Node()
    for row in rows:
        phases = {row.phase: row.share} if row.phase else {}
        one = _Node(row.time_s, row.share, 1, 1, phases, {_COLUMNS.get(row.resource, "other"): row.share})
        at = root
        at.absorb(one)
        for name in row.scope.split("/") if row.scope else ("",):
            at = at.children.setdefault(name, _Node())
            at.absorb(one)
    _merge(root)
    shares = sorted((node.share for node in _walk(root)), reverse=True)
    least = shares[MAX_NODES - 1] if len(shares) >= MAX_NODES else 0.0
    return _json("", "", root, least)


def _merge(node: _Node) -> None:
    families: dict[str, list[str]] = {}
    for name in node.children:
        if _NUMBER.search(name):
            families.setdefault(_NUMBER.sub(ANY_NUMBER, name), []).append(name)
    for stem, names in families.items():
        if len(names) >= SIBLINGS:
            whole = _Node(merged=len(names))
            for name in names:
                whole.absorb(node.children.pop(name))
            node.children[stem] = whole
    for child in node.children.values():
        _merge(child)


def _walk(node: _Node) -> Iterable[_Node]:
    yield node
    for child in node.children.values():
        yield from _walk(child)


def _json(name: str, where: str, node: _Node, least: float) -> dict[str, Any]:
    children = sorted(node.children.items(), key=lambda item: -item[1].share)
    shown = [item for item in children if item[1].share >= least and item[1].share > 0]
    inner = [_json(key, f"{where}/{key}" if where else key, child, least) for key, child in shown]
    return {
        "name": name,
        "scope": where,
        "time_s": node.time_s,
        "share": node.share,
        "ops": node.ops,
        "merged": node.merged,
        "phases": {phase: node.phases[phase] for phase in _PHASES if phase in node.phases},
        "resources": node.resources,
        "left_out": node.ops - sum(child.ops for _, child in shown) if children else 0,
        "children": inner,
    }
