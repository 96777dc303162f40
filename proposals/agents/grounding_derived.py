"""What follows from two numbers by one operation, with the right unit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations, permutations

from proposals.agents.grounding_claims import Kind
from proposals.agents.grounding_facts import CURRENT, Fact

#: (seconds, bytes, FLOPs) of a kind, as exponents.
DIMENSIONS: dict[Kind, tuple[int, int, int]] = {
    "time": (1, 0, 0), "bytes": (0, 1, 0), "flops": (0, 0, 1), "bytes_per_s": (-1, 1, 0), "flops_per_s": (-1, 0, 1),
    "intensity": (0, -1, 1), "share": (0, 0, 0), "ratio": (0, 0, 0), "bare": (0, 0, 0),
}  # fmt: skip
_PER_S = (-1, 0, 0)
#: Numbers of a paragraph or table that are set against each other; of a longer one, only those of the same sentence.
MOST_TOGETHER = 16
#: What half and twice are worked out with.
TWO = Fact(2.0, "bare", path="two")

#: (value, its kind, the numbers from which it follows).
Derived = Iterator[tuple[float, Kind, tuple[Fact, ...]]]


def results_without_operands(facts: Sequence[Fact]) -> Derived:
    """What follows without its operands' being shown: from the same quantity of two configurations, a part and its
    whole, a speed-up, or tokens and the time that they take."""
    yield from _alone(facts)
    yield from _parts(facts)
    yield from _rates(facts)
    yield from _between(facts)


def _alone(facts: Sequence[Fact]) -> Derived:
    """What a speed-up leaves of the time, and a share of its whole."""
    for fact in facts:
        if fact.kind == "ratio":
            yield from ((abs(v), "share", (fact,)) for v in (fact.value - 1, 1 - 1 / fact.value))
        elif fact.kind == "share" and fact.value < 1:
            yield 1 - fact.value, "share", (fact,)
            yield 1 / (1 - fact.value), "ratio", (fact,)


def _parts(facts: Sequence[Fact]) -> Derived:
    """Times of the step as shares of it, and bytes of a chip as shares of all that it holds or can hold."""
    steps = [fact for fact in facts if fact.kind == "time" and fact.term == "step_time_s"]
    current = next((fact for fact in steps if CURRENT in fact.owners), None)
    held: dict[tuple[str, str, frozenset[str]], list[Fact]] = defaultdict(list)
    for fact in facts:
        if fact.kind == "time":
            own = next((step for step in steps if step.owners == fact.owners), None) if fact.owners else current
            if own is not None and fact.value < own.value:
                yield fact.value / own.value, "share", (fact, own)
        elif fact.kind == "bytes" and fact.owners:
            held[fact.result, fact.path.rpartition(".")[0], fact.owners].append(fact)
    for row in held.values():
        for part, whole in permutations(row, 2):
            if part.value < whole.value and whole.path.endswith(("capacity", "total")):
                yield part.value / whole.value, "share", (part, whole)


def _rates(facts: Sequence[Fact]) -> Derived:
    """Tokens and sequences per second, of all chips and of one."""
    known = {
        key: {fact.value: fact for fact in facts if fact.path.endswith(key)}.values()
        for key in ("global_batch", "seq_len", "chips", "global_batch_tokens")
    }
    tokens = {fact.value: fact for fact in (*known["global_batch_tokens"], *known["global_batch"])}
    tokens |= {batch.value * length.value: batch for batch in known["global_batch"] for length in known["seq_len"]}
    for time in facts:
        if time.kind == "time" and time.term.startswith("step_time_s"):
            for value, fact in tokens.items():
                for chips in {chip.value for chip in known["chips"]} | {1.0}:
                    yield value / time.value / chips, "bare", (fact, time)


def _between(facts: Sequence[Fact]) -> Derived:
    """The same quantity of two configurations, set against each other."""
    terms: dict[tuple[str, Kind], dict[float, Fact]] = defaultdict(dict)
    for fact in facts:
        if fact.owners and fact.term:
            terms[fact.term, fact.kind].setdefault(fact.value, fact)
    for same in terms.values():
        for one, other in combinations(list(same.values())[:MOST_TOGETHER], 2):
            if one.owners != other.owners:
                yield from _set_against(one, other)


def _set_against(one: Fact, other: Fact) -> Derived:
    both = (one, other)
    yield abs(one.value - other.value), one.kind, both
    for value in (one.value / other.value, other.value / one.value):
        yield value, "ratio", both
        yield value, "bare", both
        yield abs(1 - value), "share", both


def operations(kind: Kind, one: Fact, other: Fact) -> Iterator[float]:
    """What follows from two numbers and has the unit of a kind."""
    a, b = one.value, other.value
    wanted, of_a, of_b = DIMENSIONS[kind], DIMENSIONS[one.kind], DIMENSIONS[other.kind]
    if of_a == of_b == wanted and one.kind == other.kind == kind:
        yield a - b
        yield a + b
    plus = tuple(x + y for x, y in zip(of_a, of_b, strict=True))
    minus = tuple(x - y for x, y in zip(of_a, of_b, strict=True))
    if plus == wanted and kind not in ("share", "ratio"):
        yield a * b
    if kind in ("share", "ratio") and one.kind != other.kind:
        if TWO in (one, other):
            yield a * b
            yield a * b / 4
        return
    if b and (minus == wanted or (kind == "bare" and minus == _PER_S)):
        yield a / b
    if a and (tuple(-x for x in minus) == wanted or (kind == "bare" and tuple(-x for x in minus) == _PER_S)):
        yield b / a
    if kind == "share" and of_a == of_b and a and b:
        yield from (1 - a / b, 1 - b / a)
