"""Nothing is said that was not found: every number, op, axis, mesh, proposal, record and passage of a generated text
is in a tool result of the same question, or in the user's own words.

A number is backed where it equals, as it is rounded, a value of its unit, wherever in the results that stands, follows
by one operation from two of them (from two that are shown beside it, from the same quantity of two configurations, from
a part and its whole), or is what an equation that the text shows makes of backed numbers.  Only whose it is must be
right: a sentence about one configuration gives no number of another, and calls nothing measured that is predicted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from agent.events import ToolReturned
from proposals.agents.grounding_bounds import bounding
from proposals.agents.grounding_claims import Number, Sentence, numbers, sentences
from proposals.agents.grounding_conditions import is_threshold
from proposals.agents.grounding_evidence import Evidence
from proposals.agents.grounding_facts import Fact
from proposals.agents.grounding_match import Facts, Match, shown
from proposals.agents.grounding_names import names
from proposals.agents.grounding_shown import equations

__all__ = ["Complaint", "Evidence", "Link", "capped_confidence", "check", "strike", "support_level", "supports"]

#: Highest confidence of a hypothesis, which has no measured precedent.
MOST_OF_A_HYPOTHESIS = 0.5

#: A value further off than this is not suggested instead.
_FAR = 2.0

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
    """Parts of a markdown text that are in no result and not in the user's words, in the order of the text.

    most: as many are enough; default all.
    """
    complaints: list[Complaint] = []
    for sentence, claims in _claimed(text, evidence):
        for item in claims:
            if item.wrong:
                complaints.append(
                    Complaint(item.kind, item.text, item.wrong, sentence.text, sentence.start, sentence.end)
                )
            if most is not None and len(complaints) >= most:
                return complaints
    return complaints


def supports(text: str, results: Iterable[ToolReturned] | Evidence, words: Sequence[str] = ()) -> list[Link]:
    """Each sentence that claims something, with the ids of the results that back its claims."""
    evidence = results if isinstance(results, Evidence) else Evidence.of(results, words)
    order = {item.result_id: place for place, item in enumerate(evidence.results)}
    links = []
    for sentence, every in _claimed(text, evidence):
        claims = [item for item in every if not item.wrong]
        ids = _fewest(claims, order)
        if not claims:
            continue
        links.append(
            Link(
                sentence.text, tuple(sorted(ids, key=order.__getitem__)), sentence.start, sentence.end, len(claims),
                _support(sentence, claims, evidence),
            )
        )  # fmt: skip
    return links


def _fewest(claims: Sequence[_Claim], order: Mapping[str, int]) -> set[str]:
    """Results that back all claims, few of them: a value is often in several, of which the last was asked for it."""
    known = [(tuple(r for r in claim.results if r in order), claim.needs_all) for claim in claims]
    needed = {result for results, needs_all in known if needs_all for result in results}
    open_ = [set(results) for results, needs_all in known if results and not needs_all]
    while open_ := [results for results in open_ if not results & needed]:
        needed.add(max(set().union(*open_), key=lambda r: (sum(r in results for results in open_), order[r])))
    return needed


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
    said = (
        f"*{count} removed: no tool result of this answer supports what {'it' if len(gone) == 1 else 'they'} claimed.*"
    )
    return f"{kept}\n\n{said}" if kept else said


def support_level(text: str, evidence: Evidence) -> Support:
    """`proven` where a text cites a record, returned in this run, of a change that was measured to be faster."""
    cited = {item.text for sentence in sentences(text) for item in names(sentence, evidence) if item.kind == "record"}
    return "proven" if any(evidence.outcomes.get(key) == "faster" for key in cited) else "hypothesis"


def capped_confidence(confidence: float, support: Support) -> float:
    """What may be claimed: a hypothesis at most one half."""
    return min(confidence, MOST_OF_A_HYPOTHESIS) if support == "hypothesis" else confidence


@dataclass(frozen=True)
class _Claim:
    """results: each backs it; where it is worked out from two numbers (needs_all), all together."""

    kind: str
    text: str
    wrong: str
    results: tuple[str, ...]
    needs_all: bool = False


def _claimed(text: str, evidence: Evidence) -> Iterator[tuple[Sentence, Iterator[_Claim]]]:
    """Each sentence with everything that it claims, and what is wrong with that."""
    read = []
    for sentence in sentences(text):
        named = list(names(sentence, evidence))
        bare = sentence.text
        for start, end in [(item.start, item.end) for item in named if item.covers]:
            bare = bare[:start] + " " * (end - start) + bare[end:]
        every = list(numbers(bare, sentence.header))
        counted = [number for number in every if not number.is_small_count]
        said = [_Claim(n.kind, n.text, n.wrong, n.results) for n in named]
        read.append((sentence, said, counted, list(equations(bare, every))))
    match = Match([(sentence, counted, sums) for sentence, _, counted, sums in read], facts := Facts(evidence))
    for sentence, named_claims, counted, _ in read:
        yield sentence, chain(named_claims, _numbers(sentence, counted, match, facts))


def _numbers(sentence: Sentence, counted: Sequence[Number], match: Match, facts: Facts) -> Iterator[_Claim]:
    for number in counted:
        sources = match.sources(sentence, number)
        results = tuple(dict.fromkeys(fact.result for fact in sources if fact.result))
        if makes := match.miscalculated(sentence, number):
            yield _Claim("number", number.text, f"The arithmetic shown makes {makes}, not `{number.text}`.", ())
        elif not sources and is_threshold(sentence, number):
            continue
        elif not sources and not _is_the_cap(number, sentence):
            yield _Claim("number", number.text, _missing(number, sentence, facts), ())
        elif owner := match.misplaced(sentence, number, sources):
            yield _Claim("number", number.text, f"`{number.text}` is of {owner}, and is not said of it here.", ())
        elif match.only_predicted(sentence, number, sources):
            yield _Claim("number", number.text, f"`{number.text}` is predicted, not measured.", ())
        else:
            yield _Claim("number", number.text, "", results, needs_all=not match.repeats(sentence, number))
        if wrong := _too_sure(number, sentence, sources):
            yield _Claim("confidence", number.text, wrong, ())


def _missing(number: Number, sentence: Sentence, facts: Facts) -> str:
    said = f"`{number.text}` is in no tool result, and follows from no two of them in the same sentence or table"
    if document := facts.document(number):
        return f"`{number.text}` stands only in the text of `{document}`; name that where it is meant, or leave it out."
    near: Fact | None = facts.nearest(number, frozenset().union(*facts.owners(sentence.text)))
    if near is None or not 1 / _FAR <= near.value / number.value <= _FAR:
        return f"{said}; call a tool for it, show what it is worked out from, or leave it out."
    owner = next((f", of {name}" for name in sorted(near.owners, reverse=True)), "")
    return f"{said}; the nearest is {shown(near)} (`{near.tool}`: {near.path.replace('.', ' → ')}{owner})."


#: How sure a sentence says that it is, right before or after the number.
_SURE = r"(?:confiden|probab|likel|chance|certain|sure|hypothes)\w*"


def _is_the_cap(number: Number, sentence: Sentence) -> bool:
    """`at most 50 % likely`: what may be claimed of a hypothesis, which claims no value."""
    is_cap = number.kind == "share" and number.value == MOST_OF_A_HYPOTHESIS
    return is_cap and bounding(sentence, number) == "above" and bool(re.search(_SURE, sentence.text.lower()))


def _too_sure(number: Number, sentence: Sentence, sources: Sequence[Fact]) -> str:
    if number.kind != "share" or number.value <= MOST_OF_A_HYPOTHESIS + number.half:
        return ""
    if any("confidence" in fact.path for fact in sources):
        return ""
    words, said = sentence.text.lower(), re.escape(number.text.lower())
    guess = any(word in words for word in ("hypothes", "unproven", "no precedent", "without precedent", "speculat"))
    if guess and re.search(rf"{_SURE}(?:\s+(?:of|is|:|about))*\s+{said}|{said}\s+{_SURE}", words):
        return f"`{number.text}` is claimed for a hypothesis; without a measured precedent claim at most 50 %."
    return ""


def _support(sentence: Sentence, claims: Sequence[_Claim], evidence: Evidence) -> Support | Literal[""]:
    if any(item.kind == "record" and evidence.outcomes.get(item.text) == "faster" for item in claims):
        return "proven"
    return "hypothesis" if "hypothes" in sentence.text.lower() else ""
