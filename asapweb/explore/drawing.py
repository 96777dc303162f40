"""Intervals of Explore and Accuracy drawn on the server, as SVG in percent."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.html import format_html
from django.utils.safestring import SafeString

import formatting
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
