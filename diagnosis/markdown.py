"""The report as Markdown: what the pages show, in one file that reads as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import formatting
from diagnosis import presentation
from diagnosis.models import DiagnosisRecord
from diagnosis.report import Diagnosis, Finding
from experiments import bars
from experiments.models import Experiment
from experiments.services import against_profile
from experiments.templatetags import quantities

TOP_OPS = 20
_ORIGINS = {"measured": "measured", "computed": "computed", "predicted": "predicted"}
#: What Markdown would take for markup in a text of the user's program.
_SPECIAL = str.maketrans({letter: f"\\{letter}" for letter in "\\*_[]<>#|~"})


def write(experiment: Experiment, record: DiagnosisRecord, address: str) -> str:
    """The whole report.  address: of the page it was taken from."""
    diagnosis = record.value
    verdict = diagnosis.bottleneck
    parts = [
        f"# {_text(experiment.name)}",
        f"Diagnosis of {record.created_at:%d %B %Y, %H:%M} UTC, from {address}",
        *([f"Profile: {_text(experiment.label)}."] if experiment.label else []),
        *([f"Recording: {_text(diagnosis.recording.line)}"] if diagnosis.recording.line else []),
        f"## {'Bottleneck' if diagnosis.measured else 'Predicted bottleneck'}: {verdict.primary}",
        f"{_text(verdict.statement)} Confidence {formatting.plain(verdict.confidence, 'probability')}.",
        *_list(verdict.contradictions),
        *_kept(experiment),
        "## Key figures",
        *_kpis(diagnosis),
        *_breakdown(diagnosis),
        *_collectives(diagnosis),
        "## Findings",
        *_findings(diagnosis.findings),
        f"## The {TOP_OPS} largest ops",
        *_ops(record, diagnosis.measured),
        *_sections(diagnosis.report),
    ]
    summary = record.run.profile.summary or {}
    warnings = [*diagnosis.warnings, *(note["message"] for note in presentation.further_notes(diagnosis, summary))]
    if warnings:
        parts += ["## Notes on the profile", *_list(warnings)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _kept(experiment: Experiment) -> list[str]:
    said = against_profile.caveats(experiment)
    return ["The profile contradicts the configuration, which the user kept:", *_list(said)] if said else []


def _text(value: Any) -> str:
    """A sentence in which `code` stays code and nothing else is markup; on one line."""
    pieces = " ".join(str(value).split()).split("`")
    if len(pieces) % 2 == 0:
        return "".join(pieces).translate(_SPECIAL)
    return "`".join(piece if at % 2 else piece.translate(_SPECIAL) for at, piece in enumerate(pieces))


def _code(value: Any) -> str:
    text = " ".join(str(value).split()).replace("`", "'").replace("|", "\\|")
    return f"`{text}`" if text else ""


def _list(lines: Iterable[str]) -> list[str]:
    items = [f"- {_text(line)}" for line in lines]
    return ["\n".join(items)] if items else []


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if not lines:
        return []
    # The first column is words, the others numbers.
    rule = "| --- |" + " ---: |" * (len(head) - 1)
    return ["\n".join((f"| {' | '.join(head)} |", rule, *lines))]


def _number(value: Any, unit: str) -> str:
    return quantities.quantity(value, unit).replace(formatting.NBSP, " ")


def _kpis(diagnosis: Diagnosis) -> list[str]:
    rows = []
    for tile in presentation.tiles(diagnosis):
        value = _number(tile.value, tile.unit) if tile.value is not None else "not measured"
        rows.append((_text(tile.label), value, _ORIGINS.get(tile.origin, ""), _text(tile.note)))
    return _table(("Figure", "Value", "Origin", "Finding"), rows)


def _breakdown(diagnosis: Diagnosis) -> list[str]:
    in_seconds = bool(diagnosis.breakdown_s)
    terms = bars.step_terms(diagnosis.breakdown_s or diagnosis.breakdown_share)
    total = sum(term.value for term in terms)
    if not terms or not total:
        return []
    head = ("Term", "Per step", "Share") if in_seconds else ("Term", "Share")
    rows = []
    for term in terms:
        share = _number(term.value / total, "share")
        rows.append((_text(term.label), _number(term.value, "s"), share) if in_seconds else (_text(term.label), share))
    said = "" if diagnosis.measured else " (predicted, not measured)"
    return [f"## Step-time breakdown{said}", *_table(head, rows)]


def _collectives(diagnosis: Diagnosis) -> list[str]:
    rows = [
        (
            _code(presentation.axis_name(row.axis)),
            _text(row.kind),
            _number(row.time_s, "s"),
            _number(row.share, "share"),
            _number(row.exposed_share, "share"),
            _number(row.achieved_bytes_per_s, "bytes_per_s"),
            _number(row.possible_bytes_per_s, "bytes_per_s"),
        )
        for row in diagnosis.collectives
    ]
    table = _table(("Axis", "Kind", "Per step", "Share", "Exposed", "Achieved", "Possible"), rows)
    return ["## Collectives per mesh axis", *table] if table else []


def _findings(findings: Sequence[Finding]) -> list[str]:
    if not findings:
        return ["No rule found a significant cost."]
    parts = []
    for number, finding in enumerate(findings, start=1):
        parts.append(f"### {number}. {_text(finding.title)}")
        said = (("Insight", finding.insight), ("Action", finding.action), ("Impact", finding.impact))
        lines = [f"- **{word}.** {_text(text)}" for word, text in said if text]
        for item in finding.evidence:
            if item.value is not None:
                formula = f", {_text(item.formula)}" if item.formula else ""
                lines.append(f"- {_text(item.label)}: {_number(item.value, item.unit)} ({item.origin}{formula})")
        parts.append("\n".join(lines))
    return parts


def _ops(record: DiagnosisRecord, profiled: bool) -> list[str]:
    ops = list(record.ops.defer("data").order_by("rank")[:TOP_OPS])
    over = any(presentation.is_over_roof(op.roofline_efficiency) for op in ops)
    rows = [
        (
            _code(op.name), _text(op.category), _code(op.mesh_axis), _number(op.time_s, "s"),
            _number(op.time_share, "share"), _text(op.bound_by), _number(op.roofline_efficiency, "efficiency"),
            _code(op.source),
        )
        for op in ops
    ]  # fmt: skip
    head = ("Op", "Category", "Axis", "Per step", "Share", "Bound by", "Of roofline", "Source")
    if not rows:
        return ["The profile lists no ops." if profiled else "No profile was recorded, so there are no ops."]
    return [*_table(head, rows), *([presentation.OVER_ROOF] if over else [])]


def _sections(report: Mapping[str, Sequence[str]]) -> list[str]:
    parts = ["## Report"]
    for heading, lines in report.items():
        parts += [f"### {_text(heading)}", *_list(lines)]
    return parts if len(parts) > 1 else []
