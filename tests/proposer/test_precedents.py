"""What the optimization database teaches: which records count, what is a repeat, what a failed run warns of."""

from __future__ import annotations

from dataclasses import replace
from math import exp, hypot, log
from typing import Any

import numpy as np
import pytest

from diagnosis.analyzer import diagnose
from history.case import Case
from history.labels import chip_likeness
from history.moves import KEYS, ROLES
from history.record import Record, Side
from history.uncertainty import NOISE_UNPRICED
from proposals.candidate import Candidate
from proposals.plan import Plan
from proposals.proposer import Pricer
from proposals.proposer.precedents import Library, case_of_change, closest_precedents, precedents_of, published
from tests.proposer.test_propose import MATMUL, NORM, TENSOR, config, profile_of

BEFORE = Side(mesh={"ici": {"data": 4, "model": 4}}, training={"global_batch": 32, "seq_len": 4096, "remat": "full"})
AFTER = Side(mesh={"ici": {"data": 16, "model": 1}}, training={"global_batch": 32, "seq_len": 4096, "remat": "full"})
RECORD = Record(
    id="r-1", title="Less tensor parallelism", change="model 4 → 1", changes=("mesh",), before=BEFORE, after=AFTER,
    outcome="faster", source="a test", chip="v5p", chips=16, bottleneck="communication", speedup=1.25,
    measure="step time", effect="Steps were 20 % shorter", caveats=("One run.",), url="https://example.org/r",
    parameters=8e9,
)  # fmt: skip


def test_a_record_with_both_meshes_and_an_effect_is_a_precedent() -> None:
    (found,) = precedents_of([RECORD])
    assert found.time_ratio == pytest.approx(0.8)
    assert found.case.move == {"data": 2.0, "model": -2.0, "micro_batch": -2.0}
    cited = found.citation()
    assert (cited.source, cited.key, cited.section) == ("history", "r-1", "r-1")
    assert "20 % shorter" in cited.statement and "One run." in cited.statement


@pytest.mark.parametrize(
    "record",
    [
        replace(RECORD, speedup=None),
        replace(RECORD, chip=""),
        replace(RECORD, chip="an abacus"),
        replace(RECORD, before=Side()),
        replace(RECORD, changes=("mesh", "kernel")),
        replace(RECORD, changes=("mesh", "batch")),  # by how much it does not say
        replace(RECORD, outcome="failed", failure="illegal_mesh", speedup=None),
    ],
)
def test_a_record_that_does_not_say_enough_is_none(record: Record) -> None:
    assert not precedents_of([record])


def test_custom_axes_and_training_keys_are_read_by_their_roles() -> None:
    side = replace(BEFORE, mesh={"ici": {"fsdp": 4, "mdl": 4}}, axis_roles={"mdl": "model"})
    more = replace(
        AFTER, mesh={"ici": {"fsdp": 16, "mdl": 1}}, axis_roles={"mdl": "model"}, training={"global_batch": 64}
    )  # fmt: skip
    (found,) = precedents_of([replace(RECORD, before=side, after=more, changes=("mesh", "batch"))])
    assert found.after == {"data": 16, "model": 1}
    assert found.case.move["global_batch"] == 1.0


def test_shipped_precedents_hold_the_papers_first_experiment_and_not_the_others() -> None:
    ids = {item.id for item in published()}
    assert "asap-1" in ids
    assert not {"asap-2", "asap-3"} & ids
    assert len(ids) == len(published()) > 10


def case(**values: Any) -> Case:
    known = {"chip": "v5p", "chips": 16, "parameters": 8e9, "batch": 32, "seq_len": 4096, "bottleneck": "communication"}
    return Case(**{**known, "roles": {"data": 4, "model": 4}, **values})  # type: ignore[arg-type]


def library(*records: Record, **values: Any) -> Library:
    return Library(precedents_of(records), case(**values))


def asked(held: Library, remat_after: str = "full", **moved: float) -> tuple[float, float] | None:
    """Mean and spread of what was measured of one move, None where it was not."""
    moved.setdefault("micro_batch", -moved.get("data", 0.0))
    row = np.array([[moved.get(name, 0.0) for name in (*ROLES, *KEYS)]])
    found = held.support(row, np.zeros((1, len(ROLES))), [remat_after], None)
    return (float(found.measured[0]), float(found.spread[0])) if np.isfinite(found.spread[0]) else None


LESS_TENSOR = {"data": 2.0, "model": -2.0}


def test_a_change_of_remat_is_the_same_only_towards_the_same_policy() -> None:
    """Steps of recomputation alone do not tell offloading from full recomputation."""
    after = replace(RECORD.after, training={**RECORD.after.training, "remat": "full"})
    before = replace(RECORD.before, training={**RECORD.before.training, "remat": "none"})
    known = library(replace(RECORD, before=before, after=after, changes=("mesh", "remat")), settings={"remat": "none"})
    move = {**LESS_TENSOR, "remat": 2.0}
    assert asked(known, **move) is not None
    assert asked(known, remat_after="offload", **move) is None


def test_what_changes_beside_a_recorded_move_is_no_repeat() -> None:
    assert asked(library(RECORD), **{**LESS_TENSOR, "xla_flags": float("nan")}) is None


def test_the_same_change_of_the_same_run_is_a_measurement() -> None:
    found = asked(library(RECORD), **LESS_TENSOR)
    assert found == (pytest.approx(log(1.25)), pytest.approx(NOISE_UNPRICED))
    assert (
        asked(library(RECORD, bottleneck="memory"), **LESS_TENSOR) == found
    )  # of one run, whatever it was found to be
    for moved in ({"data": 1, "model": -1}, {"data": 4, "model": -4}, {"data": -2, "model": 2}, {"seq": 2, "data": -2}):
        assert asked(library(RECORD), **moved) is None
    for record in (replace(RECORD, parameters=8e12), replace(RECORD, chips=32), replace(RECORD, chip="v6e")):
        assert asked(library(record), **LESS_TENSOR) is None
    assert asked(library(RECORD, roles={"data": 8, "model": 2}), **LESS_TENSOR) is None
    assert asked(library(RECORD, settings={"remat": "none"}), **LESS_TENSOR) is None


def test_a_record_that_does_not_name_tokens_is_of_no_run() -> None:
    assert asked(library(replace(RECORD, before=replace(BEFORE, training={}))), **LESS_TENSOR) is None
    # The paper redacts its models; of the very same run nothing else differs.
    assert asked(library(replace(RECORD, parameters=None), parameters=None), **LESS_TENSOR) is not None


def test_repeated_measurements_are_averaged_and_what_they_disagree_on_counts_less() -> None:
    worse = replace(RECORD, id="r-2", speedup=0.8, outcome="slower")
    found = asked(library(RECORD, worse), **LESS_TENSOR)
    assert found == (pytest.approx(0.0, abs=1e-9), pytest.approx(hypot(log(1.25), NOISE_UNPRICED)))


def plan(*records: Record) -> Plan:
    ran = profile_of(MATMUL, NORM, TENSOR, step_s=1.1, communication=0.36)
    setup = config({"data": 4, "seq": 1, "model": 4}, model=None, seq_len=None)
    return Pricer(ran, setup, diagnose(ran, setup), precedents_of(records)).propose()


def test_what_was_measured_elsewhere_moves_neither_order_nor_confidence() -> None:
    """A record of twice the chips is shown as a precedent, and the plan stays as the model has it."""
    plain, taught = plan(), plan(replace(RECORD, speedup=exp(1.0), chips=32))
    assert [(x.mesh, x.confidence) for x in taught.proposals] == [(x.mesh, x.confidence) for x in plain.proposals]


def test_a_precedent_makes_a_mesh_more_likely_and_is_cited_but_is_no_part_of_the_predicted_step() -> None:
    plain, taught = plan(), plan(replace(RECORD, speedup=exp(1.0), effect="It flew"))
    before, after = (next(x for x in found.proposals if x.mesh["ici"]["model"] == 1) for found in (plain, taught))
    assert after.confidence > before.confidence
    assert after.predicted.breakdown_s == pytest.approx(before.predicted.breakdown_s)
    assert after.predicted.speedup == pytest.approx(before.predicted.speedup)
    assert [c.key for c in after.citations if c.source == "history"] == ["r-1"]
    assert any("It flew" in text for text in after.raises)


def test_what_other_flags_did_is_no_precedent_for_these() -> None:
    def flagged(*flags: str) -> Record:
        after = replace(BEFORE, training={**BEFORE.training, "xla_flags": list(flags)})
        return replace(RECORD, id=f"r{len(flags)}", after=after, changes=("xla_flags",))

    assert not precedents_of([flagged()])  # it does not say which
    flags, move = frozenset({("xla_a", "true")}), {"xla_flags": 1.0}
    assert asked(library(flagged("--xla_a=1"), flags=flags), **move) is not None
    assert asked(library(flagged("--xla_b=1"), flags=flags), **move) is None
    assert asked(library(flagged("--xla_a=1", "--xla_b=1"), flags=flags), **move) is None


def test_another_vendors_gpu_is_less_alike_than_the_same_vendors() -> None:
    nvidia, amd = (chip_likeness("h100", chip) for chip in ("b200", "mi300x"))
    assert nvidia > amd > chip_likeness("h100", "v5p") > 0.0
    assert chip_likeness("", "v5p") == 0.0  # as of a recording on CPU devices


def test_a_run_that_failed_on_the_same_mesh_lowers_its_confidence_and_is_named() -> None:
    failed = replace(
        RECORD, outcome="failed", failure="hang", speedup=None, before=Side(), title="It hung on the first step"
    )
    plain, warned = plan(), plan(failed)
    before = {item.mesh["ici"]["model"]: item for item in plain.proposals}[1]
    after = {item.mesh["ici"]["model"]: item for item in warned.proposals}.get(1)
    if after is not None:  # it may have been pushed out of the three
        assert after.confidence < before.confidence
        assert any("It hung on the first step" in text for text in after.lowers)
    first = warned.proposals[0]
    assert first.mesh["ici"]["model"] != 1 or first.confidence < before.confidence


def test_thousands_of_precedents_say_what_the_few_they_repeat_say() -> None:
    few = asked(library(RECORD), **LESS_TENSOR)
    many = asked(library(*(replace(RECORD, id=f"r-{n}") for n in range(3000))), **LESS_TENSOR)
    assert few is not None and many == pytest.approx(few)


def test_runs_of_another_model_batch_or_micro_batch_are_no_repeat() -> None:
    """They are shown, and move neither rank nor confidence."""
    named, start = replace(RECORD, model_name="llama3-8b"), {"model_name": "Llama3-8B", "micro_batch": 8.0}
    assert asked(library(named, **start), **LESS_TENSOR) is not None
    for other in ({"model_name": "mistral-7b"}, {"micro_batch": 2.0}, {"batch": 36}, {"seq_len": 4000}):
        assert asked(library(named, **{**start, **other}), **LESS_TENSOR) is None


SETUP = config({"data": 4, "seq": 1, "model": 4})


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"remat": SETUP.training.remat}, {"grad_accum": 1}, {"micro_batch": 8}, {"precision": "bf16"},
        {"xla_flags": ["--xla_tpu_x=true"]}, {"xla_flags": ["--xla_tpu_x", "--xla_tpu_y=auto"]},
    ],
)  # fmt: skip
def test_a_change_that_changes_nothing_cites_nothing(changes: dict[str, Any]) -> None:
    """Whatever it writes out: it is neither like a record's change nor a run to make that change in."""
    setup = replace(SETUP, training=replace(SETUP.training, xla_flags=("--xla_tpu_x=1",)))
    ran = profile_of(MATMUL, NORM, TENSOR, step_s=1.1, communication=0.36)
    diagnosis = diagnose(ran, setup)
    known = precedents_of([replace(RECORD, model_name="llama3.1-8b", topology=(2, 2, 4))])
    less = {"ici": {"data": 16, "seq": 1, "model": 1}, "dcn": {}}
    assert closest_precedents(known, case_of_change(setup, diagnosis, Candidate(less)))[0] is not None
    flags = Candidate(setup.mesh.to_json(), changes)
    assert closest_precedents(known, case_of_change(setup, diagnosis, flags)) == (None, None)


def test_a_citation_says_what_is_expected_here() -> None:
    taught = plan(replace(RECORD, speedup=exp(0.5)))
    said = [c.supports for item in taught.proposals for c in item.citations if c.source == "history"]
    assert said and all("Expected from this record alone: 1." in text and "× (80 % interval " in text for text in said)
