"""Numbers on pages: formatted, marked with where they come from, and linked to their evidence."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from django import template
from django.utils import timezone
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

import formatting
from experiments.sentences import Value, spans_of, values

register = template.Library()

ORIGINS = {
    "measured": ("m", "M", "Measured"),
    "computed": ("c", "C", "Computed"),
    "predicted": ("p", "P", "Predicted"),
}


def parameters(value: float) -> str:
    """Of a model: `8 B`, `1.02 T`."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if value >= size:
            return f"{formatting.significant(value / size)}{formatting.NBSP}{letter}"
    return formatting.number(value) if value else "–"


def percent(value: float, decimals: int) -> str:
    """With the decimals of its column, at most three significant digits."""
    shown = float(f"{value * 100:.2e}") if abs(value) >= 1 else value * 100
    rounded = round(shown, decimals) + 0.0  # no −0.0
    return f"{formatting.number(rounded, 0 if abs(shown) >= 100 else decimals)}{formatting.NBSP}%"


def against_prediction(value: float) -> str:
    """How a measured value compares with the predicted one: `7 % less than predicted`."""
    size = abs(value)
    if size < 0.005:
        return "as predicted"
    return f"{percent(size, 1 if size < 0.1 else 0)} {'more' if value > 0 else 'less'} than predicted"


#: An efficiency above this is shown as a bound: digits beyond it would be false precision.
LARGEST_EFFICIENCY = 10.0


def efficiency(value: float) -> str:
    """Of the roofline: `81.8 %`; `> 1,000 %` where bytes or FLOPs were counted at an op that did not move them."""
    known = value <= LARGEST_EFFICIENCY
    return str(formatting.share(value)) if known else f"> {formatting.share(LARGEST_EFFICIENCY)}"


#: Units of pages alone, beside those of `formatting.quantity`.
_MORE_UNITS: dict[str, Callable[[float], object]] = {
    "s_per_token": formatting.seconds,
    "ms": lambda value: formatting.seconds(value / 1e3),
    "duration": formatting.duration,
    "usd": formatting.dollars,
    "correlation": lambda value: formatting.number(value, 2),
    "parameters": parameters,
    # A column in percent has the same decimals in every row.
    "percent": lambda value: percent(value, 1),
    "whole_percent": lambda value: percent(value, 0),
    "width": lambda value: f"{min(max(value, 0.0), 1.0) * 100:.1f}%",
    "against_prediction": against_prediction,
    "efficiency": efficiency,
}


@register.filter
def quantity(value: float | None, unit: str) -> str:
    """`{{ op.time_s|quantity:"s" }}`; an absent value is an en dash for tables where the column says why."""
    if value is None:
        return "–"
    return str(_MORE_UNITS[unit](value) if unit in _MORE_UNITS else formatting.quantity(float(value), unit))


@register.simple_tag
def by_origin(value: float | None, unit: str, origin: str) -> str:
    """`{% by_origin side.time_s "s" side.origin %}`: with the digits that its origin allows."""
    return "–" if value is None else str(formatting.by_origin(float(value), unit, origin))


@register.filter
def predicted(value: float | None, unit: str) -> str:
    """`{{ time.estimate|predicted:"s" }}`."""
    return by_origin(value, unit, "predicted")


@register.simple_tag
def predicted_range(low: float, high: float, unit: str) -> str:
    """`{% predicted_range time.low80 time.high80 "s" %}`: `2.0–2.5 s`."""
    return formatting.span(low, high, unit, 2)


@register.filter
def predicted_change(value: float, unit: str) -> str:
    """A change to what is predicted: `−2.2 s`, `0`."""
    text = predicted(value, unit)
    return "0" if abs(value) < 1e-9 else formatting.with_sign(value, text)


@register.filter
def signed(value: float, unit: str) -> str:
    """A change: `+646 ms`, `−2,040 ms`, `0`; of shares, percentage points of the step; `percent`: of the value itself.

    A column in percent has one decimal; `difference` has it below 10 % only.
    """
    if unit in ("s", "s_per_token"):
        text = "0" if abs(value) < 1e-9 else str(formatting.seconds(value))
    elif unit == "share":
        points = value * 100
        if abs(points) < 0.005:
            return "0"
        text = f"{formatting.number(points, 2 if abs(points) < 10 else 1)}{formatting.NBSP}pp"
    elif unit in ("percent", "difference"):
        decimals = 1 if unit == "percent" or abs(value) < 0.1 else 0
        text = percent(value, decimals)
        value = round(value * 100, decimals)
    else:
        text = str(formatting.quantity(abs(value), unit))
        text = "0" if value == 0 else text if value > 0 else f"{formatting.MINUS}{text}"
    return formatting.with_sign(value, text)


@register.filter
def count(value: float | None) -> str:
    return "–" if value is None else formatting.number(value)


@register.simple_tag
@lru_cache(maxsize=1024, typed=True)
def pv(origin: str, how: str = "") -> SafeString:
    """The mark that says where a number comes from: M solid, C outlined, P dashed."""
    if origin not in ORIGINS:
        return SafeString("")
    key, letter, word = ORIGINS[origin]
    title = f"{word}: {how}" if how else word
    return format_html(
        '<span class="pv pv-{}" title="{}"><span aria-hidden="true">{}</span><span class="sr">{}</span></span>',
        key, title, letter, word.lower(),
    )  # fmt: skip


@register.simple_tag
def big(value: float, unit: str, origin: str = "") -> SafeString:
    """A tile's number, its unit set small."""
    parts = formatting.by_origin(float(value), unit, origin)
    return format_html("{}<small>{}</small>", parts.number, parts.unit) if parts.unit else escape(parts.number)


@register.simple_tag
def ago(moment: datetime | None) -> SafeString:
    """How long ago, with the exact time on hover."""
    if moment is None:
        return SafeString("–")
    age = (timezone.now() - moment).total_seconds()
    steps = ((60, "just now", 0), (3600, "min", 60), (86_400, "h", 3600), (86_400 * 14, "days", 86_400))
    text = f"{moment:%-d %b %Y}"
    for limit, word, size in steps:
        if age < limit:
            number = int(age // size) if size else 0
            text = f"{number} {word if number != 1 or word != 'days' else 'day'} ago" if size else word
            break
    exact = moment.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', exact.isoformat(), f"{exact:%-d %B %Y, %H:%M:%S} UTC", text
    )


def inline_code(text: str) -> SafeString:
    """Escaped text in which `backticks` are code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # an odd backtick is only a character
        return escape(text)
    return format_html_join(
        "", "{}", ((format_html("<code>{}</code>", part) if at % 2 else part,) for at, part in enumerate(parts))
    )


register.filter("inline_code", inline_code)

_SOURCE = re.compile(r"(?<![\w/.])[\w./+-]+\.(?:py|cc|cpp|cu|cuh|h|c|rs|go):\d+")


def prose(context: Mapping[str, Any], text: str) -> SafeString:
    """Escaped text with `code`, in which a source line leads to its ops where the page knows them."""
    base = context.get("sources_base")
    if not base or "`" in text:
        return inline_code(text)
    pieces, at = [], 0
    for match in _SOURCE.finditer(text):
        link = format_html('<a href="{}{}">{}</a>', base, quote(match[0]), match[0])
        pieces += [escape(text[at : match.start()]), link]
        at = match.end()
    return mark_safe("".join([*pieces, escape(text[at:])]))  # every piece is escaped


@register.simple_tag(takes_context=True)
def sentence(context: Mapping[str, Any], text: str) -> SafeString:
    """A sentence whose values open the panel that shows them; one without a panel says on hover what it is.

    evidence_base: address of the panels, evidence_query: what follows a panel's name there.
    """
    pieces = (prose(context, span) if isinstance(span, str) else _value(context, span) for span in spans_of(text))
    return mark_safe("".join(pieces))  # every piece is escaped


def _value(context: Mapping[str, Any], value: Value) -> SafeString:
    base = context.get("evidence_base")
    if base and value.panel:
        href = f"{base}{quote(value.panel)}/{context.get('evidence_query', '')}"
        return evidence_link(href, value.text, value.origin, value.label)
    title = f"{value.origin.capitalize()}: {value.label}"
    return format_html('<span class="nowrap" title="{}">{}</span>', title, value.text)


@register.simple_tag
def uncited(evidence: Sequence[Value], ref: str, *texts: str | Sequence[str]) -> list[tuple[str, Value]]:
    """Evidence that none of the sentences cites, with its panel; to be listed below them."""
    lines = [line for text in texts for line in ([text] if isinstance(text, str) else text)]
    seen = {value.field for value in values(*lines)}
    panels = ((item.field or f"{ref}-{index}", item) for index, item in enumerate(evidence))
    return [(panel, item) for panel, item in panels if item.value is not None and panel not in seen]


def evidence_link(href: str, text: str, origin: str, label: str = "") -> SafeString:
    """A number that opens its panel: italic where it is predicted; its origin and `label` on hover and for readers."""
    key, _, word = ORIGINS.get(origin, ("", "", ""))
    title = f"{word}: {label}" if label and word else word or label
    return format_html(
        '<a class="ev nowrap{}" data-pv="{}" href="{}" hx-get="{}" hx-target="#drawer-body" title="{}">{}</a>',
        " p" if origin == "predicted" else "", key, href, href, title, text,
    )  # fmt: skip


@register.simple_tag(takes_context=True)
def ev(context: Mapping[str, Any], value: float, unit: str, origin: str, ref: str, how: str = "") -> SafeString:
    """A number of a table or tile that opens the evidence `ref`."""
    text = str(formatting.by_origin(float(value), unit, origin))
    return evidence_link(f"{context['evidence_base']}{ref}/", text, origin, how)


@register.filter
def get(mapping: Mapping[Any, Any] | None, key: Any) -> Any:
    """`{{ mapping|get:key }}`, empty where it is not there."""
    return (mapping or {}).get(key, "")


@register.filter
def ratio(value: float, whole: float) -> float | None:
    return value / whole if whole else None


@register.simple_tag(takes_context=True)
def evidence_item(context: Mapping[str, Any], item: Value, panel: str) -> SafeString:
    """The number of an evidence that has one, opening its panel."""
    return evidence_link(f"{context['evidence_base']}{panel}/", item.text, item.origin, item.label)


@register.filter
def ref(kind: str, index: int) -> str:
    """Where an evidence stands: `finding-2`."""
    return f"{kind}-{index}"


@register.filter
def words(key: str) -> str:
    """`kv_heads` as a label, a rule's or a column's name as people say it: `KV heads`, `Your constraint: …`."""
    special = {
        "d_model": "d_model", "d_ff": "d_ff", "d_ff_expert": "d_ff of an expert", "kv heads": "KV heads",
        "bound_by": "Bound", "grad_accum": "Micro-batches", "mesh_axis": "Axis", "source": "Source line",
        "scope": "Module path",
    }  # fmt: skip
    spoken = key.replace("_", " ").strip()
    return special.get(key) or special.get(spoken) or spoken[:1].upper() + spoken[1:]
