"""Nothing is said that was not found: every number, op, axis, mesh, proposal, record and passage of a generated text
stands in a tool result of the same run, or in the user's own words.

What may be derived is little, and stated: of two numbers of one result that mean the same, of a configuration and of
what ran, or of two configurations that the sentence names, the difference, the ratio and the share by which they
differ; of a speed-up the share of time; of a part its share of its whole.  Anything else is to be asked of a tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from agent.events import ToolReturned
from proposals.agents.grounding_claims import Number, Sentence, numbers, sentences
from proposals.agents.grounding_evidence import Evidence
from proposals.agents.grounding_facts import Fact
from proposals.agents.grounding_match import Match, shown
from proposals.agents.grounding_names import Named, names
from proposals.agents.grounding_quotes import Quotes

__all__ = ["Complaint", "Evidence", "Link", "capped", "check", "standing", "strike", "supports"]

#: A hypothesis, which no measured precedent stands behind, claims no more.
MOST_OF_A_HYPOTHESIS = 0.5

Support = Literal["proven", "hypothesis"]


@dataclass(frozen=True)
class Complaint:
    """What a sentence claims and nothing backs.

    kind: number, op, axis, mesh, proposal, record, passage, result, link or confidence.  message: exact, with what the
    results say instead where they say something.  start, end: of the sentence in the text.
    """

    kind: str
    claim: str
    message: str
    sentence: str
    start: int
    end: int

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class Link:
    """A sentence and the results that support it, in the order of the run.

    claims: how many of its claims were found in results or the user's words.  support: `proven` where it cites a
    measured record, `hypothesis` where it says it is one; empty otherwise.
    """

    sentence: str
    results: tuple[str, ...]
    start: int
    end: int
    claims: int = 0
    support: Support | Literal[""] = ""


def check(text: str, evidence: Evidence, most: int | None = None) -> list[Complaint]:
    """What in a markdown text stands in no result and was not said by the user, in the order of the text.

    most: as many are enough; default all.
    """
    found: list[Complaint] = []
    said = sentences(text)
    quotes = Quotes(said, evidence)
    for sentence in said:
        for item in _claims(sentence, evidence, quotes):
            if item.wrong:
                found.append(Complaint(item.kind, item.text, item.wrong, sentence.text, sentence.start, sentence.end))
            if most is not None and len(found) >= most:
                return found
    return found


def supports(text: str, results: Iterable[ToolReturned] | Evidence, words: Sequence[str] = ()) -> list[Link]:
    """Each sentence that claims something, with the ids of the results that back its claims."""
    evidence = results if isinstance(results, Evidence) else Evidence.of(results, words)
    order = {item.result_id: place for place, item in enumerate(evidence.results)}
    found = []
    said = sentences(text)
    quotes = Quotes(said, evidence)
    for sentence in said:
        claims = [item for item in _claims(sentence, evidence, quotes) if not item.wrong]
        ids = {result for item in claims for result in item.results if result in order}
        if not claims:
            continue
        found.append(
            Link(
                sentence.text, tuple(sorted(ids, key=order.__getitem__)), sentence.start, sentence.end, len(claims),
                _support(sentence, claims, evidence),
            )
        )  # fmt: skip
    return found


def strike(text: str, complaints: Sequence[Complaint]) -> str:
    """The text without the sentences that were complained of, and a last line that says so."""
    gone = sorted({(item.start, item.end) for item in complaints}, reverse=True)
    if not gone:
        return text
    for start, end in gone:
        tail = "\n" if text[start:end].endswith("\n") and start > 0 and text[start - 1] != "\n" else ""
        text = text[:start].rstrip(" ") + tail + text[end:] if tail else text[:start] + text[end:]
    kept = text.strip()
    count = "One sentence was" if len(gone) == 1 else f"{len(gone)} sentences were"
    said = f"*{count} removed: no tool result of this answer backs what {'it' if len(gone) == 1 else 'they'} claimed.*"
    return f"{kept}\n\n{said}" if kept else said


def standing(text: str, evidence: Evidence) -> Support:
    """`proven` where a text cites a record, returned in this run, of a change that was measured to be faster."""
    cited = {item.text for sentence in sentences(text) for item in names(sentence, evidence) if item.kind == "record"}
    return "proven" if any(evidence.outcomes.get(key) == "faster" for key in cited) else "hypothesis"


def capped(confidence: float, support: Support) -> float:
    """What may be claimed: a hypothesis at most one half."""
    return min(confidence, MOST_OF_A_HYPOTHESIS) if support == "hypothesis" else confidence


@dataclass(frozen=True)
class _Claim:
    kind: str
    text: str
    wrong: str
    results: tuple[str, ...]


def _claims(sentence: Sentence, evidence: Evidence, quotes: Quotes) -> Iterator[_Claim]:
    """Everything that a sentence claims, with what is wrong with it."""
    named: list[Named] = list(names(sentence, evidence))
    for item in named:
        yield _Claim(item.kind, item.text, item.wrong, item.results)
    taken = [(item.start, item.end) for item in named if item.covers]
    bare = sentence.text
    for start, end in taken:
        bare = bare[:start] + " " * (end - start) + bare[end:]
    match = Match(sentence, evidence)
    for number in numbers(bare, sentence.header):
        if number.is_small_count:
            continue
        facts = match.facts(number)
        if facts is None and (quoted := quotes.result(number, sentence)) is not None:
            yield _Claim("number", number.text, "", (quoted,))
        elif facts is None:
            yield _Claim("number", number.text, _missing(number, match), ())
        else:
            yield _Claim("number", number.text, "", tuple(dict.fromkeys(f.result for f in facts if f.result)))
        if wrong := _too_sure(number, sentence):
            yield _Claim("confidence", number.text, wrong, ())


def _missing(number: Number, match: Match) -> str:
    near: Fact | None = match.nearest(number)
    if near is None:
        return f"`{number.text}` is in no tool result; call a tool for it, or leave it out."
    where = near.path.replace(".", " → ") or "the result"
    also = match.words_of(near)
    return f"`{number.text}` is in no tool result; `{near.tool}` says {shown(near, number)} ({where}{also})."


def _too_sure(number: Number, sentence: Sentence) -> str:
    words = sentence.text.lower()
    guess = any(word in words for word in ("hypothes", "unproven", "no precedent", "without precedent", "speculat"))
    sure = any(word in words for word in ("confiden", "probab", "likel", "chance", "certain", "sure"))
    if number.kind == "share" and guess and sure and number.value > MOST_OF_A_HYPOTHESIS + number.half:
        return f"`{number.text}` is claimed for a hypothesis; without a measured precedent claim at most 50 %."
    return ""


def _support(sentence: Sentence, claims: Sequence[_Claim], evidence: Evidence) -> Support | Literal[""]:
    if any(item.kind == "record" and evidence.outcomes.get(item.text) == "faster" for item in claims):
        return "proven"
    return "hypothesis" if "hypothes" in sentence.text.lower() else ""
