"""What backs a number: a value of its unit in the evidence, or what follows from two by one operation.

Where in the results it stands is not asked, but for one thing that readers act on: of which configuration it is.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

from formatting import plain
from formatting.numbers import whole_number
from proposals.agents.grounding_bounds import bounds
from proposals.agents.grounding_claims import QUANTITIES, Kind, Number, Sentence
from proposals.agents.grounding_conditions import is_conditional, says_measured, says_predicted
from proposals.agents.grounding_derived import DIMENSIONS, MOST_TOGETHER, TWO, operations, results_without_operands
from proposals.agents.grounding_evidence import Evidence, mesh_name
from proposals.agents.grounding_facts import CURRENT, Fact, axis_sizes, groups
from proposals.agents.grounding_shown import Equation, Unit, is_constant

_PROPOSAL = re.compile(r"(?:proposal|option|configuration|#)\s*#?(\d{1,3})\b", re.IGNORECASE)
_ORDINAL = re.compile(r"\b(first|second|third|fourth|fifth)\b", re.IGNORECASE)
_ORDINALS = ("first", "second", "third", "fourth", "fifth")
#: How a text refers to the current configuration.
_CURRENT = re.compile(r"\b(?:current configuration|what runs|baseline)\b", re.IGNORECASE)
#: Sets what is named against something else.
_AGAINST = re.compile(
    r"\b(?:from|than|against|versus|vs|instead|compared|below|above|over|where|while|whereas|but|measured|less|more|saves?|"
    r"difference|ratio)\b|→|->|;",
    re.IGNORECASE,
)
#: `drops from 719 ms to 430 ms`: of what would run instead.
_BECOMES = re.compile(r"(?:\bfrom\b[^;:]*\bto|→|->)\s(?:(?:about|roughly|only|some)\s|[~≈*`]\s?)*$", re.IGNORECASE)
_OF_RECORDS = re.compile(r"record|precedent|publish|paper|history|elsewhere|other (?:runs|teams)|recipe", re.IGNORECASE)
_CLAUSE = re.compile(r"[;:()|]|,(?!\d)|\s[–—]\s|\b(?:and|but|against|from|than|to|vs)\b")

#: What a conversion of units or a small count is of.
_CONSTANT = Fact(0.0, "bare", path="a constant")
#: Numbers of the question that an answer may reckon with.
_MOST_TOLD = 8


def proposals_named(text: str) -> set[int]:
    """Numbers of proposals that a text names: `proposal 2`, `#2`, `the second proposal`."""
    ranks = {int(number) for number in _PROPOSAL.findall(text)}
    if re.search(r"proposal|option|recommend", text, re.IGNORECASE):
        ranks |= {_ORDINALS.index(word.lower()) + 1 for word in _ORDINAL.findall(text)}
    return ranks


class Facts:
    """The numbers of an evidence, to look values up in."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        by_kind: dict[Kind, list[Fact]] = defaultdict(list)
        for fact in evidence.facts:
            by_kind[fact.kind].append(fact)
        self._sorted = {kind: _Sorted((fact.value, (fact,)) for fact in facts) for kind, facts in by_kind.items()}

    def matches(self, number: Number, cited: str) -> list[Fact]:
        """The facts that a number repeats.  cited: where a text is named that the product did not write."""
        return self._same(number, cited) or (self._same(number.otherwise, cited) if number.otherwise else [])

    def _same(self, number: Number, cited: str) -> list[Fact]:
        facts = [fact for kind in _kinds(number) for (fact,) in self._within(kind, number.value, number.half)]
        facts = [f for f in facts if not f.within or _is_named(f, cited) or (number.kind == "bare" and not f.owners)]
        if number.kind != "bare":  # the unit may stand elsewhere, or be spelt otherwise
            half = number.half * number.printed / number.value if number.value else number.half
            bare = [fact for (fact,) in self._within("bare", number.printed, half)]
            facts += [f for f in bare if f.tool == "the user" or (f.within and _is_named(f, cited))]
            if number.kind == "ratio":
                facts += [f for f in bare if not f.within]
        return facts

    def _within(self, kind: Kind, value: float, half: float) -> list[tuple[Fact, ...]]:
        return self._sorted[kind].within(value, half) if kind in self._sorted else []

    def nearest(self, number: Number, owners: frozenset[str]) -> Fact | None:
        """Of the same unit the nearest in value, of the configuration that the sentence names before others."""
        if number.kind == "bare" or not number.value:
            return None
        near = [f for f in self.evidence.facts if f.kind == number.kind and f.value and not f.within]
        meant = owners or {CURRENT}
        own = [f for f in near if meant & f.owners or not (owners or f.owners)] or near
        return min(own, key=lambda f: abs(math.log(f.value / number.value)), default=None)

    def document(self, number: Number) -> str:
        """The record or passage in whose text a number stands; empty where in none."""
        ids = {key.lower(): key for key in (*self.evidence.records, *self.evidence.passages)}
        facts = [fact for kind in _kinds(number) for (fact,) in self._within(kind, number.value, number.half)]
        return next((ids[name] for fact in facts for name in sorted(fact.within) if name in ids), "")

    def owners(self, text: str) -> list[frozenset[str]]:
        """The configurations that a text names, each with all its names."""
        if text not in self._owners:  # asked for each number of a paragraph
            self._owners[text] = self._named(text)
        return self._owners[text]

    @cached_property
    def _owners(self) -> dict[str, list[frozenset[str]]]:
        return {}

    def _named(self, text: str) -> list[frozenset[str]]:
        evidence, configurations = self.evidence, list[frozenset[str]]()
        for number in sorted(proposals_named(text) & set(evidence.proposals)):
            names = {f"proposal {number}"}
            mesh = evidence.mesh_of_proposal.get(number)
            if mesh is not None and list(evidence.mesh_of_proposal.values()).count(mesh) == 1 != evidence.baseline:
                names |= {mesh_name(mesh)} if mesh != evidence.baseline else set()
            configurations.append(frozenset(names))
        for group in groups(axis_sizes(text, evidence.axes)):
            meant = [
                mesh for mesh in evidence.meshes if mesh and all(dict(mesh).get(p.axis, 1) == p.last for p in group)
            ]
            names = {mesh_name(mesh) for mesh in meant}
            names |= {f"proposal {n}" for n, mesh in evidence.mesh_of_proposal.items() if mesh in meant}
            if evidence.baseline in meant:
                names.add(CURRENT)
            if names and not any(names & other for other in configurations):
                configurations.append(frozenset(names))
        if _CURRENT.search(text):
            configurations.append(frozenset((CURRENT,)))
        return configurations

    def follows(self, number: Number, named: frozenset[str]) -> tuple[Fact, ...] | None:
        """The facts from which a number follows without their being shown: the current configuration, or one of the
        configurations named, set against another; a part of its whole; what a speed-up leaves; tokens per second."""
        table = self._tables.setdefault(named, {})
        if number.kind not in table:
            facts = [f for f in self._plain if not f.owners or named & f.owners]
            derived = list(results_without_operands(facts))
            for kind in DIMENSIONS:
                table[kind] = _Sorted((value, of) for value, of_kind, of in derived if of_kind == kind)
        return next(iter(table[number.kind].within(number.value, number.half)), None)

    @cached_property
    def _tables(self) -> dict[frozenset[str], dict[Kind, _Sorted]]:
        return {}

    @cached_property
    def _plain(self) -> list[Fact]:
        return [
            f for f in self.evidence.facts if not f.text and f.value and not any(o[:6] == "record" for o in f.owners)
        ]

    def shown(self, number: Number, operands: Sequence[Fact]) -> tuple[Fact, ...] | None:
        """The two facts, shown beside a number, from which it follows."""
        for at, one in enumerate(operands):
            for other in operands[at + 1 :]:
                for value in operations(number.kind, one, other):
                    if abs(abs(value) - number.value) <= number.half * (1 + 1e-9):
                        return one, other
        return None


class _Sorted:
    """Values with what they are of."""

    def __init__(self, items: Iterable[tuple[float, tuple[Fact, ...]]]) -> None:
        self._items = sorted(items, key=lambda item: item[0])
        self._values = [value for value, _ in self._items]

    def within(self, value: float, half: float) -> list[tuple[Fact, ...]]:
        most = half * (1 + 1e-9) + 1e-12 * value
        low, high = bisect_left(self._values, value - most), bisect_right(self._values, value + most)
        return [facts for _, facts in self._items[low:high]]


def _kinds(number: Number) -> tuple[Kind, ...]:
    if number.kind == "bare":
        return ("bare", "intensity", "ratio", "share") if number.decimals else ("bare", "intensity")
    return (number.kind,)


def _is_named(fact: Fact, text: str) -> bool:
    return any(name in text for name in fact.within)


class Match:
    """What backs the numbers of one text."""

    def __init__(self, said: Sequence[tuple[Sentence, Sequence[Number], Sequence[Equation]]], facts: Facts) -> None:
        self._facts = facts
        self._blocks: dict[int, list[tuple[Sentence, Number, Fact]]] = defaultdict(list)
        self._cited: dict[int, str] = defaultdict(str)
        self._told = [replace(f, tool="") for f in facts.evidence.facts if f.tool == "the user" and f.value][
            :_MOST_TOLD
        ]
        for sentence, *_ in said:
            self._cited[sentence.block] += f" {sentence.heading} {sentence.lead} {sentence.text}".lower()
        self._about = facts.owners(" ".join(self._cited.values()))
        # What a float cannot hold has no rounding to compare within.
        self._same = {
            (sentence.start, number.start): facts.matches(number, self._cited[sentence.block])
            if number.is_finite
            else []
            for sentence, numbers, _ in said
            for number in numbers
        }
        spoken = " ".join((*self._cited.values(), *facts.evidence.words)).lower()
        self._nobody_named = "proposal" not in spoken and "configuration" not in spoken
        self._printed: dict[float, Fact] = {}
        for sentence, numbers, _ in said:
            for number in numbers:
                for fact in self._same[sentence.start, number.start][:2]:
                    self._printed.setdefault(number.printed, fact)
                    self._blocks[sentence.block].append((sentence, number, fact))
        # What is worked out may be shown before that from which it follows, which is worked out itself.
        self._follows: dict[tuple[int, int], tuple[Fact, ...]] = {}
        self._makes: dict[tuple[int, int], str] = {}
        waiting = [
            (s, n) for s, numbers, _ in said for n in numbers if n.is_finite and not self._same[s.start, n.start]
        ]
        for _ in range(2):
            for sentence, _, sums in said:
                for equation in sums:
                    self._reckon(sentence, equation)
            before = {block: len(items) for block, items in self._blocks.items()}
            for sentence, number in waiting:
                if (sentence.start, number.start) in self._follows:
                    continue
                if source_facts := self._worked_out(sentence, number):
                    self._follows[sentence.start, number.start] = source_facts
            waiting = [
                (s, n) for s, n in waiting
                if (s.start, n.start) not in self._follows and len(self._blocks[s.block]) > before.get(s.block, 0)
            ]  # fmt: skip

    def sources(self, sentence: Sentence, number: Number) -> tuple[Fact, ...]:
        """The facts that back a number, those from which it follows included; empty where there are none."""
        place = (sentence.start, number.start)
        return tuple(self._same[place]) or self._follows.get(place, ()) or self._bound(sentence, number)

    def _bound(self, sentence: Sentence, number: Number) -> tuple[Fact, ...]:
        """The facts of the sentence where the number is a true bound of one of them."""
        others = [
            (n, fact) for of, n, fact in self._blocks[sentence.block]
            if of is sentence and n.start != number.start
        ]  # fmt: skip
        return tuple(fact for n, fact in others if bounds(sentence, number, (n,)))

    def repeats(self, sentence: Sentence, number: Number) -> bool:
        """Whether the number is in a result as it is, and not worked out."""
        return bool(self._same[sentence.start, number.start])

    def miscalculated(self, sentence: Sentence, number: Number) -> str:
        """What the arithmetic that is shown for a number makes, where that is something else; empty where it is right
        or none is shown."""
        return self._makes.get((sentence.start, number.start), "")

    def _reckon(self, sentence: Sentence, equation: Equation) -> None:
        """Backs the result of an equation by its operands, and operands by the unit that they share with it."""
        result, place = equation.result, (sentence.start, equation.result.start)
        if not all(number.is_finite for number in (result, *equation.operands)) or not result.value:
            return
        for unit in equation.units():
            read = {number.start: self._operand(sentence, number, unit) for number in equation.operands}
            backed = {start: of for start, of in read.items() if of is not None}
            if len(backed) == len(read):
                break
        else:
            return
        exact = {start: of.value for start, of in backed.items() if of.value}
        holds = equation.holds(exact)
        if holds or equation.stated:
            for number in equation.operands:
                self._follows.setdefault((sentence.start, number.start), (backed[number.start],))
        if holds:
            if not self._same.get(place) and place not in self._follows:
                self._follows[place] = tuple(dict.fromkeys(backed.values()))
                worked_out = Fact(result.value, result.kind, path="worked out above")
                self._blocks[sentence.block].append((sentence, result, worked_out))
        elif equation.stated and (makes := equation.makes(exact)):
            self._makes[place] = makes

    def _operand(self, sentence: Sentence, number: Number, unit: Unit | None) -> Fact | None:
        """The fact behind an operand.  unit: that it may lack."""
        place = (sentence.start, number.start)
        if known := self._same.get(place):
            return known[0]
        if place in self._follows:  # as it is rounded here, whatever it was worked out from
            return Fact(0.0, number.kind, result=next((f.result for f in self._follows[place]), ""), path="above")
        if is_constant(number):
            return _CONSTANT
        if number.kind != "bare":  # `2 × 70e9 bytes`: the unit may be of another factor
            bare = self._facts.matches(number.read_as("bare", 1.0), "") if number.factor == 1.0 else []
            return next(iter(bare), None)
        if number.printed in self._printed:
            return self._printed[number.printed]
        return (
            next(iter(self._facts.matches(number.read_as(*unit), self._cited[sentence.block])), None) if unit else None
        )

    def _worked_out(self, sentence: Sentence, number: Number) -> tuple[Fact, ...]:
        if number.kind == "bare" and number.printed in self._printed:
            return (self._printed[number.printed],)  # said again without its unit
        if not number.decimals and "," in number.text and (parts := self._listed(number)):
            return parts
        about = self._facts.owners(self._cited[sentence.block]) or self._about
        derived = self._facts.follows(number, frozenset((CURRENT,)).union(*about))
        derived = derived or self._facts.shown(number, self._beside(sentence, number))
        if derived is not None and number.value:
            worked_out = Fact(number.value, number.kind, path="worked out above")
            self._blocks[sentence.block].append((sentence, number, worked_out))
        return derived or ()

    def _listed(self, number: Number) -> tuple[Fact, ...]:
        """`16,128` may be two sizes of a shape."""
        facts: list[Fact] = []
        for part in number.text.split(","):
            value = float(-1 if (whole := whole_number(part.strip())) is None else whole)
            same = self._facts.matches(Number(part, value, 0.5, "bare", number.start, printed=value), "")
            facts += same[:1]
        return tuple(facts) if len(facts) == number.text.count(",") + 1 else ()

    def _beside(self, sentence: Sentence, number: Number) -> list[Fact]:
        """The numbers shown with it, as they are and as they are printed, and those of the question."""
        block = self._blocks[sentence.block]
        if len(block) > MOST_TOGETHER:
            block = [item for item in block if item[0] is sentence]
        others = [(n, f) for _, n, f in block if n.value and (n.start, n.text) != (number.start, number.text)]
        shown = {(fact.value, fact.kind): fact for _, fact in others if fact.value}
        for other, fact in others:
            shown.setdefault((other.value, other.kind), replace(fact, value=other.value, kind=other.kind))
        return [*shown.values(), *self._told, TWO]

    def misplaced(self, sentence: Sentence, number: Number, sources: Sequence[Fact]) -> str:
        """Whose a number is where the sentence says it of another configuration, or, in a text that speaks of no
        proposal, of the run; empty where it may be so."""
        if number.kind == "bare" or any(not fact.owners for fact in sources) or self._bound(sentence, number):
            return ""
        same = self._same[sentence.start, number.start]
        part = _part(_AGAINST, sentence.text, number.start)
        named = self._facts.owners(_column(sentence, number)) or self._facts.owners(part)
        said_otherwise = says_predicted(sentence.text) or _BECOMES.search(sentence.text[: number.start])
        others_named = any(CURRENT not in each for each in self._facts.owners(sentence.text))
        of_the_run = number.kind in ("time", "bytes") and not (said_otherwise or others_named)
        if not named and same and self._nobody_named and of_the_run:
            numbered = [{o for o in fact.owners if o.startswith("proposal ")} for fact in same]
            if all(numbered) and not any(CURRENT in fact.owners for fact in same):
                return min(numbered[0])
        if not same or len(named) != 1 or any(fact.owners & named[0] for fact in same):
            return ""
        compares = len(part) < len(sentence.text)
        both = named[0] | {CURRENT}
        if compares and (any(CURRENT in fact.owners for fact in same) or self._facts.follows(number, both)):
            return ""
        others = sorted(name for name in same[0].owners if not name.startswith("mesh ")) or sorted(same[0].owners)
        if others[0].startswith("record ") and _OF_RECORDS.search(sentence.text + sentence.before):
            return ""
        return others[0]

    def only_predicted(self, sentence: Sentence, number: Number, sources: Sequence[Fact]) -> bool:
        """Whether a number is called measured that only the performance model says."""
        predicted = [fact.predicted for fact in sources]
        worked_out = not self._same[sentence.start, number.start]
        if not (any(predicted) if worked_out else predicted and all(predicted)) or is_conditional(sentence, number):
            return False
        near = f"{_part(_CLAUSE, sentence.text, number.start)} {_column(sentence, number)}"
        return says_measured(near) and not says_predicted(near)


def _column(sentence: Sentence, number: Number) -> str:
    """The heading of a number's column."""
    column = sentence.text[: number.start].count("|") - (1 if sentence.text.startswith("|") else 0)
    return sentence.header[column] if 0 <= column < len(sentence.header) else ""


def _part(between: re.Pattern[str], text: str, at: int) -> str:
    """What stands around a place, up to what parts a sentence."""
    ends = [match.span() for match in between.finditer(text)]
    start = max((end for _, end in ends if end <= at), default=0)
    return text[start : min((begin for begin, _ in ends if begin > at), default=len(text))]


def shown(fact: Fact) -> str:
    """A fact as a text would print it."""
    return plain(fact.value, QUANTITIES[fact.kind])
