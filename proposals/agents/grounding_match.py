"""Which fact backs a number: one of its kind and value that the sentence can be about."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from operator import itemgetter

from proposals.agents.grounding_claims import Number, Sentence
from proposals.agents.grounding_evidence import Evidence
from proposals.agents.grounding_facts import Fact, Pair, axis_sizes, clauses, keyed, named, quantities, stems

#: Words that set two numbers against each other, or a part against its whole.
_COMPARES = re.compile(
    r"fast|slow|less|more|fewer|lower|higher|long|short|gain|sav|cut|reduc|drop|fall|fell|grow|rise|rose|improv|differ|"
    r"than|against|instead|compared|relative|versus|\bvs\b|→|->|over\b|extra|additional|shrink|increase|decrease|save|"
    r"times|×|better|worse|beat|ahead|behind|change",
    re.IGNORECASE,
)
_OF = re.compile(r"\bof\b|share|part|fill|full|portion|makes? up|use[sd]?\b|%", re.IGNORECASE)
_PROPOSAL = re.compile(r"(?:proposal|option|configuration|#)\s*#?(\d{1,3})\b", re.IGNORECASE)
_ORDINAL = re.compile(r"\b(first|second|third|fourth|fifth)\b", re.IGNORECASE)
_ORDINALS = ("first", "second", "third", "fourth", "fifth")
#: Keys whose numbers are set against those of another configuration; ranges are not.
_SET_AGAINST = ("estimate", "step_time_s", "speedup_per_token", "total", "confidence_share", "memory_headroom_bytes")
#: Tools that tell of the run as it was measured.
_OF_WHAT_RAN = ("kpis", "collectives", "bottleneck", "findings", "ops", "op", "run")
#: Ends of a range.
_RANGE = ("low80", "high80", "lower", "upper")
#: Parts and the wholes that they are shares of, by the end of their paths.
_WHOLES = {"hbm_per_chip_bytes": ("capacity", "total"), "breakdown_s": ("estimate", "step_time_s")}


def proposals_named(text: str) -> set[int]:
    """Numbers of proposals that a text names: `proposal 2`, `#2`, `the second proposal`."""
    found = {int(number) for number in _PROPOSAL.findall(text)}
    if re.search(r"proposal|option|recommend", text, re.IGNORECASE):
        found |= {_ORDINALS.index(word.lower()) + 1 for word in _ORDINAL.findall(text)}
    return found


class Match:
    """The facts that one sentence can be about."""

    def __init__(self, sentence: Sentence, evidence: Evidence) -> None:
        self._sentence, self._evidence = sentence, evidence
        # A sentence may hold thousands of numbers, and each is held against every fact.
        self._of_part: dict[str, frozenset[str]] = {}
        self._of_number: dict[tuple[int, str], frozenset[str]] = {}
        self._stems_of: dict[str, frozenset[str]] = {}
        self._axes_of: dict[str, frozenset[str]] = {}

    @cached_property
    def _clauses(self) -> list[tuple[int, str]]:
        return clauses(self._sentence.text)

    def _near(self, number: Number) -> str:
        """The clause of a number."""
        return self._clauses[bisect_right(self._clauses, number.start, key=itemgetter(0)) - 1][1]

    def _quantities(self, text: str) -> frozenset[str]:
        if text not in self._of_part:
            self._of_part[text] = quantities(text)
        return self._of_part[text]

    def _stems_near(self, number: Number) -> frozenset[str]:
        near = self._near(number)
        if near not in self._stems_of:
            self._stems_of[near] = stems(near)
        return self._stems_of[near]

    def facts(self, number: Number) -> list[Fact] | None:
        """The facts that back a number, those of which it follows included; None where there is none."""
        for fact in self._evidence.told:
            if (fact.kind == number.kind or "bare" in (fact.kind, number.kind)) and _same(fact.value, number):
                return [fact]
        direct = [
            fact
            for fact in self._evidence.facts
            if _kinds(number, fact) and _same(fact.value, number) and self._fits(fact, number)
        ]
        if direct:
            return direct
        return next(([one, other] for value, one, other in self._derived(number) if _same(value, number)), None)

    def nearest(self, number: Number) -> Fact | None:
        """What the results say of the same thing: most in common, of what ran unless the sentence names another, then
        nearest in value."""
        topics, axes = self._topics(number), self._axes_near(number)

        def rank(fact: Fact) -> tuple[int, bool, bool, float]:
            common = len(fact.of & topics) + bool(fact.axes & axes)
            elsewhere = not self._configurations and not fact.baseline and fact.tool not in _OF_WHAT_RAN
            return -common, fact.leaf.endswith(_RANGE), elsewhere, abs(fact.value - number.value)

        near = [f for f in self._evidence.facts if _kinds(number, f) and f.leaf != "text" and self._fits(f, number)]
        return min(near, key=rank, default=None)

    def words_of(self, fact: Fact) -> str:
        """Which configuration, op or document a fact is of."""
        if fact.baseline:
            return ", of the current configuration"
        names = sorted(f"proposal {name}" if name.isdecimal() else name for _, name in fact.about)
        return f", of {names[-1]}" if names else f", on {', '.join(sorted(fact.axes))}" if fact.axes else ""

    def _topics(self, number: Number) -> frozenset[str]:
        """The quantities that the clause speaks of, or else its sentence, what stands before it, or its heading.

        Only those that a number of this kind can be of: nobody is sure in seconds.
        """
        known = self._of_number.get((number.start, number.kind))
        if known is None:
            known = self._of_number[number.start, number.kind] = self._topics_of(number)
        return known

    def _topics_of(self, number: Number) -> frozenset[str]:
        sentence, quantities = self._sentence, self._quantities
        possible = self._evidence.quantities_of(None if number.kind == "bare" else number.kind)
        near = quantities(self._near(number))
        parts = [near, quantities(sentence.text), quantities(" ".join(sentence.header))]
        if sentence.header:
            column = sentence.text[: number.start].count("|") - (1 if sentence.text.startswith("|") else 0)
            cell = quantities(sentence.header[column]) if 0 <= column < len(sentence.header) else frozenset()
            parts.insert(0, cell | near if cell else cell)
        parts += [quantities(sentence.before), quantities(sentence.heading)]
        return next((part & possible for part in parts if part & possible), frozenset())

    @cached_property
    def _axes(self) -> frozenset[str]:
        """Axes that the sentence names."""
        words = set(re.findall(r"[A-Za-z][\w]*", self._sentence.text))
        return frozenset(words & self._evidence.axes)

    @cached_property
    def _configurations(self) -> frozenset[str]:
        """Names of the configurations that the sentence, or else what stands before it, is about."""
        for part in (self._sentence.text, self._sentence.before, self._sentence.heading):
            if found := self._named_in(part):
                return frozenset(found)
        return frozenset()

    def _named_in(self, text: str) -> set[str]:
        evidence = self._evidence
        found = set()
        for number in proposals_named(text):
            found.add(str(number))
            if number in evidence.mesh_of_proposal:
                found.add(named(evidence.mesh_of_proposal[number]))
        pairs = axis_sizes(text, evidence.axes)
        if pairs:
            for mesh in evidence.meshes:
                sizes = dict(mesh)
                if any(all(sizes.get(p.axis, 1) == p.last for p in group) for group in groups(pairs)):
                    found.add(named(mesh))
        # Alone it is what ran; in a row, or beside others, it may be a change of settings on the same mesh.
        if evidence.baseline is not None and found == {named(evidence.baseline)} and not self._sentence.header:
            found.clear()
        return found

    @cached_property
    def _ops(self) -> frozenset[str]:
        text = self._sentence.text.lower()
        return frozenset(name for name in self._evidence.ops if name in text)

    @cached_property
    def _documents(self) -> frozenset[str]:
        text = self._sentence.text.lower()
        known = (*self._evidence.records, *self._evidence.passages)
        return frozenset(key.lower() for key in known if key.lower() in text)

    def _other(self, fact: Fact) -> bool:
        """Whether a fact is of another configuration, op or document than those that the sentence names."""
        for kind, said in (("configuration", self._configurations), ("op", self._ops), ("document", self._documents)):
            own = {name for of, name in fact.about if of == kind}
            if kind == "configuration" and fact.baseline:
                continue
            if own and said and not own & said:
                return True
        return False

    def _fits(self, fact: Fact, number: Number) -> bool:
        """Whether the sentence can be about a fact: nothing it names speaks against it, and something for it."""
        if self._other(fact):
            return False
        own = {name for of, name in fact.about if of == "configuration"}
        if fact.needs_name and not own & self._configurations and not fact.baseline:
            return False
        topics = self._topics(number)
        if fact.leaf.endswith(_RANGE) and "spread" not in self._quantities(self._sentence.text) | topics:
            return False
        if any(of == "document" for of, _ in fact.about) and not self._tells_of_records(fact):
            return False
        if {name for of, name in fact.about if of == "op"} & self._ops:
            return True
        if fact.leaf == "text":
            return self._retold(fact, number)
        axes = self._axes_near(number)
        if fact.axes and axes and not fact.axes & axes:
            return False
        if fact.labels:
            near = self._stems_near(number)
            rows = self._evidence.siblings.get((fact.result, fact.path), frozenset())
            return bool(fact.labels & (near if near & rows else self._stems))
        return not topics or bool(fact.of & topics) or bool(fact.axes & axes)

    def _tells_of_records(self, fact: Fact) -> bool:
        own = {name for of, name in fact.about if of == "document"}
        return bool(own & self._documents) or "records" in self._with_before

    @cached_property
    def _with_before(self) -> frozenset[str]:
        return quantities(f"{self._sentence.text} {self._sentence.before}")

    def _retold(self, fact: Fact, number: Number) -> bool:
        """Whether the sentence, with what stands before it, tells what the text says that holds the number."""
        shared = fact.labels & self._stems
        if len(shared) < min(3, len(fact.labels)) and 2 * len(shared) < max(len(self._own_stems), 1):
            return False
        near = self._stems_near(number)
        return not near or not fact.clause or bool(near & fact.clause)

    @cached_property
    def _stems(self) -> frozenset[str]:
        sentence = self._sentence
        words = {word.lower() for word in re.findall(r"\w+", sentence.text)} & self._evidence.axes
        return stems(f"{sentence.text} {sentence.before} {sentence.heading}") | words

    @cached_property
    def _own_stems(self) -> frozenset[str]:
        return stems(self._sentence.text)

    def _axes_near(self, number: Number) -> frozenset[str]:
        """Axes named in the clause of the number, or else in the sentence."""
        near = self._near(number)
        if near not in self._axes_of:
            self._axes_of[near] = frozenset(set(re.findall(r"[A-Za-z]\w*", near)) & self._evidence.axes)
        return self._axes_of[near] or self._axes

    def _derived(self, number: Number) -> Iterator[tuple[float, Fact, Fact]]:
        """(value, and the two numbers that it follows from)."""
        text = self._sentence.text
        usable = [f for f in self._evidence.facts if f.kind and f.leaf != "text" and f.value and self._fits(f, number)]
        if _COMPARES.search(text):
            if number.kind == "share":
                for fact in usable:
                    if fact.kind == "ratio":
                        yield from (
                            (value, fact, fact) for value in (fact.value - 1, 1 - fact.value, 1 - 1 / fact.value)
                        )
                        yield 1 / fact.value - 1, fact, fact
            for one, other in self._pairs(usable):
                yield from self._between(number, one, other)
        if number.kind == "share" and _OF.search(text):
            topics = self._quantities(text)
            for part, whole in _parts(usable):
                if keyed(part.leaf) & topics:
                    yield part.value / whole.value, part, whole

    def _pairs(self, usable: Sequence[Fact]) -> Iterator[tuple[Fact, Fact]]:
        """Numbers of one result that mean the same: of what ran and a configuration, or of two that are named."""
        groups_: dict[tuple[str, str], list[Fact]] = {}
        for fact in usable:
            groups_.setdefault((fact.result, _meaning(fact)), []).append(fact)
        for (_, meaning), group in groups_.items():
            if not meaning:
                continue
            for at, one in enumerate(group):
                for other in group[at + 1 :]:
                    if one.baseline != other.baseline:
                        named_ = one if other.baseline else other
                        if one.row == other.row or self._is_meant(named_):
                            yield one, other
                    elif not one.baseline and self._both_named(one, other):
                        yield one, other

    def _is_meant(self, fact: Fact) -> bool:
        """Whether the sentence is about a fact's configuration, or the result has no other."""
        own = {name for of, name in fact.about if of == "configuration"}
        return bool(own & self._configurations) or len(self._evidence.configurations.get(fact.result, ())) == 1

    def _both_named(self, one: Fact, other: Fact) -> bool:
        sides = [{name for of, name in fact.about if of == "configuration"} for fact in (one, other)]
        return sides[0] != sides[1] and all(side & self._configurations for side in sides)

    def _between(self, number: Number, one: Fact, other: Fact) -> Iterator[tuple[float, Fact, Fact]]:
        if number.kind == one.kind:
            yield abs(one.value - other.value), one, other
        if number.kind in ("ratio", "bare"):
            yield from ((one.value / other.value, one, other), (other.value / one.value, one, other))
        if number.kind == "share":
            yield from ((abs(1 - one.value / other.value), one, other), (abs(1 - other.value / one.value), one, other))


def groups(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Pairs that name one mesh together: a later pair of the same axis begins another."""
    found: list[list[Pair]] = []
    for pair in pairs:
        if not found or any(item.axis == pair.axis for item in found[-1]):
            found.append([])
        found[-1].append(pair)
    return found


def _meaning(fact: Fact) -> str:
    """The same for the same number of two configurations; empty where it is not to be set against another."""
    keys = fact.path.split(".")
    if fact.leaf in ("before_s", "after_s", "before_share", "after_share", "before", "after"):
        return f"{'.'.join(keys[:-1])} {fact.row}"
    if fact.leaf in _SET_AGAINST:
        return "step_time_s" if fact.leaf == "estimate" else fact.leaf
    if len(keys) > 1 and keys[-2] in ("breakdown_s", "hbm_per_chip_bytes"):
        return f"{keys[-2]}.{fact.leaf}"
    return ""


def _parts(usable: Sequence[Fact]) -> Iterator[tuple[Fact, Fact]]:
    """(part, whole) of the same row of one result."""
    for fact in usable:
        keys = fact.path.split(".")
        if len(keys) < 2 or keys[-2] not in _WHOLES:
            continue
        for whole in usable:
            same = (whole.result, whole.row, whole.baseline) == (fact.result, fact.row, fact.baseline)
            if same and whole is not fact and whole.leaf in _WHOLES[keys[-2]]:
                yield fact, whole


def _kinds(number: Number, fact: Fact) -> bool:
    if number.kind == "bare":
        if number.decimals:
            return fact.kind in (None, "ratio", "share", "intensity")
        return fact.kind is None and fact.value == int(fact.value)
    return fact.kind == number.kind


def _same(value: float, number: Number) -> bool:
    return abs(abs(value) - number.value) <= number.half * (1 + 1e-9) + 1e-12 * number.value


_STEPS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_NAMES = {"bytes": "B", "bytes_per_s": "B/s", "flops": "FLOP", "flops_per_s": "FLOP/s"}


def shown(fact: Fact, like: Number | None = None) -> str:
    """A fact as a text would print it."""
    value = fact.value
    if fact.kind == "share":
        return f"{value * 100:.3g} %"
    if fact.kind == "ratio":
        return f"{value:.3g}×"
    if fact.kind == "time":
        for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
            if value >= factor:
                return f"{value / factor:.4g} {unit}"
        return f"{value:.3g} s"
    if fact.kind in _NAMES:
        factor, prefix = next(((f, p) for f, p in _STEPS if value >= f), (1.0, ""))
        return f"{value / factor:.4g} {prefix}{_NAMES[fact.kind]}"
    return f"{value:,.6g}"
