"""The scope of an op: what is left of its framework path without wrappers and control flow.

A path such as ``jit(train_step)/transpose(jvp(while))/body/layer_0/mlp/dot_general`` holds the user's names, the
wrappers of JAX around them and the words of control flow; its scope is ``train_step/layer_0/mlp/dot_general``.  Scopes
that differ in numbers only (layers) are shown as one.
"""

from __future__ import annotations

import re
from functools import lru_cache

_MAX_DEPTH = 12
#: Stands for a number in the scope of numbered ops.
ANY_NUMBER = "#"

_WRAPPED = re.compile(
    r"^(?:jit|pjit|jvp|vjp|transpose|checkpoint|remat|remat2|shard_map|vmap|xmap|pmap|custom_vjp_call|custom_jvp_call|"
    r"closed_call|core_call|linearize)\((.*)\)$"
)
_PLUMBING = frozenset(
    ("while", "body", "cond", "branch", "scan", "closed_call", "core_call", "checkpoint", "remat", "remat2", "pjit",
     "rematted_computation", "shard_map", "main", "jvp", "transpose", "custom_vjp_call", "custom_jvp_call", "")
)  # fmt: skip


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
    return "/".join(names[:_MAX_DEPTH])


def pattern(node: str) -> str:
    """A regular expression (PostgreSQL and Python) for this scope, whatever its numbers, and those below it."""
    return "^" + r"\d+".join(re.escape(part) for part in node.split(ANY_NUMBER)) + "(/|$)"
