"""Every number in a sentence of a diagnosis is a value that names where it was written from."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache, partial

import pytest

from diagnosis.analyzer import diagnose
from diagnosis.report import DIAGNOSIS, Diagnosis
from evaluation.steps import paper
from evaluation.steps.generated import profile
from evaluation.steps.scenario import Scenario, config
from evaluation.steps.scenarios import SCENARIOS
from experiments.sentences import Value, spans_of

#: A number with its unit, as words must not have it.
QUANTITY = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?\s?(?:%|×(?!\d)|[kMGTP]?B(?:/s)?\b|[TG]FLOP/s|ms\b|µs\b|ns\b|s\b)")


def _paper(number: int) -> Diagnosis:
    return diagnose(paper.profile(number), paper.config(number))


def _without_configuration(number: int) -> Diagnosis:
    return diagnose(paper.profile(number))


def _generated(scenario: Scenario) -> Diagnosis:
    return diagnose(profile(scenario), config(scenario))


#: Made by the first test that asks, not while tests are collected.
MADE: dict[str, Callable[[], Diagnosis]] = {
    **{f"paper {number}": partial(_paper, number) for number in (1, 2, 3)},
    **{f"paper {number} without configuration": partial(_without_configuration, number) for number in (1, 2, 3)},
    **{scenario.name: partial(_generated, scenario) for scenario in SCENARIOS},
}


@cache
def made(name: str) -> Diagnosis:
    return MADE[name]()


@pytest.fixture(params=MADE)
def diagnosis(request: pytest.FixtureRequest) -> Diagnosis:
    return made(request.param)


def sentences(diagnosis: Diagnosis) -> Iterator[str]:
    yield from (diagnosis.bottleneck.statement, *diagnosis.bottleneck.contradictions)
    for finding in diagnosis.findings:
        yield from (finding.insight, finding.action, finding.impact)
    for heading, lines in diagnosis.report.items():
        yield from lines if heading != "Experiment details" else ()


def test_no_quantity_is_written_as_words(diagnosis: Diagnosis) -> None:
    for text in sentences(diagnosis):
        for words in (span for span in spans_of(text) if isinstance(span, str)):
            for op in diagnosis.ops:
                words = words.replace(op.name, "OP")
            assert not QUANTITY.search(words), text


def test_each_value_equals_what_it_names(diagnosis: Diagnosis) -> None:
    verdict, counted = diagnosis.bottleneck, 0
    known = {item.field: item.value for item in diagnosis.cited}
    known |= {f"kpi-{key}": value for key, value in diagnosis.kpis.items()}
    known |= {f"term-{key}": value for key, value in diagnosis.breakdown_share.items()}
    known |= {"listed": diagnosis.coverage, "waiting": sum(row.waiting_share for row in diagnosis.collectives)}
    columns = ("time_share", "achieved_bytes_per_s", "possible_bytes_per_s", "roofline_efficiency")
    for rank, op in enumerate(diagnosis.ops[:5], start=1):
        known |= {f"op-{rank}-{column}": getattr(op, column) for column in columns}
    for op in diagnosis.ops:
        for key in (f"group-family-{op.family}", f"group-module-{op.module}"):
            known[key] = (known.get(key) or 0.0) + op.time_share
    assert len({item.field for item in diagnosis.cited}) == len(diagnosis.cited)
    assert set(verdict.evidence) <= set(diagnosis.cited)
    for text in sentences(diagnosis):
        for value in (span for span in spans_of(text) if isinstance(span, Value)):
            assert value.value == pytest.approx(known[value.field]), (value, text)
            assert value.label and value.origin in ("measured", "computed", "predicted")
            counted += 1
    assert counted > 3


def test_a_stored_diagnosis_has_the_same_values(diagnosis: Diagnosis) -> None:
    again = DIAGNOSIS.read(json.loads(json.dumps(DIAGNOSIS.write(diagnosis))))
    for before, after in zip(sentences(diagnosis), sentences(again), strict=True):
        assert spans_of(before) == spans_of(after)


def test_the_contract_has_plain_sentences(diagnosis: Diagnosis) -> None:
    contract = diagnosis.to_json()
    assert contract["bottleneck"]["statement"] == str(diagnosis.bottleneck.statement)
    assert [row["insight"] for row in contract["findings"]] == [str(item.insight) for item in diagnosis.findings]


def test_evidence_points_to_ops_that_exist_and_adds_them_up() -> None:
    """Shares that a finding claims are the sum of the rows it points to."""
    for scenario in SCENARIOS:
        diagnosis = diagnose(profile(scenario), config(scenario))
        share = {op.key: op.time_share for op in diagnosis.ops}
        for row in diagnosis.cited:
            assert set(row.ops) <= set(share)
            if row.unit == "share" and row.formula == "Σ self time ÷ step time" and row.ops and len(row.ops) < 50:
                assert row.value == pytest.approx(sum(share[key] for key in row.ops), rel=0.01)


def test_a_kpi_that_was_not_measured_says_why() -> None:
    for diagnosis in map(made, MADE):
        section = {line.partition(":")[0]: line for line in diagnosis.report["KPIs and initial hypothesis"]}
        assert diagnosis.kpis["mfu"] is not None or diagnosis.not_measured["mfu"] in section["MFU"]
