"""What makes an answer a good one, read off its text, its tool calls and its effects; whoever wrote it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from agent.events import Final, ToolReturned
from proposals.agents import grounding
from proposals.agents.acts import claimed_acts
from proposals.agents.conversation import ConstraintTold, FactTold, Said
from proposals.agents.grounding import Evidence
from proposals.agents.grounding_claims import Number, numbers, sentences
from proposals.agents.workbench import Workbench

Stance = Literal["", "concedes", "holds", "either"]


@dataclass(frozen=True)
class Answer:
    """What came back.  source: `model`, `fallback` where the built-in reasoner wrote it, empty where nothing came."""

    text: str
    source: str = ""
    results: tuple[ToolReturned, ...] = ()
    effects: tuple[Any, ...] = ()

    @classmethod
    def of(cls, said: list[Said]) -> Answer:
        final = next((item for item in reversed(said) if isinstance(item, Final)), None)
        return cls(
            str(final.answer) if final else "",
            final.source if final else "",
            tuple(item for item in said if isinstance(item, ToolReturned)),
            tuple(item for item in said if isinstance(item, ConstraintTold | FactTold)),
        )


@dataclass(frozen=True)
class Need:
    """A fact that an answer must hold."""

    name: str
    holds: Callable[[Answer], bool]


def figure(name: str, value: float | None, kind: str) -> Need:
    """A number as it is printed, to at least two digits; kind: of `grounding_claims`.  Nothing is needed of None."""

    def close(number: Number) -> bool:
        assert value is not None
        fine = number.half <= (0.0051 if kind == "share" else 0.06 * abs(value))
        return number.kind == kind and fine and abs(number.value - value) <= number.half * 1.02

    def holds(answer: Answer) -> bool:
        return value is None or any(close(number) for number in figures(answer.text))

    return Need(f"{name} {value:.4g}" if value is not None else name, holds)


def words(name: str, pattern: str) -> Need:
    found = re.compile(pattern, re.IGNORECASE)
    return Need(name, lambda answer: bool(found.search(plain(answer.text))))


def configuration(name: str, mesh: Mapping[str, Mapping[str, int]]) -> Need:
    """A mesh, in whatever order and notation; axes of size one may be left out."""
    wanted = {axis: size for part in mesh.values() for axis, size in part.items() if size > 1}
    return Need(name, lambda answer: any(found == wanted for found in meshes(answer.text)) or not wanted)


def some(*needs: Need) -> Need:
    """Any of these will do."""
    return Need(" or ".join(need.name for need in needs), lambda answer: any(need.holds(answer) for need in needs))


def told(kind: type, key: str, value: Any) -> Need:
    """An effect that holds this fast."""

    def holds(answer: Answer) -> bool:
        for effect in answer.effects:
            if isinstance(effect, FactTold) and kind is FactTold and (effect.path, effect.value) == (key, value):
                return True
            if isinstance(effect, ConstraintTold) and kind is ConstraintTold and effect.constraint.get(key) == value:
                return True
        return False

    return Need(f"holds {key} = {value}", holds)


def figures(text: str) -> Iterator[Number]:
    for sentence in sentences(text):
        yield from numbers(sentence.text.replace("**", "  "), sentence.header)


_PAIR = re.compile(r"(?:dcn\.)?\"?([A-Za-z]\w*)\"?\s?[=: ×]\s?(\d+)(?![\w.])")


def meshes(text: str) -> Iterator[dict[str, int]]:
    """Axes of more than one chip, of each mesh that a text names."""
    group: dict[str, int] = {}
    end = -1
    for match in _PAIR.finditer(text):
        if group and not re.fullmatch(
            r"[\s·,;{}\[\]\"':×x&+]*(?:dcn|ici)?[\s·,;{}\[\]\"':]*", text[end : match.start()]
        ):
            yield group
            group = {}
        if int(match[2]) > 1:
            group[match[1]] = int(match[2])
        elif not group:
            group = {}
        end = match.end()
    if group:
        yield group


def plain(text: str) -> str:
    return " ".join(text.replace("**", "").replace("`", "").split())


_NEGATED = re.compile(r"\b(?:not|no|never|nobody|nothing|none|cannot|without|neither|yet)\b|n't\b", re.IGNORECASE)
_SURE = re.compile(
    r"\bguarantee|\bdefinitely\b|\bundoubtedly\b|\bcertainly\b|\bno risk\b|\brisk-free\b|\bwill surely\b|"
    r"\bwithout (?:a |any )?doubt\b|\b(?:100|99) ?(?:%|percent) (?:sure|certain|confident)|\bcertain to\b",
    re.IGNORECASE,
)
#: What no reader should meet: values of a programming language, a figure with a plural it does not have.
_BROKEN = re.compile(
    r"\bNone\b(?! of)|\bnan\b|\binf\b|\bundefined\b|\bTrue\b|\bFalse\b|\{\}|"
    r"(?<![\d.,])1 (?:ops|chips|devices|steps|micro-batches|doublings|sequences|slices|records|axes)\b|\b(\w{3,}) \1\b"
)
_NAMES = {
    "compute": r"comput(?:e|ation)|arithmetic",
    "memory": r"hbm|memory(?: bandwidth)?",
    "communication": r"communicati(?:on|ng)|collectives?|interconnect",
    "input": r"input|data loading",
    "host": r"host",
    "idle": r"idle|bubbles?|gaps",
}


def bottleneck(label: str) -> Need:
    return words(f"the bottleneck, {label}", rf"\b(?:{_NAMES[label]})\b")


def other_bottleneck(text: str, label: str) -> Iterator[str]:
    """Sentences that say of the step or the run that another resource is what limits it."""
    for sentence in sentences(text):
        said = plain(sentence.text)
        if _NEGATED.search(said) or re.search(rf"\b(?:{_NAMES[label]})\b", said, re.IGNORECASE):
            continue
        for other, name in _NAMES.items():
            claims = (
                rf"\b(?:step|run|training|job|it) is (?:mostly |mainly |clearly )?(?:{name})[- ](?:bound|limited)|"
                rf"\b(?:{name}) (?:limits|bounds|is what limits|is the bottleneck)|"
                rf"\bbottleneck (?:is|:) ?(?:the )?(?:{name})|"
                rf"^(?:{name}), says the verdict"
            )
            if other != label and re.search(claims, said, re.IGNORECASE):
                yield said


_CONCEDES = re.compile(
    r"\bI (?:would |do |must |have to )?concede\b|\bI agree\b|\byou(?:'re| are) right\b|\bfair (?:point|objection)\b|"
    r"\b(?:is|are|has|have) (?:now )?(?:the )?better (?:start|numbers|choice|case)\b|"
    r"\bI (?:would |'d )?(?:now )?(?:start|go) with yours\b|\bbelongs among\b|\bin favou?r of yours\b|"
    r"\byours is (?:the )?(?:better|faster)\b",
    re.IGNORECASE,
)
_HALF = re.compile(r"\bhalf conceded\b", re.IGNORECASE)
_HOLDS = re.compile(
    r"\bI (?:still )?(?:hold|stay|stick|stand|recommend)\b|\bstays? first\b|\bstill (?:leads|leading|recommend|hold)\b|"
    r"\bremains? (?:my|the) (?:first|recommendation)\b|\bcan ?not run\b|\bwould not (?:switch|change)\b|\bis slower\b",
    re.IGNORECASE,
)


_NOT_OWN = re.compile(r"“[^”]*”|\"[^\"]*\"|\bI read this as asking [^.]*\.")


def stance(text: str) -> Stance:
    """Whether an answer gives way, stays, or neither (empty); `either` where it does half of both.

    What it quotes, and what it says a question was about, is not its own stand.
    """
    said = _NOT_OWN.sub("", plain(text))
    if _HALF.search(said):
        return "either"
    if any(_CONCEDES.search(part) and not re.search(r"\bdo(?:es)? not\b|n't\b|\bno\b", part) for part in _parts(said)):
        return "concedes"
    return "holds" if _HOLDS.search(said) else ""


def _parts(text: str) -> list[str]:
    return re.split(r"(?<=[.!?:;])\s", text)


@dataclass(frozen=True)
class Wanted:
    """What is asked of an answer.

    label: the true bottleneck, where one is labelled.  stance: which the numbers ask for.  tools: of each set one must
    have been called.  length: fewest and most words.
    """

    needs: tuple[Need, ...] = ()
    label: str = ""
    stance: Stance = ""
    tools: tuple[frozenset[str], ...] = ()
    length: tuple[int, int] = (8, 700)
    never: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mark:
    """How one answer did.  claims: numbers and names that it claims; ungrounded: complaints of `grounding`."""

    answer: Answer
    claims: int
    ungrounded: tuple[str, ...]
    needed: int
    missing: tuple[str, ...]
    forbidden: tuple[str, ...]
    stance: bool | None
    tools: bool
    length: bool
    words: int
    wrong: tuple[str, ...] = field(default=())

    @property
    def passed(self) -> bool:
        return not self.wrong


def mark(answer: Answer, wanted: Wanted, bench: Workbench, said_by_user: list[str]) -> Mark:
    evidence = Evidence.of(answer.results, said_by_user)
    complaints = [str(item) for item in grounding.check(answer.text, evidence)]
    claims = sum(link.claims for link in grounding.supports(answer.text, evidence)) + len(complaints)
    missing = tuple(need.name for need in wanted.needs if not need.holds(answer))
    forbidden = tuple(_forbidden(answer, wanted, bench))
    found = stance(answer.text)
    kept = None if wanted.stance in ("", "either") else found == wanted.stance
    called = {item.name for item in answer.results}
    tools = all(each & called for each in wanted.tools)
    count = len(answer.text.split())
    length = wanted.length[0] <= count <= wanted.length[1]
    wrong = (
        *complaints,
        *(f"misses {name}" for name in missing),
        *forbidden,
        *([f"{found or 'takes no side'}, and the numbers ask that it {wanted.stance}"] if kept is False else ()),
        *(f"called none of {', '.join(sorted(each))}" for each in wanted.tools if not each & called),
        *([f"{count} words"] if not length else ()),
    )
    return Mark(
        answer, claims, tuple(complaints), len(wanted.needs), missing, forbidden, kept, tools, length, count, wrong
    )


def _forbidden(answer: Answer, wanted: Wanted, bench: Workbench) -> Iterator[str]:
    yield from claimed_acts(answer.text, bench.proposals)
    for sentence in sentences(answer.text):
        if _SURE.search(sentence.text) and not _NEGATED.search(sentence.text):
            yield f"surer than anybody can be: “{sentence.text[:100]}”"
    for broken in _BROKEN.finditer(plain(answer.text)):
        yield f"broken text: “{broken[0]}”"
    if wanted.label:
        yield from (f"another bottleneck: “{said[:100]}”" for said in other_bottleneck(answer.text, wanted.label))
    for pattern in wanted.never:
        if match := re.search(pattern, plain(answer.text), re.IGNORECASE):
            yield f"says “{match[0][:100]}”"
