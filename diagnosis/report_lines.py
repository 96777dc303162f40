"""The report's sentences with the evidence behind each number, so that every one of them opens its rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diagnosis import presentation
from diagnosis.analyzer.breakdown import bar_label
from diagnosis.analyzer.quantity import digits, format_share, format_value
from diagnosis.analyzer.report import CORRELATION, DETAILS, HEALTH, IDENTIFICATION

#: `attention 56.9 %` in the sentences that sum ops by family and module.
_NAMED_SHARE = re.compile(r"(?:: |, )(?P<name>[^:,]+?) (?P<text>[\d.,]+ %)")
_RANK = re.compile(r"^(\d)\. ")
SECTIONS = (DETAILS, HEALTH, IDENTIFICATION, CORRELATION)


@dataclass(frozen=True)
class Line:
    """A sentence, and its numbers: items as `Evidence` JSON, each with the `ref` of its panel or an `href`."""

    text: str
    items: list[dict[str, Any]]


@dataclass(frozen=True)
class Section:
    number: int
    heading: str
    lines: list[Line]


def sections(data: Mapping[str, Any], largest: Sequence[Mapping[str, Any]], ops_base: str = "") -> list[Section]:
    """The report's sections in their order.

    largest: `rank` and the JSON of the five largest ops, which the third section lists; ops_base: address of the ops.
    """
    found = data.get("report") or {}
    order = {heading: place for place, heading in enumerate(SECTIONS)}
    headings = sorted(found, key=lambda heading: order.get(heading, len(order)))
    return [
        Section(number, heading, [_line(heading, text, data, largest, ops_base) for text in found[heading]])
        for number, heading in enumerate(headings, start=1)
    ]


def _line(
    heading: str, text: str, data: Mapping[str, Any], largest: Sequence[Mapping[str, Any]], ops_base: str
) -> Line:
    if heading == HEALTH:
        return Line(text, _kpis(data))
    if heading == IDENTIFICATION:
        return Line(text, _ops(text, largest, ops_base))
    if heading == CORRELATION:
        return Line(text, _correlation(text, data))
    return Line(text, [])


def _kpis(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"label": tile.label, "value": tile.value, "unit": tile.unit, "origin": tile.origin,
         "text": format_value(tile.value, tile.unit), "ref": f"kpi-{tile.key}"}
        for tile in presentation.tiles(data)
        if tile.value is not None
    ]  # fmt: skip


def _ops(text: str, largest: Sequence[Mapping[str, Any]], ops_base: str) -> list[dict[str, Any]]:
    if match := _RANK.match(text):
        op = next((op for op in largest if op["rank"] == int(match[1])), None)
        return list(_facts(op, f"{ops_base}{op['rank']}/")) if op else []
    column = {"By family": "family", "By module": "module"}.get(text.partition(":")[0])
    if column is None:
        return []
    return [
        {"label": found["name"], "value": None, "unit": "share", "origin": "measured", "text": found["text"],
         "ref": f"group-{column}-{found['name']}", "start": found.start("text")}
        for found in _NAMED_SHARE.finditer(text)
    ]  # fmt: skip


def _facts(op: Mapping[str, Any], href: str) -> Iterable[dict[str, Any]]:
    columns = (
        ("share of device time", "time_share", "share"), ("achieved bandwidth", "achieved_bytes_per_s", "bytes_per_s"),
        ("possible bandwidth", "possible_bytes_per_s", "bytes_per_s"),
        ("roofline efficiency", "roofline_efficiency", "share"),
    )  # fmt: skip
    for label, key, unit in columns:
        if op.get(key) is not None:
            yield {"label": label, "value": op[key], "unit": unit, "text": format_value(op[key], unit), "href": href,
                   "origin": "computed" if unit == "bytes_per_s" else "measured"}  # fmt: skip


def _referred(items: Iterable[Mapping[str, Any]], ref: str) -> list[dict[str, Any]]:
    return [{**item, "ref": f"{ref}-{index}"} for index, item in enumerate(items)]


def _correlation(text: str, data: Mapping[str, Any]) -> list[dict[str, Any]]:
    verdict = data.get("bottleneck") or {}
    for index, finding in enumerate(data.get("findings") or ()):
        if text.startswith(f"{finding['title']}. "):
            return _referred(finding.get("evidence") or (), f"finding-{index}")
    if text.startswith("Predicted breakdown "):
        shares = data.get("breakdown_share") or {}
        return [
            {"label": bar_label(key), "value": value, "unit": "share", "origin": "predicted",
             "text": f"{digits(100.0 * value, 2)} %", "ref": f"term-{key}"}
            for key, value in shares.items()
        ]  # fmt: skip
    if text.startswith("Breakdown "):
        shares = data.get("breakdown_share") or {}
        return [
            {"label": bar_label(key), "value": value, "unit": "share", "origin": "computed",
             "text": format_share(value), "ref": f"term-{key}"}
            for key, value in shares.items()
        ]  # fmt: skip
    if text.startswith("Waiting for asynchronous collectives accounts for "):
        waiting = presentation.waiting_share(data)
        return [{"label": "waiting for asynchronous collectives", "value": waiting, "unit": "share", "ref": "waiting",
                 "origin": "measured", "text": format_share(waiting)}]  # fmt: skip
    return [*_referred(verdict.get("evidence") or (), "bottleneck"), *_kpis(data)]
