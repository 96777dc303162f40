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


def memory_bar(held: Memory) -> SafeString:
    """Memory per chip by part; the mark is the capacity.  What does not fit runs past the mark."""
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
    return format_html(
        '<svg class="bar bar--s" role="img" aria-label="Memory per chip by part, against capacity">'
        '<rect class="track" width="100%" height="100%"/>{}{}'
        '<rect class="hatch" x="0" width="{}" height="100%"/>{}</svg>',
        rects, gaps, bars.percent(sum(t.value for t in terms), scale), mark,
    )  # fmt: skip


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
