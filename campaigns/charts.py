"""Charts of a campaign, drawn on the server: lines in a box that stretches, points and words in percent."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from campaigns.presentation import Parallel, Trajectory


def trajectory(drawn: Trajectory) -> SafeString:
    """Step time by trial: a dot where it ran, a cross where it failed, the best so far as a line."""
    marks = format_html_join(
        "",
        '<line class="cm-{}" x1="0" x2="100%" y1="{}%" y2="{}%"/><text class="cm-label cm-label--{}" x="{}" y="{}%" '
        'dy="-3">{}</text>',
        (
            (m.kind, _pct(m.y), _pct(m.y), m.kind, "100%" if m.kind == "grid" else "50%", _pct(m.y), m.label)
            for m in drawn.marks
        ),
    )
    dots = format_html_join(
        "",
        '<circle class="cm-{}" cx="{}%" cy="{}%" r="{}"><title>{}</title></circle>',
        (
            (p.kind, _pct(p.x), _pct(p.y), 4 if p.kind == "better" else 3, p.title)
            for p in drawn.points
            if p.kind != "failed"
        ),
    )
    crosses = format_html_join(
        "",
        '<text class="cm-failed" x="{}%" y="{}%" dy="4">×<title>{}</title></text>',
        ((_pct(p.x), _pct(p.y), p.title) for p in drawn.points if p.kind == "failed"),
    )
    label = (
        f"Step time by trial on a logarithmic axis, {drawn.total} trials; the same numbers are in the table of trials"
    )
    return format_html(
        '<svg class="cm-chart" role="img" aria-label="{}">{}{}{}{}</svg>',
        label, marks, _line(drawn.best, "cm-best"), crosses, dots,
    )  # fmt: skip


def parallel(drawn: Parallel) -> SafeString:
    """A line per trial over its parameters to its step time."""
    lines = format_html_join(
        "",
        '<polyline class="cm-line cm-line--{}" points="{}"><title>{}</title></polyline>',
        ((line.kind, _points(line.corners), line.title) for line in drawn.lines),
    )
    axes = format_html_join(
        "",
        '<line class="cm-axis" x1="{}%" x2="{}%" y1="8%" y2="86%"/><text class="cm-name" x="{}%" y="97%">{}</text>',
        ((_pct(axis.x), _pct(axis.x), _pct(axis.x), axis.name.replace("_", " ")) for axis in drawn.axes),
    )
    ticks = format_html_join(
        "",
        '<text class="cm-tick" x="{}%" y="{}%" dy="-2">{}</text>',
        ((_pct(axis.x), _pct(top), words) for axis in drawn.axes for top, words in axis.ticks),
    )
    label = f"Parallel coordinates of {len(drawn.lines)} trials; the same numbers are in the table of trials"
    return format_html(
        '<svg class="cm-chart cm-chart--tall" role="img" aria-label="{}">'
        '<svg viewBox="0 0 100 100" preserveAspectRatio="none">{}</svg>{}{}</svg>',
        label, lines, axes, ticks,
    )  # fmt: skip


def _line(corners: Sequence[tuple[float, float]], css: str) -> SafeString:
    return format_html(
        '<svg viewBox="0 0 100 100" preserveAspectRatio="none"><polyline class="{}" points="{}"/></svg>',
        css, _points(corners),
    )  # fmt: skip


def _points(corners: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{_pct(x)},{_pct(y)}" for x, y in corners)


def _pct(value: float) -> str:
    return f"{value:.2f}"
