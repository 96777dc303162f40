"""A message as what it asks for, what it tells, and what of it was not understood."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from perfmodel.config import ExperimentConfig
from proposals.agents.reasoner import intents, meaning, meshes, references, settings, told
from proposals.agents.reasoner.meshes import MeshWords
from proposals.agents.reasoner.references import Pointed
from proposals.agents.reasoner.spelling import plain
from proposals.agents.reasoner.told import Told
from proposals.constraints import Constraints

#: More of a message than anyone types is not read.
LONGEST = 4000
#: Clauses of one message that are answered.
MOST = 8
#: What a clause with a mesh or setting of its own may ask of it; anything else asks what it would do.
_OF_A_MESH = {
    "injection", "act", "why_not", "prefer", "compare", "memory", "confidence", "risks", "launch", "add", "similar",
    "change_mind", "hold", "pressure",
}  # fmt: skip
#: Opinions of a configuration: what they name is meant as one to be judged, and tells nothing of the run.
_OPINIONS = {"prefer", "compare", "why_not"}
_TALK = {"greeting", "thanks", "bye", "yes", "no"}
#: Clauses that only lead over to another.
_FILLER = re.compile(
    r"^(?:ok(?:ay)?|well|so|hm+|hmm|and|but|also|then|please|sorry|wait|now|yes|no|right|alright|oh|ah|by "
    r"the way|btw|actually|for example|because|fine|one more thing|quick question|question)?[ ,.!:?]*$"
)


@dataclass(frozen=True)
class Asked:
    """One thing that is asked.  intent: a name of `intents.RULES`, or `what_if`; text: the words, mended and plain.

    also: it goes on from what was asked before (`and with batch 512?`); points_back: it names it by a pronoun.
    supposed: facts that the words only suppose, by configuration path.  guessed: read by its meaning, not by a rule.
    """

    intent: str
    text: str
    proposals: Pointed = field(default_factory=Pointed)
    mesh: MeshWords = field(default_factory=MeshWords)
    meshes: tuple[MeshWords, ...] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)
    ops: tuple[str, ...] = ()
    also: bool = False
    points_back: bool = False
    supposed: Mapping[str, Any] = field(default_factory=dict)
    guessed: bool = False


@dataclass(frozen=True)
class Understood:
    """asked: in the order of the message.  told: facts and constraints.  unclear: words that were not understood, as
    they were written."""

    asked: tuple[Asked, ...] = ()
    told: Told = field(default_factory=Told)
    unclear: tuple[str, ...] = ()


@dataclass(frozen=True)
class Knows:
    """What the words are read against: the configuration that ran, names of its ops, what is held and was told."""

    config: ExperimentConfig
    ops: Collection[str] = ()
    held: Constraints = field(default_factory=Constraints)
    facts: Mapping[str, Any] = field(default_factory=dict)


def understand(text: str, knows: Knows) -> Understood:
    """Reads a message."""
    names, marked = references.ops(text[:LONGEST], knows.ops)
    ops = iter(names)
    asked: list[Asked] = []
    said = Told()
    unclear: list[str] = []
    for original in list(clauses(marked))[:MOST]:
        clause = plain(original)
        if _FILLER.fullmatch(clause):
            continue
        quoted = original.replace(" <op> ", " ").strip(" ,;")
        found, facts = _clause(clause, quoted, knows, ops)
        said = said.and_(replace(facts, sentences=dict.fromkeys(facts.sentences, quoted)))
        if found is not None:
            asked.append(found)
        elif not facts:
            unclear.append(quoted)
    if len(asked) > 1:
        asked = [item for item in asked if item.intent not in _TALK] or asked[:1]
    if said:
        asked = [item for item in asked if item.intent not in _TALK]
    return Understood(_without_repeats(asked), said, tuple(unclear))


def clauses(text: str) -> Iterator[str]:
    """Sentences, and halves of sentences that ask or tell something of their own."""
    text = re.sub(r"\s*\n+\s*", " . ", text.strip())
    for sentence in re.split(r"(?<=[.?!;])\s+(?=\S)|(?<=\D)\.(?=[A-Z])|\s+\.\s+", text):
        parts = re.split(
            r"(?:,\s*|\s+)(?:(?:and|but|also|so|then|because|plus)\s+)+(?=(?:also\s+|then\s+)?(?:what|"
            r"which|how|why|where|when|is|are|do|does|can|could|should|"
            r"show|explain|compare|tell|give|would|will|did|please|write|keep|don'?t|leave|the\s+\w+\s+(?:is|"
            r"must|has)|memory|hbm|we\s+(?:use|have|train|need|must|can)|it\s+(?:is|must)|at\s+most|forget|"
            r"drop|approve|launch)\b)"
            r"|,\s+(?=(?:what|which|how|why|show|explain|compare|keep|don'?t|memory|but|approve|are\s+you|"
            r"do\s+you)\b)|\s+[-–—]\s+",
            sentence,
            flags=re.IGNORECASE,
        )
        yield from (part.strip() for part in parts if part and part.strip(" ,;.!?"))


def _clause(clause: str, original: str, knows: Knows, ops: Iterator[str]) -> tuple[Asked | None, Told]:
    """clause: in plain words; original: as it was written."""
    config = knows.config
    chips = config.hardware.chips_per_slice
    changes, rest = settings.read(clause, config.training, chips)
    several = _several(rest, config)
    mesh, rest = meshes.read(rest, config.mesh)
    pointed, rest = references.proposals(rest)
    named = tuple(next(ops, "") for _ in range(rest.count("<op>")))
    intent = intents.of(rest)
    facts = Told()
    judged = intent in _OPINIONS and bool(mesh or changes) and not told.HOLDING.search(clause)
    if intent not in ("injection", "act") and not judged:
        facts = told.read(clause, config, changes, mesh, pointed.numbers, knows.held, knows.facts)
    if facts:
        return None, facts
    supposed = _supposed(clause, config)
    guessed = False
    if not (mesh or changes or several or named or supposed or intents.plain(rest)):
        intent, guessed = _by_meaning(intent, original)
        if intent.startswith(meaning.TELLS):
            return None, told.held_fast(intent.removeprefix(meaning.TELLS), original)
    if supposed or ((mesh or changes) and intent not in _OF_A_MESH):
        intent = "what_if"
    if several and intent in ("what_if", ""):
        intent = "compare"
    if intent == "confidence" and mesh:
        intent = "what_if"
    follows = bool(re.match(r"(?:and|also|then|plus|with|now|but with|or)\b", clause)) or bool(
        re.search(r"\b(?:as well|too|in addition|on top|additionally)\b", clause)
    )
    back = bool(re.search(r"\b(?:it|its|that|this|that one|this one|the same|them|those|there)\b", clause))
    back = back or bool(_MORE.fullmatch(rest))
    if not intent:
        return None, facts
    return Asked(intent, clause, pointed, mesh, several, changes, named, follows, back, supposed, guessed), facts


def _by_meaning(rule: str, original: str) -> tuple[str, bool]:
    """What a clause asks that names no configuration, and whether that is guessed."""
    found = meaning.read(rule, original)
    return found.intent, found.guessed


def _several(rest: str, config: ExperimentConfig) -> tuple[MeshWords, ...]:
    """Whole meshes set against each other in one clause: `data 8 seq 2 vs data 4 seq 4`."""
    parts = re.split(
        (
            r"\bvs\b|\bversus\b|\bor\b|\bagainst\b|\bwith\b|\bto\b|\bthan\b|\band\b(?=\s*(?:\{|\d+x|"
            r"[a-z]+\s?[=:]?\s?\d))|,(?=\s*\{)"
        ),
        rest,
    )
    found = [meshes.read(part, config.mesh)[0] for part in parts]
    found = [item for item in found if item]
    whole = [item for item in found if len(item.ici) > 1 or item.positional]
    return tuple(whole) if len(whole) > 1 and re.search(r"\bvs\b|\bor\b|\bagainst\b|compar|than|between", rest) else ()


def _supposed(clause: str, config: ExperimentConfig) -> dict[str, Any]:
    """Facts that a question supposes: `what if the model is llama3-70b`."""
    names = told.models_named(clause)
    if (
        names
        and (len(names) == 1 or told.same_shape(names))
        and re.search(r"\bwhat if\b|\bsuppose|\bassum|\bif (?:the|it|we|i)\b|\bwith\b|\bwere\b", clause)
    ):
        return {"model.name": names[-1]}
    size = told.HBM.search(clause)
    if (
        size
        and re.search(r"\bhbm|memory\b", clause)
        and re.search(r"\bwhat if\b|\bsuppose|\bassum|\bif\b|\bonly\b|\bwith\b", clause)
    ):
        value = told.size_bytes(size[1]) or 0.0
        return {"hardware.overrides.hbm_bytes": value} if 1e9 <= value <= 1e13 else {}
    return {}


_MORE = re.compile(intents.MORE)
_ASKS = re.compile(r"\b(?:explain|why|tell|show|details?|what|how|describe)\b|\?")


def _names(item: Asked) -> bool:
    return bool(item.mesh or item.meshes or item.changes or item.proposals or item.ops)


def _without_repeats(asked: list[Asked]) -> tuple[Asked, ...]:
    """The same question twice is one; what two clauses name of one configuration belongs together."""
    found: list[Asked] = []
    for item in asked:
        last = found[-1] if found else None
        if last and last.intent == item.intent == "what_if" and item.also and not item.mesh:
            found[-1] = replace(last, changes={**last.changes, **item.changes})
        elif last and _MORE.fullmatch(item.text):
            continue  # `Which do you recommend, and why?`: an answer says why
        elif last and last.intent in ("prefer", "compare") and item.intent == "compare" and not _names(item):
            continue  # `I prefer this mesh. Compare them.`
        elif last and last.intent in ("pressure", "hold") and item.intent == "explain" and not _ASKS.search(item.text):
            continue  # `You are wrong. Everybody says that your first is bad.`
        elif last and last.intent == item.intent and not (last.mesh or last.proposals or last.changes or last.ops):
            found[-1] = item
        elif last and last.intent == item.intent and (last.mesh, last.proposals, last.changes, last.ops) == (
            item.mesh, item.proposals, item.changes, item.ops,
        ):  # fmt: skip
            continue
        else:
            found.append(item)
    return tuple(found)
