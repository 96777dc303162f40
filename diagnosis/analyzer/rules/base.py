"""A rule: a function from Facts to claims, each a finding with its evidence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from diagnosis.analyzer.facts import Facts, OpFacts, total_exposed, total_share
from diagnosis.analyzer.quantity import OPS, evidence, share_of
from diagnosis.report import Finding, SourcedValue, cited
from experiments.sentences import Sentence, say

#: Below this share of the step a cost is not worth a finding of its own.
WORTH_SAYING = 0.02

#: What an action advises, where another may advise the opposite.
SMALLER_TENSOR_AXIS, TENSOR_AXIS = "smaller tensor axis", "tensor axis"
OPPOSITE = {SMALLER_TENSOR_AXIS: TENSOR_AXIS, TENSOR_AXIS: SMALLER_TENSOR_AXIS}


@dataclass(frozen=True)
class Claim:
    """A finding before it is compared with the others.

    ops: whose time the saving is part of.  advice: a key of OPPOSITE that its action advises, empty for any other.
    """

    finding: Finding
    ops: tuple[OpFacts, ...] = ()
    advice: str = ""


Rule = Callable[[Facts], Iterable[Claim]]


#: A source line; anything else in that field is text of the user's program, and no part of our sentences.
_PLACE = re.compile(r"[\w.\-/]{1,100}(:\d+){0,2}")


def time_of(label: str, ops: Iterable[OpFacts]) -> SourcedValue:
    """Time of some ops as a share of the step (of device time where no step is known)."""
    chosen = tuple(ops)
    return share_of(label, total_share(chosen), "Σ self time ÷ step time", chosen)


def exposed_of(label: str, ops: Iterable[OpFacts]) -> SourcedValue:
    """Time of collectives or transfers in which nothing else ran, as a share of the step."""
    chosen = tuple(ops)
    timed = any(op.op.exposed_s is not None for op in chosen)
    formula = "Σ exposed time ÷ step time" if timed else "Σ self time ÷ step time"
    return share_of(label, total_exposed(chosen), formula, chosen)


def saving(facts: Facts, share: float) -> tuple[Sentence, float | None, float]:
    """(impact sentence, saving_s, saving_share): the Amdahl bound if this time vanished altogether."""
    share = min(max(share, 0.0), 0.999)
    part = share_of("upper bound on the time saved", share, "Amdahl bound")
    faster: str = ""
    if share >= 0.01:
        gain = 1.0 / (1.0 - share)
        row = evidence("upper bound on the speed-up", gain, "speedup", "computed", "1 ÷ (1 − share)", OPS)
        faster = say(", {} faster", row)
    bound = "Amdahl bound: the step without this time"
    bound += "; over the listed ops only" if facts.thin else ""
    time = facts.seconds(share)
    if time is None:
        return say("At most {} of device time{} ({}).", part, faster, bound), None, share
    spent = evidence("upper bound on the time saved per step", time, "s", "computed", "share × step time", OPS)
    return say("At most {} per step, {} of it{} ({}).", spent, part, faster, bound), time, share


def claim(
    facts: Facts,
    rule: str,
    title: str,
    insight: str,
    action: str,
    saved: float | None,
    *,
    ops: Iterable[OpFacts] = (),
    axis: str | None = None,
    impact: str = "",
    advice: str = "",
) -> Claim:
    """A claim with its saving bound; `saved` None where nothing can be bounded, then `impact` says what it is about.

    Its evidence is the values of its sentences.
    """
    time = share = None
    if saved is not None:
        bound, time, share = saving(facts, saved)
        impact = bound + " " + impact if impact else bound
    finding = Finding(rule, title, insight, action, impact, cited(insight, action, impact), time, share, axis)
    return Claim(finding, tuple(ops), advice)


def exposed(
    facts: Facts,
    rule: str,
    title: str,
    ops: tuple[OpFacts, ...],
    what: str,
    action: str,
    *,
    label: str,
    more: str = "",
    least: float = WORTH_SAYING,
    axis: str | None = None,
    advice: str = "",
) -> Iterator[Claim]:
    """A claim that collectives expose time, from a share of `least` on.

    what: the subject of its first sentence; label: of the number in it; more: what follows that sentence.  axis: by
    default where they cost most.
    """
    share = total_exposed(ops)
    if share <= 0 or share < least:
        return
    cost = exposed_of(label, ops)
    yield claim(
        facts, rule, title, say("{} expose {} {}{}{}", what, cost, facts.base, lines(ops), more or "."), action, share,
        ops=ops, axis=axis or costliest_axis_of(ops), advice=advice,
    )  # fmt: skip


def lines(ops: Iterable[OpFacts], most: int = 2) -> str:
    """`` (model.py:12, model.py:40)``: where in the program the costliest of these ops come from; empty if unknown."""
    seen: list[str] = []
    for op in sorted(ops, key=lambda op: -op.share):
        place = "/".join(op.op.source.split("/")[-2:])
        if _PLACE.fullmatch(place) and place not in seen:
            seen.append(place)
    return f" ({', '.join(seen[:most])})" if seen else ""


def leading(facts: Facts, ops: tuple[OpFacts, ...], part: float) -> bool:
    """Return whether these ops make up `part` (0–1) of the five longest, however small each is."""
    top = facts.ops[:5]
    return total_share(op for op in ops if op in top) >= part * total_share(top) > 0


def costliest_axis_of(ops: Iterable[OpFacts]) -> str | None:
    """The mesh axis these collectives are exposed on longest, ``dcn`` between slices; None where none is known."""
    costs: dict[str, float] = {}
    for op in ops:
        for axis in ("dcn",) if op.over_dcn else op.axes:
            costs[axis] = costs.get(axis, 0.0) + op.exposed_share
    return max(costs, key=lambda axis: costs[axis]) if costs else None
