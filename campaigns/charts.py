"""Charts of a campaign, drawn on the server: lines in a box that stretches, points and words in percent."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from campaigns.presentation import Parallel
from campaigns.trajectory import FAILED, Mark, Trajectory

#: Of dots, in pixels.
_RADIUS = {"better": 5, "worse": 4, "open": 4}


def trajectory(drawn: Trajectory) -> SafeString:
    """Step time by trial: the interval predicted before it as a bar, a dot where it ran, a cross where it failed; the
    best so far as a line."""
    grid = format_html_join(
        "",
        '<line class="cm-grid" x1="0" x2="100%" y1="{}%" y2="{}%"/>'
        '<text class="cm-label" x="0" y="{}%" dx="-8" dy="4">{}</text>',
        ((*[_pct(mark.y)] * 3, mark.label) for mark in drawn.marks if mark.kind == "grid"),
    )
    ticks = format_html_join(
        "",
        '<text class="cm-label cm-label--tick" x="{}%" y="100%" dy="16">{}</text>',
        ((_pct(x), f"{number:,}") for x, number in drawn.ticks),
    )
    bars = format_html_join(
        "",
        '<line class="cm-interval" x1="{}%" x2="{}%" y1="{}%" y2="{}%"/>'
        '<svg class="cm-at" x="{}%" y="{}%"><path class="cm-predicted" d="M-6 0H6"/></svg>',
        (
            (*[_pct(p.x)] * 2, _pct(p.interval.top), _pct(p.interval.bottom), _pct(p.x), _pct(p.interval.predicted))
            for p in drawn.points
            if p.interval
        ),
    )
    lines = format_html_join(
        "",
        '<line class="cm-{}" x1="0" x2="100%" y1="{}%" y2="{}%"/>',
        ((mark.kind, _pct(mark.y), _pct(mark.y)) for mark in drawn.marks if mark.kind != "grid"),
    )
    names = format_html_join(
        "",
        '<text class="cm-label cm-label--{}" x="{}" y="{}%" dy="{}">{}</text>',
        (
            (mark.kind, *_place(mark), mark.label)
            for mark in (*drawn.marks, drawn.best_label)
            if mark.kind != "grid"
        ),
    )  # fmt: skip
    dots = format_html_join(
        "",
        '<circle class="cm-{}" cx="{}%" cy="{}%" r="{}"><title>{}</title></circle>',
        (
            (p.kind, _pct(p.x), _pct(p.y), _RADIUS[p.kind], p.title)
            for p in drawn.points
            if p.kind != "failed"
        ),
    )  # fmt: skip
    crosses = format_html_join(
        "",
        '<text class="cm-failed" x="{}%" y="{}%" dy="5">×<title>{}</title></text>',
        ((_pct(p.x), _pct(p.y), p.title) for p in drawn.points if p.kind == "failed"),
    )
    lane = format_html('<text class="cm-label cm-label--failed" x="0" y="{}%" dx="-8" dy="4">failed</text>', FAILED)
    label = (
        f"Step time by trial on a logarithmic axis, {drawn.total} trials; the same numbers are in the table of trials"
    )
    return format_html(
        '<div class="cm-plot"><svg class="cm-chart" role="img" aria-label="{}">{}{}{}{}{}{}{}{}{}</svg></div>',
        label, grid, lane if drawn.failed else "", ticks, bars, lines, _line(drawn.best, "cm-best"), dots, crosses,
        names,
    )  # fmt: skip


def _place(mark: Mark) -> tuple[str, str, int]:
    """Where its words stand, so that those of two lines seldom meet: left in percent, top in percent, pixels below."""
    return "50%" if mark.kind == "expert" else "100%", _pct(mark.y), 15 if mark.kind == "best" else -6


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
