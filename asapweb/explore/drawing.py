"""Pictures of Explore and Accuracy drawn on the server: intervals and the memory treemap, as SVG in percent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

import formatting
from asapweb.explore.answer import Part
from experiments import bars


def bounds_bar(time: Mapping[str, float], scale: float) -> SafeString:
    """Bounds as a thin band, 80 % interval as a thick one, estimate as a mark, on the scale of the bars above."""
    low, width = bars.percent(time["lower"], scale), bars.percent(time["upper"] - time["lower"], scale)
    low80, width80 = bars.percent(time["low80"], scale), bars.percent(time["high80"] - time["low80"], scale)
    said = {key: formatting.by_origin(time[key], "s", "predicted") for key in ("lower", "upper", "low80", "high80")}
    words = "Bounds {lower} to {upper}, 80 % between {low80} and {high80}".format(**said)
    return format_html(
        '<svg class="bar bar--range" role="img" aria-label="{}"><rect class="bounds" x="{}" width="{}" y="35%" '
        'height="30%"/><rect class="range80" x="{}" width="{}" y="10%" height="80%"/>'
        '<line class="mark" x1="{}" x2="{}" y1="0" y2="100%"/></svg>',
        words, low, width, low80, width80, *[bars.percent(time["estimate"], scale)] * 2,
    )  # fmt: skip


def memory_map(parts: Sequence[Part]) -> SafeString:
    """The memory of a chip as a treemap; parts too small for their words are named in the table beside it."""
    boxes = format_html_join(
        "",
        '<rect class="f-{}" x="{}%" y="{}%" width="{}%" height="{}%"><title>{}: {}</title></rect>',
        (
            (
                part.term.css, *_rounded(part), part.term.label,
                str(formatting.quantity(part.term.value, "bytes")),
            )
            for part in parts
        ),
    )  # fmt: skip
    words = format_html_join(
        "",
        '<text class="{}" x="{}%" y="{}%"><tspan dy="-.25em">{}</tspan></text>'
        '<text class="{}" x="{}%" y="{}%"><tspan dy="1.1em">{}</tspan></text>',
        (
            (*_middle(part), part.term.label, *_middle(part), str(formatting.quantity(part.term.value, "bytes")))
            for part in parts
            if part.named
        ),
    )
    label = "Memory per chip by part; the table below has the numbers"
    return format_html('<svg class="treemap" role="img" aria-label="{}">{}{}</svg>', label, boxes, words)


def _rounded(part: Part) -> tuple[str, str, str, str]:
    box = part.box
    return f"{box.x:.3f}", f"{box.y:.3f}", f"{box.width:.3f}", f"{box.height:.3f}"


def _middle(part: Part) -> tuple[str, str, str]:
    box = part.box
    css = "on-free" if part.term.key == "free" else "on-mem"
    return css, f"{box.x + box.width / 2:.3f}", f"{box.y + box.height / 2:.3f}"
