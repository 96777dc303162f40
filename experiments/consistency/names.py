"""Names and counts in the form that evidence shows."""

from __future__ import annotations

#: Names of ops and paths are cut to so many characters in evidence.
_NAME = 48


def short(name: str) -> str:
    """A name of an op in a sentence."""
    return name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"


def short_path(path: str) -> str:
    """The innermost parts of a framework path, without the parameters of its last op."""
    parts = path.partition("[")[0].split("/")
    return "/".join(parts[-3:])
