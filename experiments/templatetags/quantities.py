"""Numbers on pages: formatted, marked with where they come from, and linked to their evidence."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol
from urllib.parse import quote

from django import template
from django.utils import timezone
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from experiments import formatting

register = template.Library()

ORIGINS = {
    "measured": ("m", "M", "Measured"),
    "computed": ("c", "C", "Computed"),
    "predicted": ("p", "P", "Predicted"),
}


def probability(value: float) -> str:
    """As people say it: `73 %`; never 0 or 100 unless it is."""
    percent = round(value * 100)
    if 0 < value < 1:
        percent = min(max(percent, 1), 99)
    return f"{percent}{formatting.NBSP}%"


def parameters(value: float) -> str:
    """Of a model: `8 B`, `1.02 T`."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if value >= size:
            return f"{formatting.significant(value / size)}{formatting.NBSP}{letter}"
    return formatting.number(value) if value else "–"


def percent(value: float, decimals: int) -> str:
    return f"{formatting.number(value * 100, decimals)}{formatting.NBSP}%"


def against_prediction(value: float) -> str:
    """How a measured speed-up stands to the predicted one: `7 % less than predicted`."""
    size = abs(value)
    if size < 0.005:
        return "as predicted"
    return f"{percent(size, 1 if size < 0.1 else 0)} {'more' if value > 0 else 'less'} than predicted"


#: Units of pages alone, beside those of `formatting.quantity`.
_MORE_UNITS: dict[str, Callable[[float], object]] = {
    "s_per_token": formatting.seconds,
    "ms": lambda value: formatting.seconds(value / 1e3),
    "duration": formatting.duration,
    "usd": formatting.dollars,
    "probability": probability,
    "correlation": lambda value: formatting.number(value, 2),
    "parameters": parameters,
    # A column in percent has the same decimals in every row.
    "percent": lambda value: percent(value, 1),
    "whole_percent": lambda value: percent(value, 0),
    "width": lambda value: f"{min(max(value, 0.0), 1.0) * 100:.1f}%",
    "against_prediction": against_prediction,
}


@register.filter
def quantity(value: float | None, unit: str) -> str:
    """`{{ op.time_s|quantity:"s" }}`; an absent value is an en dash for tables where the column says why."""
    if value is None:
        return "–"
    return str(_MORE_UNITS[unit](value) if unit in _MORE_UNITS else formatting.quantity(float(value), unit))


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
        text = f"{formatting.number(value * 100, decimals)}{formatting.NBSP}%"
    else:
        text = str(formatting.quantity(abs(value), unit))
        text = "0" if value == 0 else text if value > 0 else f"{formatting.MINUS}{text}"
    return f"+{text}" if value > 0 and text != "0" else text


@register.filter
def count(value: float | None) -> str:
    return "–" if value is None else formatting.number(value)


@register.simple_tag
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
def big(value: float, unit: str) -> SafeString:
    """A tile's number, its unit set small."""
    parts = formatting.quantity(float(value), unit)
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


class Cited(Protocol):
    """What a number of a sentence rests on, such as `diagnosis.report.Evidence`: text is how the sentence prints it."""

    @property
    def label(self) -> str: ...
    @property
    def value(self) -> float | None: ...
    @property
    def unit(self) -> str: ...
    @property
    def origin(self) -> str: ...
    @property
    def text(self) -> str: ...


def _matches(found: formatting.WrittenNumber, evidence: Cited) -> bool:
    """A written number is an evidence's if it agrees within its last digit and their kinds do not contradict."""
    value = evidence.value
    if value is None:
        return False
    unit = {"count": "", "flops": "flops_per_s"}.get(evidence.unit, evidence.unit)
    if found.unit != unit:
        return False
    return abs(found.value - abs(value)) <= max(found.tolerance * 1.05, abs(value) * 1e-9)


@register.simple_tag(takes_context=True)
def cited(context: Mapping[str, Any], text: str, evidence: Sequence[Cited], ref: str) -> SafeString:
    """A sentence whose numbers open their evidence.

    evidence: of a bottleneck or finding; ref: where they stand (`bottleneck`, `finding-2`), for the panel's address.
    A number that no item carries stays plain text.
    """
    base = context.get("evidence_base")
    pieces: list[SafeString] = []
    at = 0
    for start, end, index in citations(text, evidence) if base else ():
        pieces.append(prose(context, text[at:start]))
        item = evidence[index]
        pieces.append(evidence_link(f"{base}{ref}-{index}/", text[start:end], item.origin, item.label))
        at = end
    pieces.append(prose(context, text[at:]))
    return mark_safe("".join(pieces))  # every piece is escaped above


def citations(text: str, evidence: Sequence[Cited]) -> list[tuple[int, int, int]]:
    """(start, end, index of the evidence) of the numbers in a sentence, in order, none inside `code`.

    An evidence that says how the sentence prints it is found by that; the others by value and unit.
    """
    spans = _code_spans(text)
    found = []
    for written in formatting.written_numbers(text):
        if any(start <= written.start < end for start, end in spans):
            continue
        exact = [
            index
            for index, item in enumerate(evidence)
            if item.text and _printed(item.text, text, _sign(text, written.start))
        ]
        if exact:
            index = max(exact, key=lambda i: (len(evidence[i].text), _shared_words(evidence[i].label, text)))
            start = _sign(text, written.start)
            end = start + len(evidence[index].text)
            found.append((start, end + (text[end : end + 1] == formatting.TIMES), index))
            continue
        near = next((i for i, item in enumerate(evidence) if not item.text and _matches(written, item)), None)
        if near is not None:
            found.append((written.start, written.end, near))
    kept: list[tuple[int, int, int]] = []
    for span in found:
        if not kept or span[0] >= kept[-1][1]:
            kept.append(span)
    return kept


def _printed(number: str, text: str, start: int) -> bool:
    """Whether the number stands there as a whole, not as the beginning of a longer one."""
    return text.startswith(number, start) and not re.match(r"\d|[.,]\d", text[start + len(number) :])


def _shared_words(label: str, sentence: str) -> int:
    """How many words of the label stand in the sentence: tells two equal numbers apart."""
    words = set(label.lower().split())
    return len(words & set(sentence.lower().split()))


def _sign(text: str, start: int) -> int:
    """Where the number begins with its sign."""
    return start - 1 if start and text[start - 1] in "-+\u2212" else start


@register.simple_tag
def uncited(evidence: Sequence[Cited], *texts: Any) -> list[tuple[int, Cited]]:
    """Evidence whose number stands in none of the sentences, with its index; to be listed below them."""
    sentences = [line for text in texts for line in ([text] if isinstance(text, str) else text or ())]
    seen = {index for line in sentences for _, _, index in citations(line, evidence)}
    values = {(evidence[index].value, evidence[index].unit) for index in seen}
    return [
        (index, item)
        for index, item in enumerate(evidence)
        if item.value is not None and index not in seen and (item.value, item.unit) not in values
    ]


def _code_spans(text: str) -> list[tuple[int, int]]:
    marks = [at for at, letter in enumerate(text) if letter == "`"]
    return list(zip(marks[::2], marks[1::2], strict=False))


def evidence_link(href: str, text: str, origin: str, label: str = "") -> SafeString:
    """An underlined number that opens its panel; solid, dotted or dashed as it is measured, computed or predicted."""
    key = ORIGINS.get(origin, ("", "", ""))[0]
    return format_html(
        '<span class="nowrap"><a class="ev" data-pv="{}" href="{}" hx-get="{}" hx-target="#drawer-body">'
        "{}</a>{}</span>",
        key, href, href, text, pv(origin, label),
    )  # fmt: skip


@register.simple_tag(takes_context=True)
def ev(context: Mapping[str, Any], value: float, unit: str, origin: str, ref: str, how: str = "") -> SafeString:
    """A number of a table or tile that opens the evidence `ref`."""
    text = str(formatting.quantity(float(value), unit))
    return evidence_link(f"{context['evidence_base']}{ref}/", text, origin, how)


@register.filter
def get(mapping: Mapping[Any, Any] | None, key: Any) -> Any:
    """`{{ mapping|get:key }}`, empty where it is not there."""
    return (mapping or {}).get(key, "")


@register.filter
def ratio(value: float, whole: float) -> float | None:
    return value / whole if whole else None


@register.simple_tag(takes_context=True)
def evidence_item(context: Mapping[str, Any], item: Cited, ref: str, index: int) -> SafeString:
    """The number of an evidence that has one, opening its panel."""
    text = str(formatting.quantity(float(item.value or 0.0), item.unit))
    return evidence_link(f"{context['evidence_base']}{ref}-{index}/", text, item.origin, item.label)


@register.filter
def ref(kind: str, index: int) -> str:
    """Where an evidence stands: `finding-2`."""
    return f"{kind}-{index}"


@register.filter
def words(key: str) -> str:
    """`kv_heads` as a label, a rule's or a column's name as people say it: `KV heads`, `Your constraint: …`."""
    special = {
        "d_model": "d_model", "d_ff": "d_ff", "d_ff_expert": "d_ff of an expert", "kv heads": "KV heads",
        "bound_by": "Bound", "mesh_axis": "Axis", "source": "Source line", "scope": "Module path",
    }  # fmt: skip
    spoken = key.replace("_", " ").strip()
    return special.get(key) or special.get(spoken) or spoken[:1].upper() + spoken[1:]
