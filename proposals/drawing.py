"""Pictures of proposals, drawn on the server: time and memory as bars, the reliability of confidences as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

import formatting
from experiments import bars
from proposals.plan import Memory
from proposals.reliability import Group


def memory_bar(held: Memory, measured: bool = False) -> SafeString:
    """Memory per chip by part, hatched unless measured; the mark is the capacity.  What does not fit runs past it."""
    terms = bars.memory_terms(vars(held))
    capacity, total = held.capacity, held.total or sum(t.value for t in terms)
    if not terms and total:
        terms = [bars.Term("total", "Total", "mem-1", total)]
    scale = max(capacity, total)
    drawn = bars.segments(terms, scale)
    rects = format_html_join(
        "",
        '<rect class="f-{}" x="{}" width="{}" height="100%"><title>{}: {}</title></rect>',
        ((s.term.css, s.x, s.width, s.term.label, str(formatting.quantity(s.term.value, "bytes"))) for s in drawn),
    )
    gaps = format_html_join("", '<rect class="gap" x="{}" width="1" height="100%"/>', ((s.x,) for s in drawn[1:]))
    mark = SafeString("")
    if capacity:
        at = bars.percent(capacity, scale)
        mark = format_html('<line class="mark" x1="{0}" x2="{0}" y1="-3" y2="13"/>', at)
    filled = bars.percent(sum(t.value for t in terms), scale)
    hatch = "" if measured else format_html('<rect class="hatch" x="0" width="{}" height="100%"/>', filled)
    return format_html(
        '<svg class="bar bar--s" role="img" aria-label="Memory per chip by part, against capacity">'
        '<rect class="track" width="100%" height="100%"/>{}{}{}{}</svg>',
        rects, gaps, hatch, mark,
    )  # fmt: skip


#: Pixels of the column that shows a step: its height, where the names of its terms begin, and where their
#: times and changes end.
_HEIGHT, _NAMES, _TIMES, _CHANGES = 102, 50, 160, 214
#: Least distance of two lines of text.
_LINE = 13


def step_column(side: Any, baseline: Any, scale_s: float) -> SafeString:
    """A step as a stack of its terms on the scale of all columns, with the interval of its time; dashed: the baseline.

    Beside each term its time and, for a proposal, what is predicted to come or go.
    """
    is_baseline = side is baseline
    origin = side.parts if is_baseline else "predicted"
    now = {part.key: part.value for part in baseline.terms}

    def y(seconds: float) -> float:
        return _HEIGHT * (1.0 - seconds / scale_s)

    rects, lines, top, below = [], [], 0.0, float(_HEIGHT + _LINE)
    for part in side.terms:
        start, top = top, top + part.value
        shown = str(formatting.by_origin(part.value, "s", origin))
        rects.append((part.css, f"{y(top):.1f}", f"{y(start) - y(top):.1f}", part.label, shown))
        if part.value < 0.01 * scale_s:
            continue
        at = min((y(start) + y(top)) / 2 + 4, below - _LINE, _HEIGHT - 1.0)
        below = at
        change = part.value - now.get(part.key, 0.0)
        is_seen = not is_baseline and abs(change) >= 0.01 * part.value
        moved = formatting.with_sign(change, str(formatting.by_origin(change, "s", "predicted"))) if is_seen else ""
        lines.append((_NAMES, f"{at:.1f}", _short(part), _TIMES, shown, _CHANGES, moved))
    drawn = format_html_join("", '<rect class="f-{}" y="{}" width="34" height="{}"><title>{}: {}</title></rect>', rects)
    drawn += format_html_join("", '<rect class="gap" y="{}" width="34" height="1"/>', ((y,) for _, y, *_ in rects[:-1]))
    if origin == "predicted" and rects:
        height = f"{_HEIGHT - y(top):.1f}"
        drawn += format_html('<rect class="hatch" y="{}" width="34" height="{}"/>', f"{y(top):.1f}", height)
    names = format_html_join(
        "",
        '<text x="{}" y="{}">{}</text><text class="v" x="{}" y="{}">{}</text><text class="d" x="{}" y="{}">{}</text>',
        ((x, at, name, end, at, time, far, at, moved) for x, at, name, end, time, far, moved in lines),
    )
    if side.low_s is not None and side.high_s is not None and side.low_s < side.high_s:
        low, high = f"{y(side.low_s):.1f}", f"{y(side.high_s):.1f}"
        drawn += format_html(
            '<path class="whisk" d="M38 {low}h8M38 {high}h8M42 {low}V{high}"/>', low=low, high=high
        )  # fmt: skip
    if baseline.time_s:
        drawn += format_html('<line class="dash" x1="0" x2="100%" y1="{0}" y2="{0}"/>', f"{y(baseline.time_s):.1f}")
    return format_html(
        '<svg class="stepcol{}" height="{}" role="img" aria-label="{}">{}{}</svg>',
        "" if origin == "measured" else " p", _HEIGHT + 1,
        ", ".join(f"{label} {shown}" for _, _, _, label, shown in rects) or "no breakdown", drawn, names,
    )  # fmt: skip


def _short(part: bars.Term) -> str:
    """The label of a term in a column: the axes of collectives, the others in lower case but for abbreviations."""
    label = part.label.removeprefix("Collectives on ")
    return label if label.isupper() or label != part.label else label[0].lower() + label[1:]


def range_bar(side: Any, baseline: Any, scale_s: float) -> SafeString:
    """A predicted time as a mark within its 80 % interval; the baseline is dashed."""
    at = bars.percent(side.time_s or 0.0, scale_s)
    parts = SafeString("")
    if side.low_s is not None and side.high_s is not None:
        low = bars.percent(side.low_s, scale_s)
        width = bars.percent(side.high_s - side.low_s, scale_s)
        parts += format_html('<rect class="range" x="{}" width="{}" height="100%"/>', low, width)
    parts += format_html('<line class="mark" x1="{0}" x2="{0}" y1="-2" y2="12"/>', at)
    words = f"predicted {formatting.by_origin(side.time_s or 0.0, 's', 'predicted')}"
    if baseline.time_s:
        base = bars.percent(baseline.time_s, scale_s)
        parts += format_html('<line class="dash" x1="{0}" x2="{0}" y1="-5" y2="15"/>', base)
        words += f", baseline {formatting.by_origin(baseline.time_s, 's', baseline.origin)}"
    return format_html(
        '<svg class="bar bar--s" role="img" aria-label="{}"><rect class="track" width="100%" height="100%"/>{}</svg>',
        words, parts,
    )  # fmt: skip


def _reliability(group: Group) -> str:
    return f"stated {formatting.probability(group.stated)}, came {formatting.share(group.came, 2)} of {group.results}"


def reliability_plot(groups: Sequence[Group]) -> SafeString:
    """Stated confidence (across) against the share that came (upwards), 0 to 1; the diagonal is perfect."""
    parts = SafeString("")
    for group in groups:
        x = f"{100 * group.stated:.1f}"
        parts += format_html(
            '<g><title>{}</title><line class="reach" x1="{x}" x2="{x}" y1="{}" y2="{}"/>'
            '<circle class="f-measured" cx="{x}" cy="{}" r="2.2"/></g>',
            _reliability(group), f"{100 - 100 * group.low:.1f}", f"{100 - 100 * group.high:.1f}",
            f"{100 - 100 * group.came:.1f}",
            x=x,
        )  # fmt: skip
    said = "; ".join(map(_reliability, groups))
    return format_html(
        '<svg class="relplot" viewBox="-1 -1 102 102" role="img" aria-label="Reliability: {}">'
        '<rect class="field" width="100" height="100"/><line class="ideal" x1="0" y1="100" x2="100" y2="0"/>'
        "{}</svg>",
        said, parts,
    )  # fmt: skip
