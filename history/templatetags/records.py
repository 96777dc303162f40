"""Small parts of the optimization database's pages: badges, the effect and its bar."""

from __future__ import annotations

from math import log2
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

import formatting
from experiments import bars
from experiments.templatetags.components import badge
from history.services import search

register = template.Library()

#: The bar of an effect ends here, either way.
_LONGEST = 4.0
_OUTCOME_KINDS = {"faster": "ready", "slower": "failed", "failed": "failed", "no_change": "plain", "not_timed": "plain"}
#: Where the ratio of two figures comes from.
_ORIGINS = {
    "measured": "two profiles of this installation",
    "published": "ratio of two published figures",
    "imported": "ratio of two figures of the import",
}


@register.simple_tag
def outcome_badge(record: Any) -> SafeString:
    """How the change ended, as a pill with a word; a failure says what kind."""
    word = record.outcome if record.failure == "other" else record.failure or record.outcome
    return badge(search.label("outcome", word).capitalize(), _OUTCOME_KINDS.get(record.outcome, "plain"))


@register.simple_tag
def provenance_badge(record: Any) -> SafeString:
    word = search.label("provenance", record.provenance)
    return badge(word.capitalize(), "measured" if record.provenance == "measured" else "plain")


@register.simple_tag
def effect(record: Any, bar: bool = False) -> SafeString:
    """Return the speed-up with its source as a tooltip, and as a bar; why there is none otherwise."""
    if record.speedup is None:
        words = "did not run" if record.outcome == "failed" else "no figure"
        return format_html('<span class="faint">{}</span>', words)
    css = {"faster": "gain", "slower": "loss"}.get(record.outcome, "")
    how = ", ".join(filter(None, (_ORIGINS.get(record.provenance), record.measure)))
    text = str(formatting.quantity(record.speedup, "speedup"))
    drawn = _effect_bar(record) if bar else ""
    return format_html('<span class="nowrap big {}" title="{}">{}</span>{}', css, how, text, drawn)


def _effect_bar(record: Any) -> SafeString:
    """The speed-up from the middle: to the right faster, to the left slower, by doublings; decorative."""
    if not record.speedup:
        return SafeString("")
    length = min(1.0, abs(log2(record.speedup)) / log2(_LONGEST)) / 2
    start = 0.5 if record.speedup >= 1 else 0.5 - length
    return format_html(
        '<svg class="bar bar--s effect" aria-hidden="true"><rect class="f-soft" x="50%" width="1" height="100%"/>'
        '<rect class="{}" x="{}" width="{}" height="100%"/></svg>',
        "f-ink" if record.speedup >= 1 else "f-mute", bars.percent(start, 1.0), bars.percent(length, 1.0),
    )  # fmt: skip


@register.filter
def facet_label(value: str, facet: str) -> str:
    """A facet's value as a reader names it: `xla_flags` is XLA flags."""
    return search.label(facet, value)
