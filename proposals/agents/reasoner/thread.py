"""What was spoken of last, read again from the user's own messages, so that `it` and `and batch 512?` are clear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from proposals.agents.conversation import Turn
from proposals.agents.reasoner.meshes import solve
from proposals.agents.reasoner.understand import Asked, Knows, understand

#: Messages of the user that are read again, the newest.
LOOKED_BACK = 6
_NAMES_NOTHING = {"greeting", "thanks", "bye", "help", "yes", "injection", "act", "held", "accuracy"}


@dataclass(frozen=True)
class Focus:
    """A proposal by its number, or a configuration; neither where nothing was named.  intent: what was asked of it."""

    number: int | None = None
    mesh: Mapping[str, Mapping[str, int]] | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    op: str = ""
    intent: str = ""

    @property
    def named(self) -> bool:
        return self.number is not None or self.mesh is not None or bool(self.changes)


def focus(earlier: Sequence[Turn], knows: Knows) -> Focus:
    """What the thread speaks of, before the message that is to be answered."""
    found = Focus()
    said = [turn.text for turn in earlier if turn.role == "user"][-LOOKED_BACK:]
    for text in said:
        for item in understand(text, knows).asked:
            found = after(found, item, knows)
    return found


def after(found: Focus, item: Asked, knows: Knows) -> Focus:
    """The focus once a question was asked."""
    if item.intent in _NAMES_NOTHING:
        return found
    found = replace(found, intent=item.intent)
    if item.ops:
        return replace(found, op=item.ops[0])
    if item.mesh:
        config = knows.config
        base = found.mesh if item.also and found.mesh else config.mesh.to_json()
        ways = solve(item.mesh, base, config.hardware.chips_per_slice, config.mesh).meshes
        changes = {**(found.changes if item.also else {}), **item.changes}
        return Focus(None, ways[0], changes, found.op, item.intent) if ways else found
    if item.changes:
        if item.also or item.points_back:
            return replace(found, changes={**found.changes, **item.changes})
        return Focus(None, None, dict(item.changes), found.op, item.intent)
    if len(item.proposals.numbers) == 1:
        return Focus(item.proposals.numbers[0], None, {}, found.op, item.intent)
    if item.intent in ("recommend", "hold"):
        return Focus(1, None, {}, found.op, item.intent)
    return found
