"""What a rule is: a function from Facts to at most a few findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from diagnosis.analyzer.facts import Facts, OpFacts, keys, total_share
from diagnosis.analyzer.quantity import evidence
from diagnosis.report import Evidence, Finding

Rule = Callable[[Facts], Iterable[Finding]]
#: Below this share of the step a cost is not worth a finding of its own.
WORTH_SAYING = 0.02

OPS = "op profile"


def time_of(facts: Facts, label: str, ops: Iterable[OpFacts], formula: str = "") -> Evidence:
    """Time of some ops as a share of the step (of device time where no step is known)."""
    chosen = tuple(ops)
    return evidence(
        label, total_share(chosen), "share", "computed", formula or "Σ self time ÷ step time", OPS, keys(chosen)
    )


def seconds_of(facts: Facts, label: str, share: float, ops: Iterable[OpFacts] = ()) -> Evidence | None:
    """The same as seconds per step and core; None where no step time is known."""
    time = facts.seconds(share)
    if time is None:
        return None
    return evidence(label, time, "s", "computed", "share × step time", OPS, keys(tuple(ops)))


def saving(facts: Facts, share: float) -> tuple[str, list[Evidence], float | None, float]:
    """(impact sentence, its evidence, saving_s, saving_share): the Amdahl bound if this time vanished altogether."""
    share = min(max(share, 0.0), 0.999)
    part = evidence("time that could be saved at most", share, "share", "computed", "Amdahl bound", OPS)
    rows = [part]
    faster = ""
    if share >= 0.01:
        gain = evidence("speed-up at most", 1.0 / (1.0 - share), "", "computed", "1 ÷ (1 − share)", OPS)
        rows.append(gain)
        faster = f", {gain}× faster"
    bound = "Amdahl bound: as if it vanished"
    bound += "; over the listed ops only" if facts.thin else ""
    time = facts.seconds(share)
    if time is None:
        return f"At most {part} of device time{faster} ({bound}).", rows, None, share
    spent = evidence("time per step that could be saved at most", time, "s", "computed", "share × step time", OPS)
    rows.append(spent)
    return f"At most {spent} per step, {part} of it{faster} ({bound}).", rows, time, share


def finding(
    facts: Facts,
    rule: str,
    title: str,
    insight: str,
    action: str,
    rows: Iterable[Evidence | None],
    saved: float | None,
    axis: str | None = None,
    impact: str = "",
) -> Finding:
    """A finding with its saving bound; `saved` None where nothing can be bounded, then `impact` says what it is
    about.
    """
    shown = [row for row in rows if row is not None]
    if saved is None:
        return Finding(rule, title, insight, action, impact, tuple(shown), None, None, axis)
    text, more, time, share = saving(facts, saved)
    return Finding(rule, title, insight, action, f"{text} {impact}".strip(), (*shown, *more), time, share, axis)


def lines(ops: Iterable[OpFacts], most: int = 2) -> str:
    """`` (model.py:12, model.py:40)``: where in the program the costliest of these ops come from; empty if unknown."""
    seen: list[str] = []
    for op in sorted(ops, key=lambda op: -op.share):
        place = "/".join(op.op.source.split("/")[-2:])
        if place and place not in seen:
            seen.append(place)
    return f" ({', '.join(seen[:most])})" if seen else ""


def plural(count: int, one: str, many: str) -> str:
    return one if count == 1 else many
