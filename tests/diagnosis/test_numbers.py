"""Every number in a sentence equals a row of its evidence within 1 %."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from diagnosis.analyzer import diagnose
from diagnosis.report import Diagnosis, Evidence
from evaluation.steps import paper
from evaluation.steps.generated import profile
from evaluation.steps.scenario import config
from evaluation.steps.scenarios import SCENARIOS

UNITS = {
    "%": 0.01, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9, "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
    "PB": 1e15, "B/s": 1.0, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12, "TFLOP/s": 1e12, "×": 1.0, "": 1.0,
}  # fmt: skip
NUMBER = re.compile(
    r"(?<![\w.:-])(\d[\d,]*(?:\.\d+)?)(?:\s?(%|×|[kMGTP]?B/s|TFLOP/s|[kMGTP]?B|ms|µs|ns|s)(?![\w/]))?(?!\w|\.\d)"
)


def cases() -> Iterator[tuple[str, Diagnosis]]:
    for number in (1, 2, 3):
        yield f"paper {number}", diagnose(paper.profile(number), paper.config(number))
        yield f"paper {number} without configuration", diagnose(paper.profile(number))
    for scenario in SCENARIOS:
        yield scenario.name, diagnose(profile(scenario), config(scenario))


def numbers(text: str, diagnosis: Diagnosis) -> list[tuple[str, float]]:
    """Numbers with their units, names of ops and places in the program left aside."""
    for op in sorted(diagnosis.ops, key=lambda op: -len(op.name)):
        text = text.replace(op.name, "OP")
    text = re.sub(r"\S+\.py:\d+", "LINE", text)
    return [
        (match.group(0), float(match.group(1).replace(",", "")) * UNITS[match.group(2) or ""])
        for match in NUMBER.finditer(text)
    ]


def check(text: str, rows: tuple[Evidence, ...], diagnosis: Diagnosis) -> int:
    found = numbers(text, diagnosis)
    for printed, value in found:
        known = [row.value for row in rows if row.value is not None]
        assert any(abs(value - other) <= 0.01 * abs(other) + 1e-12 for other in known), f"{printed!r} in {text!r}"
    return len(found)


@pytest.mark.parametrize(
    ("name", "diagnosis"), list(cases()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_numbers_in_findings(name: str, diagnosis: Diagnosis) -> None:
    counted = 0
    for finding in diagnosis.findings:
        for text in (finding.insight, finding.action, finding.impact, finding.title):
            counted += check(text, finding.evidence, diagnosis)
    verdict = diagnosis.bottleneck
    for text in (verdict.statement, *verdict.contradictions):
        counted += check(text, verdict.evidence, diagnosis)
    assert counted > 3


@pytest.mark.parametrize(
    ("name", "diagnosis"), list(cases()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_evidence_texts_stand_in_the_sentences(name: str, diagnosis: Diagnosis) -> None:
    """Evidence carries its number as printed, so that a page can link it; and its ops exist."""
    keys = {op.key for op in diagnosis.ops}
    for finding in diagnosis.findings:
        assert finding.evidence
        for row in finding.evidence:
            assert row.text and row.origin in ("measured", "computed", "predicted")
            assert set(row.ops) <= keys


def test_numbers_of_ops_equal_the_table() -> None:
    """Shares that a finding claims are the sum of the rows it points to."""
    for scenario in SCENARIOS:
        diagnosis = diagnose(profile(scenario), config(scenario))
        share = {op.key: op.step_share or 0.0 for op in diagnosis.ops}
        for finding in diagnosis.findings:
            for row in finding.evidence:
                if row.unit == "share" and row.formula == "Σ self time ÷ step time" and row.ops and len(row.ops) < 50:
                    assert row.value == pytest.approx(sum(share[key] for key in row.ops), rel=0.01)


def test_report_repeats_the_kpis() -> None:
    """Each line of the KPI section is the KPI of the table; a missing one says so with its reason."""
    names = {
        "Device duty cycle": "duty_cycle",
        "Idle": "idle",
        "Communication": "communication",
        "Input": "input",
        "HBM bandwidth utilisation": "hbm_utilization",
        "FLOPs utilisation": "flops_utilization",
        "MFU": "mfu",
    }
    for _, diagnosis in cases():
        section = {line.partition(":")[0]: line for line in diagnosis.report["KPIs and initial hypothesis"]}
        for words, key in names.items():
            value = diagnosis.kpis[key]
            if value is None:
                assert diagnosis.not_measured[key] in section[words]
            else:
                assert numbers(section[words], diagnosis)[0][1] == pytest.approx(value, rel=0.01, abs=1e-9)


def test_the_number_reader_reads() -> None:
    empty = diagnose(paper.profile(1))
    text = (
        "takes 41.6 % of the step, 3,060 ms, 25.6 GB/s of 45 GB/s over 16 chips, 1.25× faster (model.py:10, "
        "b/model.py:20)."
    )
    assert [value for _, value in numbers(text, empty)] == pytest.approx([0.416, 3.06, 25.6e9, 45e9, 16, 1.25])
