"""Small parts that pages share: icons, state badges, mesh chips, bars."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from django import template
from django.templatetags.static import static
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

import formatting
from experiments import bars
from experiments.models import Experiment, RunStatus
from perfmodel.config import shown_sizes

register = template.Library()

#: For marks that a page repeats a hundred times.  typed: text that is marked safe is another than the same that is not.
drawn_once = lru_cache(maxsize=1024, typed=True)

BOTTLENECK_CLASS = {
    "compute": "compute", "memory": "hbm", "communication": "ici", "input": "host", "host": "host",
    "idle": "idle", "unknown": "idle",
}  # fmt: skip
_ROLE_WORDS = {"failed": "failed", "ready": "ready", "configuring": "review"}


@register.simple_tag
@drawn_once
def icon(name: str, size: int = 16, css: str = "") -> SafeString:
    """A decorative icon; its words are next to it."""
    return format_html(
        '<svg width="{0}" height="{0}" class="{3}" aria-hidden="true"><use href="{1}#{2}"/></svg>',
        size, static("icons.svg"), name, css,
    )  # fmt: skip


@register.simple_tag
@drawn_once
def badge(word: str, kind: str = "plain") -> SafeString:
    return format_html('<span class="badge badge--{}">{}</span>', kind, word)


@register.simple_tag
def state_badge(experiment: Experiment, reviewing: bool = False, approved: bool = False) -> SafeString:
    """An experiment's state as a pill with a word; a ready one says whether it waits for a decision."""
    state = experiment.state
    if state == RunStatus.READY:
        if approved:
            return badge("Approved", "measured")
        return badge("Needs review", "review") if reviewing else badge("Ready", "ready")
    return badge(RunStatus(state).label, _ROLE_WORDS.get(state, "running"))


@register.simple_tag
@drawn_once
def bottleneck(name: str) -> SafeString:
    """A bottleneck with its resource's square."""
    return format_html(
        '<span class="res"><span class="sw {}" aria-hidden="true"></span>{}</span>',
        BOTTLENECK_CLASS.get(name, "idle"), "HBM bandwidth" if name == "memory" else name,
    )  # fmt: skip


_BOTTLENECK_WORDS = {
    "compute": "Compute-bound", "memory": "HBM-bound", "communication": "Communication-bound", "input": "Input-bound",
    "host": "Host-bound", "idle": "Dominated by idle time", "unknown": "Bottleneck not determined",
}  # fmt: skip


@register.simple_tag
def bottleneck_words(name: str) -> str:
    return _BOTTLENECK_WORDS.get(name, name)


@register.simple_tag
def resource_class(op: Any, experiment: Experiment) -> str:
    """Colour class of an op's resource; ICI takes the shade of the role that its axis has in this experiment."""
    if op.resource == "ici":
        return bars.axis_class(op.mesh_axis, experiment.axis_roles) if op.mesh_axis else "ici"
    return op.resource if op.resource in ("compute", "hbm", "dcn", "host", "idle") else "idle"


@register.simple_tag
def resource(css: str, label: str) -> SafeString:
    return format_html('<span class="res"><span class="sw {}" aria-hidden="true"></span>{}</span>', css, label)


def _sizes(mesh: Mapping[str, Any] | None) -> list[tuple[str, int]]:
    """Axes as pages name them: ICI by its name, DCN as `dcn.name`; DCN axes of size one are not worth a word."""
    return list(shown_sizes(mesh or {}).items())


@register.simple_tag
def mesh_chip(mesh: Mapping[str, Any] | None, before: Mapping[str, Any] | None = None, ones: bool = True) -> SafeString:
    """`data 8 · seq 16 · model 2`; what differs from `before` is marked.  ones=False leaves axes of size one out."""
    axes = _sizes(mesh)
    if not axes:
        return SafeString('<span class="faint">no mesh</span>')
    old = dict(_sizes(before))
    if before is not None:
        seen = {axis for axis, _ in axes}
        axes += [(axis, 1) for axis, size in old.items() if axis not in seen and size != 1]
    rows = []
    for axis, size in axes:
        changed = before is not None and old.get(axis, 1) != size
        if size == 1 and not ones and not changed:
            continue
        rows.append(("chg" if changed else "one" if size == 1 else "", axis, size))
    if not rows:
        rows = [("one", axes[0][0], axes[0][1])]
    spans = format_html_join(" ", '<span class="{}">{} <b>{}</b></span>', rows)
    return format_html('<span class="mesh">{}</span>', spans)


@register.simple_tag
def hardware(config: Mapping[str, Any] | None) -> str:
    """`v5e · 16×16 · 256 chips`, with slices where there are several."""
    parts = (config or {}).get("hardware") or {}
    dims, slices = parts.get("topology") or [], parts.get("slices") or 1
    if not parts.get("chip"):
        return ""
    chips = slices
    for dim in dims:
        chips *= dim
    text = f"{parts['chip']} · {formatting.topology(dims)}" if dims else str(parts["chip"])
    if slices > 1:
        text += f" · {slices} slices"
    return f"{text} · {formatting.counted(chips, 'chip')}" if dims else text


@register.simple_tag
def stack_bar(
    terms: list[bars.Term],
    scale: float,
    label: str = "",
    predicted: bool = False,
    low: float | None = None,
    high: float | None = None,
    css: str = "",
    unit: str = "s",
) -> SafeString:
    """Terms end to end on a common scale; hatched where predicted, with a whisker for its interval."""
    drawn = bars.segments(terms, scale)
    origin = "predicted" if predicted else ""
    rects = format_html_join(
        "",
        '<rect class="f-{}" x="{}" width="{}" height="100%"><title>{}: {}</title></rect>',
        (
            (s.term.css, s.x, s.width, s.term.label, str(formatting.by_origin(s.term.value, unit, origin)))
            for s in drawn
        ),
    )
    gaps = format_html_join("", '<rect class="gap" x="{}" width="1" height="100%"/>', ((s.x,) for s in drawn[1:]))
    extra = SafeString("")
    if predicted:
        total = bars.percent(sum(t.value for t in terms), scale)
        extra = format_html('<rect class="hatch" x="0" width="{}" height="100%"/>', total)
    if low is not None and high is not None:
        a, b = bars.percent(low, scale), bars.percent(high, scale)
        for whisker in ("whisk whisk--halo", "whisk"):  # the wide one below keeps the other in sight on dark bars
            extra += format_html(
                '<line class="{2}" x1="{0}" x2="{1}" y1="50%" y2="50%"/><line class="{2}" x1="{0}" x2="{0}" y1="20%" '
                'y2="80%"/><line class="{2}" x1="{1}" x2="{1}" y1="20%" y2="80%"/>',
                a, b, whisker,
            )  # fmt: skip
    role = format_html('role="img" aria-label="{}"', label) if label else SafeString('aria-hidden="true"')
    return format_html('<svg class="bar {}" {}>{}{}{}</svg>', css, role, rects, gaps, extra)


@register.simple_tag
def share_bar(
    share: float | None, css: str = "ink", scale: float = 1.0, track: bool = False, mark: float | None = None
) -> SafeString:
    """A single bar of a table cell; decorative, since the number is next to it.

    track: the whole scale is seen, so that the bar is a part of it; mark: a second value, as a line.
    """
    parts = SafeString('<rect class="f-soft" width="100%" height="100%"/>' if track else "")
    parts += format_html('<rect class="f-{}" width="{}" height="100%"/>', css, bars.percent(share or 0.0, scale))
    if mark is not None:
        parts += format_html('<line class="mark" x1="{0}" x2="{0}" y1="-2" y2="10"/>', bars.percent(mark, scale))
    return format_html(
        '<svg class="cellbar{}" aria-hidden="true">{}</svg>', " errbar" if mark is not None else "", parts
    )


@register.filter
def late_choice(facet: Any, shown: int) -> bool:
    """Whether a value below the first `shown` is chosen, so that they must be in sight."""
    return any(value.chosen for value in facet.values[shown:])
