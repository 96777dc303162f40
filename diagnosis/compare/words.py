"""The comparison in sentences; every number in them is a `SourcedValue`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from diagnosis.analyzer.quantity import evidence
from diagnosis.analyzer.statement import bar_words
from diagnosis.compare.comparison import Comparability, ConfigChange, OpChange, TermChange
from diagnosis.compare.sides import ONE_SIDED_LIMITS, Side
from diagnosis.report import SourcedValue
from experiments.sentences import join, say

_TERMS = {
    "compute": "compute", "hbm": "ops bound by HBM", "host": "the host", "input": "input", "idle": "idle time",
    "other": "other work",
}  # fmt: skip
#: A change below this part of the time before is not worth a sentence.
WORTH_SAYING = 0.005


def term_words(term: str) -> str:
    return f"collectives on {bar_words(term)}" if term.startswith(("ici", "dcn")) else _TERMS.get(term, term)


def state(
    fit: Comparability,
    sides: tuple[Side, Side],
    totals: tuple[float | None, float | None],
    significant: bool | None,
    changed: Sequence[ConfigChange],
    terms: Sequence[TermChange],
    ops: Sequence[OpChange],
    matched: tuple[float, float],
) -> tuple[str, ...]:
    """Sentences on what changed; the evidence of each is in its values."""
    said: list[str] = []

    def number(
        label: str, value: float, unit: str, origin: str = "computed", formula: str = "", keys: Sequence[str] = ()
    ) -> SourcedValue:
        return evidence(label, value, unit, origin, formula, "both profiles", keys)

    unit = "share" if fit.basis == "share" else "s"
    per = {"step": "per step", "token": "of chip time per token", "share": "of the step"}[fit.basis]
    was, now = totals
    if fit.basis != "share" and was and now:
        one = number("before", was, unit, "measured" if fit.basis == "step" else "computed")
        two = number("after", now, unit, "measured" if fit.basis == "step" else "computed")
        noun = "The step takes" if fit.basis == "step" else "A token takes"
        after = "" if fit.basis == "step" else " of chip time"
        if significant is False:
            said.append(
                say("{} {}{} instead of {}: the difference is within step-time variation.", noun, two, after, one)
            )
        elif now == was:
            said.append(say("{} {}{}, unchanged.", noun, two, after))
        else:
            faster = number(
                "speed-up" if was > now else "slow-down",
                max(was / now, now / was),
                "speedup",
                formula="longer ÷ shorter",
            )
            word = "faster" if was > now else "slower"
            said.append(say("{} {}{} instead of {}: {} {}.", noun, two, after, one, faster, word))
        said += _moved(terms, was, per, unit, number)
    elif fit.basis == "share":
        said.append("Times are not comparable; the following are shares of each run's own step.")
        said += _moved(terms, 1.0, per, unit, number)
    if changed:
        said.append(f"The configurations differ in {_listed([item.field for item in changed], 5)}.")
    elif sides[0].config is not None and sides[1].config is not None:
        said.append("The configurations are the same.")
    whole = 1.0 if fit.basis == "share" else was or 0.0
    largest = [op for op in ops if abs(op.change) >= WORTH_SAYING * whole > 0]
    verbs = ("Largest gain:", "Largest loss:")
    if fit.basis == "share":  # of other work, a smaller share is no gain
        verbs = ("Largest drop in share:", "Largest rise in share:")
    for sign, verb in zip((-1, 1), verbs, strict=True):
        if best := next((op for op in largest if op.change * sign > 0), None):
            keys = (*best.before_ops, *best.after_ops)
            amount = number(f"change of {best.label}", abs(best.change), unit, keys=keys, formula="|after − before|")
            alone = {"after": " (not in the second profile)", "before": " (not in the first profile)"}
            where = next((text for side, text in alone.items() if getattr(best, side) is None), "")
            said.append(say("{} {}: {} {}{}.", verb, _short(best), amount, per, where))
    if ops:
        least = number("op time matched in the other run", min(matched), "share", formula="least of both runs")
        said.append(say("Ops that take {} of the time have a match in the other run.", least))
    a, b = (side.diagnosis.bottleneck.primary for side in sides)
    if "unknown" in (a, b):
        one_sided = sides[0].measures_limits != sides[1].measures_limits
        said.append(ONE_SIDED_LIMITS if one_sided else "The bottleneck of at least one run is unknown.")
    else:
        said.append(f"Both runs are bound by {a}." if a == b else f"The bottleneck moved from {a} to {b}.")
    return tuple(said)


def _short(op: OpChange) -> str:
    """The last two parts of a framework path, and what kind of collective it is."""
    name = "/".join(op.label.rsplit("/", 2)[-2:])
    return f"the {op.collective} of {name}" if op.collective and not name.startswith(op.collective) else name


def _moved(
    terms: Sequence[TermChange], whole: float, per: str, unit: str, number: Callable[..., SourcedValue]
) -> list[str]:
    parts: dict[int, list[str]] = {-1: [], 1: []}
    for term in sorted(terms, key=lambda item: -abs(item.change))[:6]:
        if abs(term.change) >= WORTH_SAYING * whole:
            row = number(f"change of {term_words(term.term)}", abs(term.change), unit, formula="|after − before|")
            parts[1 if term.change > 0 else -1].append(say("{} ({} {})", term_words(term.term), row, per))
    said: list[str] = []
    if parts[-1]:
        said.append(say("Less time is spent in {}.", _listed(parts[-1], 6)))
    if parts[1]:
        said.append(say("More time is spent in {}.", _listed(parts[1], 6)))
    return said


def _listed(words: Sequence[str], most: int) -> str:
    shown = list(words[:most])
    if len(words) > most:
        shown.append("more")
    return shown[0] if len(shown) == 1 else say("{} and {}", join(", ", shown[:-1]), shown[-1])
