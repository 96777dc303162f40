"""The report's sentences with the evidence behind each number, so that every one of them opens its rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from diagnosis import presentation
from diagnosis.analyzer.breakdown import bar_label
from diagnosis.analyzer.quantity import digits, format_share, format_value
from diagnosis.analyzer.report import CORRELATION, DETAILS, HEALTH, IDENTIFICATION
from diagnosis.report import Diagnosis, Evidence, OpDiagnosis

#: `attention 56.9 %` in the sentences that sum ops by family and module.
_NAMED_SHARE = re.compile(r"(?:: |, )(?P<name>[^:,]+?) (?P<text>[\d.,]+ %)")
_RANK = re.compile(r"^(\d)\. ")
SECTIONS = (DETAILS, HEALTH, IDENTIFICATION, CORRELATION)


@dataclass(frozen=True)
class Item:
    """A number of a sentence, as `Evidence` has it.  ref: its panel; href: or another page; start: where the sentence
    has it, None where it is to be searched for."""

    label: str
    value: float | None
    unit: str
    origin: str
    text: str
    ref: str = ""
    href: str = ""
    start: int | None = None


@dataclass(frozen=True)
class Line:
    """A sentence, and its numbers."""

    text: str
    items: Sequence[Item] = ()


@dataclass(frozen=True)
class Section:
    number: int
    heading: str
    lines: list[Line]


def sections(diagnosis: Diagnosis, largest: Sequence[OpDiagnosis], ops_base: str = "") -> list[Section]:
    """The report's sections in their order.

    largest: the five largest ops, which the third section lists; ops_base: address of the ops.
    """
    found = diagnosis.report
    order = {heading: place for place, heading in enumerate(SECTIONS)}
    headings = sorted(found, key=lambda heading: order.get(heading, len(order)))
    return [
        Section(number, heading, [_line(heading, text, diagnosis, largest, ops_base) for text in found[heading]])
        for number, heading in enumerate(headings, start=1)
    ]


def _line(heading: str, text: str, diagnosis: Diagnosis, largest: Sequence[OpDiagnosis], ops_base: str) -> Line:
    if heading == HEALTH:
        return Line(text, _kpis(diagnosis))
    if heading == IDENTIFICATION:
        return Line(text, _ops(text, largest, ops_base))
    if heading == CORRELATION:
        return Line(text, _correlation(text, diagnosis))
    return Line(text)


def _kpis(diagnosis: Diagnosis) -> list[Item]:
    return [
        Item(tile.label, tile.value, tile.unit, tile.origin, format_value(tile.value, tile.unit), ref=f"kpi-{tile.key}")
        for tile in presentation.tiles(diagnosis)
        if tile.value is not None
    ]


def _ops(text: str, largest: Sequence[OpDiagnosis], ops_base: str) -> list[Item]:
    if match := _RANK.match(text):
        rank = int(match[1])
        return list(_facts(largest[rank - 1], f"{ops_base}{rank}/")) if 0 < rank <= len(largest) else []
    column = {"By family": "family", "By module": "module"}.get(text.partition(":")[0])
    if column is None:
        return []
    return [
        Item(
            found["name"], None, "share", "measured", found["text"], ref=f"group-{column}-{found['name']}",
            start=found.start("text"),
        )
        for found in _NAMED_SHARE.finditer(text)
    ]  # fmt: skip


def _facts(op: OpDiagnosis, href: str) -> Iterable[Item]:
    columns = (
        ("share of device time", op.time_share, "share"),
        ("achieved bandwidth", op.achieved_bytes_per_s, "bytes_per_s"),
        ("possible bandwidth", op.possible_bytes_per_s, "bytes_per_s"),
        ("roofline efficiency", op.roofline_efficiency, "share"),
    )
    for label, value, unit in columns:
        if value is not None:
            origin = "computed" if unit == "bytes_per_s" else "measured"
            yield Item(label, value, unit, origin, format_value(value, unit), href=href)


def _referred(evidence: Iterable[Evidence], ref: str) -> list[Item]:
    return [
        Item(item.label, item.value, item.unit, item.origin, item.text, ref=f"{ref}-{index}")
        for index, item in enumerate(evidence)
    ]


def _correlation(text: str, diagnosis: Diagnosis) -> list[Item]:
    for index, finding in enumerate(diagnosis.findings):
        if text.startswith(f"{finding.title}. "):
            return _referred(finding.evidence, f"finding-{index}")
    if text.startswith("Predicted breakdown "):
        return [
            Item(bar_label(key), value, "share", "predicted", f"{digits(100.0 * value, 2)} %", ref=f"term-{key}")
            for key, value in diagnosis.breakdown_share.items()
        ]
    if text.startswith("Breakdown "):
        return [
            Item(bar_label(key), value, "share", "computed", format_share(value), ref=f"term-{key}")
            for key, value in diagnosis.breakdown_share.items()
        ]
    if text.startswith("Waiting for asynchronous collectives accounts for "):
        waiting = presentation.waiting_share(diagnosis)
        label = "waiting for asynchronous collectives"
        return [Item(label, waiting, "share", "measured", format_share(waiting), ref="waiting")]
    return [*_referred(diagnosis.bottleneck.evidence, "bottleneck"), *_kpis(diagnosis)]
