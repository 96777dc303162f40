"""Sweeps as records of the optimization database: few of each workload, true to their runs, and easy to leave out."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import replace
from math import prod

import pytest

from evaluation.history_from_sweeps import (
    DERIVED,
    FILE,
    SOURCES,
    records,
    with_bottleneck,
    without_workload,
    workload_prefix,
)
from evaluation.seeds.build import as_text
from evaluation.sweep_comparisons import MOST, comparisons, settings_that_ran, step_of
from evaluation.sweeps import load_sweeps
from history import seeds
from history.case import MOST_TELLING
from proposals.proposer.precedents import precedents_of, published

pytestmark = pytest.mark.slow

RUNS = {run.id: run for run in load_sweeps()}


def ids(record) -> tuple[str, str]:
    before, after = record.id.split("--")[1].split("-")
    return before, after


def test_the_committed_file_is_what_the_program_draws_from_the_sweeps() -> None:
    drawn = {row["id"] for row in json.loads(FILE.read_text(encoding="utf-8"))}
    committed = [record for record in seeds.records() if record.id in drawn]
    # The derived bottleneck follows the performance model, and may lag behind it.
    plain = [
        replace(one, bottleneck="", caveats=tuple(text for text in one.caveats if not text.startswith(DERIVED)))
        for one in committed
    ]
    assert as_text(plain) == as_text(records())
    assert {record.id for record in records()} <= {record.id for record in seeds.records()}


def test_a_bottleneck_is_the_analyzers_and_marked_as_derived() -> None:
    committed = {row["id"]: row for row in json.loads(FILE.read_text(encoding="utf-8"))}
    drawn = records()[::40]
    derived = [with_bottleneck(record, RUNS[ids(record)[0]]) for record in drawn]
    agree = [one.bottleneck == committed[one.id].get("bottleneck", "") for one in derived]
    assert sum(agree) >= 0.8 * len(agree)
    for row in committed.values():
        assert row["bottleneck"] in ("compute", "memory", "communication", "idle")
        assert any(text.startswith(DERIVED) for text in row["caveats"])


def test_a_workload_has_a_handful_of_records_and_every_source_has_some() -> None:
    found = records()
    assert len(found) <= 400
    assert max(Counter(record.id.split("--")[0] for record in found).values()) <= MOST
    assert {record.source for record in found} == {source.name for source in SOURCES.values()}
    assert {record.outcome for record in found} >= {"faster", "slower", "failed"}


def test_no_two_records_are_of_the_same_runs() -> None:
    pairs = [frozenset(ids(record)) for record in records()]
    assert len(set(pairs)) == len(pairs)


def test_a_record_says_what_its_two_runs_measured() -> None:
    for record in records():
        before, after = (RUNS[name] for name in ids(record))
        assert before.workload == after.workload
        assert record.before.mesh["ici"] == dict(before.config.mesh.ici)
        assert prod(record.after.mesh["ici"].values()) == record.chips
        if record.outcome == "failed":
            assert after.status == "failed" and not record.after.kpis and record.failure
            continue
        tokens = [run.row["global_batch"] * run.row["seq_len"] for run in (before, after)]
        measured = (before.step_time_s / tokens[0]) / (after.step_time_s / tokens[1])
        assert record.speedup == pytest.approx(measured, rel=1e-3)
        assert record.after.kpis.get("peak_bytes", 0) == pytest.approx(after.peak_bytes or 0)


def test_the_fastest_run_of_a_workload_ends_its_records_of_typical_starts() -> None:
    best = defaultdict(list)
    for one in settings_that_ran(list(RUNS.values())):
        best[one.run.workload].append(one.time_per_token_s)
    ends = [one for one in comparisons() if one.why.startswith("From ") and one.before.run.source != "llm-foundry"]
    assert ends
    for one in ends:
        assert one.after.time_per_token_s == min(best[one.after.run.workload])


def test_a_single_step_changes_one_setting_by_one_step() -> None:
    steps = [one for one in comparisons() if not one.why.startswith("From ")]
    assert len(steps) > 50
    for one in steps:
        assert f" {step_of(one.before, one.after)} change" in one.why
    a, b = (next(one for one in settings_that_ran([RUNS[name]])) for name in ("us0460", "us0463"))
    assert step_of(a, b) == ""  # the mesh and the micro-batch


def test_programs_that_stall_are_told_and_are_no_precedents() -> None:
    stalled = [record for record in records() if record.speedup and record.speedup > MOST_TELLING]
    assert stalled
    assert not precedents_of(stalled)
    zero = [record for record in records() if any("Without ZeRO" in text for text in record.caveats)]
    assert zero
    for record in zero:
        sides = [side for side in (record.before, record.after) if side.training["weight_sharding"] == "none"]
        assert any(side.mesh["ici"].get("pipeline", 1) > 1 and side.mesh["ici"].get("data", 1) > 1 for side in sides)


def test_precedents_of_a_workload_can_be_left_out() -> None:
    workload = RUNS["us0460"].workload
    kept = without_workload(published(), workload)
    left = {item.id for item in published()} - {item.id for item in kept}
    assert left
    assert all(RUNS[name.split("--")[1].split("-")[0]].workload == workload for name in left)
    assert not any(item.id.startswith(workload_prefix(workload)) for item in kept)
