"""What was spoken of last, read again from the user's own messages, so that `it` and `and batch 512?` are clear."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from proposals.agents.conversation import Turn
from proposals.agents.reasoner.meshes import solve
from proposals.agents.reasoner.understand import Asked, Knows, understand

#: Messages of the user that are read again, the newest.
LOOKED_BACK = 6
_NAMES_NOTHING = {"greeting", "thanks", "bye", "help", "yes", "no", "injection", "act", "held", "accuracy", "chip"}
#: What can be asked of one proposal after another: `and the second one?`
_OF_EACH = {"confidence", "risks", "launch", "memory"}
_NUMBER = re.compile(
    r"(?:(?:and|or|but|then|what about|how about|what if|with|why not)\s+)*(\d[\d,]*k?)[\s?.!]*", re.IGNORECASE
)
_ONE_OF_THEM = re.compile(r"(?:and|or|also|what about|how about|and what about)\b.*")
_SETTINGS = {"global_batch": "batch", "seq_len": "sequence length", "grad_accum": "gradient accumulation"}


@dataclass(frozen=True)
class Focus:
    """A proposal by its number, or a configuration; neither where nothing was named.

    intent: what was asked of it.  single: the one axis or setting that was given a number, in words.  supposed: facts
    under which the proposals were priced last, by configuration path.
    """

    number: int | None = None
    mesh: Mapping[str, Mapping[str, int]] | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    op: str = ""
    intent: str = ""
    single: str = ""
    supposed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def configured(self) -> bool:
        """Whether it is a configuration of the user's own, and no proposal as it stands."""
        return self.mesh is not None or bool(self.changes)

    @property
    def named(self) -> bool:
        return self.number is not None or self.configured


def focus(earlier: Sequence[Turn], knows: Knows) -> Focus:
    """What the thread speaks of, before the message that is to be answered."""
    found = Focus()
    said = [turn.text for turn in earlier if turn.role == "user"][-LOOKED_BACK:]
    for text in said:
        read = understand(spelled_out(text, found), knows)
        found = ranked_anew(found) if read.told else found
        for item in read.asked:
            found = after(found, carried(item, found), knows)
    return found


def ranked_anew(found: Focus) -> Focus:
    """The focus once a fact or a constraint was told: numbers of proposals mean others then."""
    return replace(found, number=None, supposed={})


def spelled_out(text: str, found: Focus) -> str:
    """`and 8?` with the axis or the setting that the number before it was of; any other text as it is."""
    number = _NUMBER.fullmatch(text.strip())
    if number is None or not found.single:
        return text
    return f"{'why not' if found.intent == 'why_not' else 'what if'} {found.single} {number[1]}?"


def carried(item: Asked, found: Focus) -> Asked:
    """`and the second one?` asks of another proposal what was asked of the last."""
    one = item.intent == "explain" and len(item.proposals.numbers) == 1
    return (
        replace(item, intent=found.intent)
        if one and found.intent in _OF_EACH and _ONE_OF_THEM.fullmatch(item.text)
        else item
    )


def after(found: Focus, item: Asked, knows: Knows) -> Focus:
    """The focus once a question was asked."""
    if item.intent in _NAMES_NOTHING:
        return found
    found = replace(found, intent=item.intent, single=_single(item))
    if item.supposed and not (item.mesh or item.changes):
        return Focus(None, None, {}, found.op, item.intent, "", dict(item.supposed))
    if item.ops:
        return replace(found, op=item.ops[0])
    if item.mesh:
        config = knows.config
        base = found.mesh if item.also and found.mesh else config.mesh.to_json()
        ways = solve(item.mesh, base, config.hardware.chips_per_slice, config.mesh).meshes
        changes = {**(found.changes if item.also else {}), **item.changes}
        return Focus(None, ways[0], changes, found.op, item.intent, found.single) if ways else found
    if item.changes:
        if item.also or item.points_back:
            return replace(found, changes={**found.changes, **item.changes})
        return Focus(None, None, dict(item.changes), found.op, item.intent, found.single)
    if len(item.proposals.numbers) == 1:
        return Focus(item.proposals.numbers[0], None, {}, found.op, item.intent)
    if item.intent in ("recommend", "hold"):
        return Focus(1, None, {}, found.op, item.intent)
    return found


def _single(item: Asked) -> str:
    if item.mesh.single and not item.changes:
        return item.mesh.single[0]
    if len(item.changes) == 1 and not item.mesh:
        return _SETTINGS.get(next(iter(item.changes)), "")
    return ""
