"""Say what passes between a conversation and the language model that answers in it.

An answer is events (`agent.events`): tool calls and their results, text as it comes, and one Final.  What it asks for
or offers beside its text is an Effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from agent.events import RunEvent
from experiments.codec import Codec
from proposals.constraints import Constraints


@dataclass(frozen=True)
class Turn:
    """An earlier message of the thread, as it was shown."""

    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True)
class Ask:
    """What the user says now, and what the thread holds so far.

    facts: what users said of the run beyond its configuration, by configuration path (`model.name`,
    `training.global_batch`, `training.seq_len`, `hardware.overrides.hbm_bytes`), taken over into what is priced.
    """

    text: str
    earlier: tuple[Turn, ...] = ()
    constraints: Constraints = field(default_factory=Constraints)
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ConstraintStated:
    """The user's words hold something fast: keys of `Constraints.to_json`, and the sentence that says so."""

    constraint: Mapping[str, Any]
    sentence: str
    kind: Literal["constraint"] = "constraint"


@dataclass(frozen=True)
class FactStated:
    """A fact of the run in the user's words, by configuration path."""

    path: str
    value: Any
    sentence: str
    kind: Literal["fact"] = "fact"


@dataclass(frozen=True)
class MeshOffered:
    """A configuration that the answer priced and the user may add as a proposal.  mesh as {"ici": …, "dcn": …}."""

    mesh: Mapping[str, Mapping[str, int]]
    changes: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    kind: Literal["mesh"] = "mesh"


@dataclass(frozen=True)
class AnswerText:
    """The text of an answer with its references, and its parts as `Rendered.to_json`; comes before the Final."""

    template: str
    parts: tuple[Any, ...]


Effect = ConstraintStated | FactStated | MeshOffered
AnswerStep = RunEvent | Effect | AnswerText
#: What a message keeps of an effect.
EFFECT: Codec[Effect] = Codec(cast(Any, Effect))


def read_effects(stored: Sequence[Mapping[str, Any]]) -> dict[int, Effect]:
    """Return the effects of a message by their index; earlier versions had another kind, which asked back."""
    return {place: EFFECT.read(item) for place, item in enumerate(stored) if item["kind"] != "question"}
