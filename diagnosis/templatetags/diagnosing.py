"""Parts of the diagnosis pages: text for Markdown, and what a comparison shows of an op."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django import template
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

import formatting
from diagnosis import presentation, scopes
from diagnosis.analyzer import names
from diagnosis.compare.comparison import OpChange
from experiments.templatetags import quantities

register = template.Library()

#: What Markdown would take for markup in a text of the user's program.
_MARKUP = str.maketrans({letter: f"\\{letter}" for letter in "\\*_[]<>#|~"})


@register.filter
def md(value: Any) -> str:
    """A sentence for Markdown, on one line: `code` stays code and nothing else is markup."""
    pieces = " ".join(str(value).split()).split("`")
    if len(pieces) % 2 == 0:
        return "".join(pieces).translate(_MARKUP)
    return "`".join(piece if at % 2 else piece.translate(_MARKUP) for at, piece in enumerate(pieces))


@register.filter
def mdcode(value: Any) -> str:
    text = " ".join(str(value).split()).replace("`", "'").replace("|", "\\|")
    return f"`{text}`" if text else ""


@register.filter
def mdnumber(value: Any, unit: str) -> str:
    return quantities.quantity(value, unit).replace(formatting.NBSP, " ")


@register.simple_tag
def delta_bar(change: float, scale: float) -> SafeString:
    """A change to the left (gained) or right (lost) of the middle; decorative, the number is next to it."""
    part = min(1.0, abs(change) / scale) * 50 if scale else 0.0
    x = 50.0 if change > 0 else 50.0 - part
    return format_html(
        '<svg class="delta" aria-hidden="true"><rect class="f-{}" x="{}%" width="{}%" height="100%"/>'
        '<line x1="50%" x2="50%" y1="0" y2="100%"/></svg>',
        "loss" if change > 0 else "gain", f"{x:.2f}", f"{part:.2f}",
    )  # fmt: skip


@register.simple_tag
def op_label(row: OpChange) -> SafeString:
    """What the ops are, without the wrappers of their path; the phase tells the passes of one module apart."""
    short = scopes.scope(row.label) or row.label
    phase = names.phase(row.label) if short != row.label else ""
    where = format_html(' <small class="faint">{}</small>', phase) if phase else SafeString("")
    return format_html('<span class="mono">{}</span>{}', short, where)


@register.simple_tag
def op_links(keys: Any, ranks: Mapping[str, tuple[int, str]], experiment: int) -> SafeString:
    """The ops behind a change, each leading to its page."""
    known = [ranks[key] for key in keys if key in ranks]
    return format_html_join(
        ", ", '<a class="mono" href="{}">{}</a>',
        ((reverse("op", args=[experiment, rank]), name) for rank, name in known),
    )  # fmt: skip


@register.filter
def over_roof(rows: Any) -> str:
    """Why an op, or any op of a table, reaches more than its roof; empty where none does.

    rows: an efficiency, or rows with one.
    """
    values = [row.roofline_efficiency for row in rows] if isinstance(rows, Iterable) else [rows]
    return presentation.OVER_ROOF if any(presentation.is_over_roof(value) for value in values) else ""
