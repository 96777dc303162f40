"""The records that every installation starts with: where they come from, and that they say what their sources say."""

import json

import pytest

from evaluation.published import RUNS_FILE
from evaluation.seeds import build
from history import seeds
from history.record import OUTCOMES
from perfmodel.chips import get_chip
from perfmodel.config import Mesh

RECORDS = {record.id: record for record in seeds.records()}
ROWS = {row["id"]: row for row in json.loads(RUNS_FILE.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("name", ["optico.json", "runs.json"])
def test_the_committed_file_is_what_the_program_draws_from_the_tables(name: str) -> None:
    assert (seeds.FOLDER / name).read_text(encoding="utf-8") == build.built()[name]


def test_every_record_has_a_source_that_can_be_opened_and_a_licence() -> None:
    for record in RECORDS.values():
        assert record.source and record.licence, record.id
        assert record.url.startswith("https://"), record.id


def test_gains_losses_ties_and_failures_are_all_there() -> None:
    found = {outcome: [r for r in RECORDS.values() if r.outcome == outcome] for outcome in OUTCOMES}
    assert {outcome: len(records) >= 5 for outcome, records in found.items()} == dict.fromkeys(OUTCOMES, True)
    assert all(record.speedup is None and record.failure for record in found["failed"])


def test_a_record_without_a_speed_up_says_why() -> None:
    for record in RECORDS.values():
        if record.speedup is None and record.outcome != "failed":
            assert record.caveats and record.outcome == "not_timed", record.id


def test_the_papers_first_experiment_is_in_and_the_others_are_not() -> None:
    """Experiments 2 and 3 (v6e-16; v5e-256 with model 4, seq 16) must be solved without a record of them."""
    first = RECORDS["asap-1"]
    assert first.before.mesh == {"ici": {"model": 8, "data": 8, "seq": 8}, "dcn": {}}
    assert first.after.mesh == {"ici": {"model": 8, "data": 16, "seq": 4}, "dcn": {}}
    assert first.speedup == pytest.approx(1 / 0.72, abs=1e-4)
    others = [r for r in RECORDS.values() if r.id != "asap-1"]
    assert not any("ASAP" in r.source or "2511.03844" in r.url for r in others)
    assert not any(r.chip == "v6e" and r.chips == 16 for r in others)
    assert not any(r.chip == "v5e" and r.chips == 256 and r.before.mesh for r in others)


def test_a_mesh_covers_its_chips_and_names_axes_the_model_knows() -> None:
    for record in RECORDS.values():
        for side in (record.before, record.after):
            if side.mesh is None:
                continue
            mesh = Mesh(tuple(side.mesh["ici"].items()), tuple(side.mesh["dcn"].items()))
            assert all(mesh.role(axis) for axis, _ in (*mesh.ici, *mesh.dcn)), record.id
            assert mesh.ici_product * mesh.dcn_product == record.chips, record.id


def test_chips_are_in_the_catalogue_and_topologies_hold_them() -> None:
    for record in RECORDS.values():
        if record.chip:
            get_chip(record.chip)
        if record.topology:
            size = 1
            for length in record.topology:
                size *= length
            assert size * record.slices == record.chips, record.id


def test_a_pair_of_published_runs_is_one_workload_and_its_effect_is_theirs() -> None:
    pairs = [record for record in RECORDS.values() if record.id.startswith("runs-")]
    assert 40 <= len(pairs) <= 150
    for record in pairs:
        before, after = (ROWS[name] for name in record.id.split("-")[1:])
        assert (before["model"], before["chips"], before["seq_len"]) == (
            after["model"],
            after["chips"],
            after["seq_len"],
        )
        assert before["accelerator"] == after["accelerator"]
        key = "tokens_per_s_per_chip" if record.measure == "tokens/s per chip" else "tflops_per_chip"
        assert record.speedup == pytest.approx(after[key] / before[key], abs=1e-4)


def test_pairs_do_not_say_the_same_change_twice_in_both_directions() -> None:
    seen = set()
    for record in RECORDS.values():
        if record.id.startswith(("runs-", "optico-figure5")):
            both = frozenset(
                json.dumps([side.label, dict(side.training)], sort_keys=True) for side in (record.before, record.after)
            )
            key = (record.model_name, record.chip, record.chips, both)
            assert key not in seen, record.id
            seen.add(key)


def test_a_known_step_of_opticos_expert() -> None:
    """Figure 5: TP 2 to 4 at PP 1, micro-batch 1, batch 512 took 209.13 to 186.98 TFLOP/s per GPU."""
    (step,) = [r for r in RECORDS.values() if r.title.startswith("TP 2 → 4 at PP 1")]
    assert step.speedup == pytest.approx(186.98 / 209.13, abs=1e-4)
    assert step.outcome == "slower"
    assert step.before.kpis["peak_bytes"] == pytest.approx(57026.56 * 2**20, abs=1)


def test_runs_out_of_memory_are_the_side_after_a_run_that_fitted() -> None:
    failed = [r for r in RECORDS.values() if r.id.startswith("optico-figure5") and r.outcome == "failed"]
    assert {r.change for r in failed} == {"PP 2 → 1", "PP 4 → 8", "TP 2 → 1", "micro-batch 1 → 2"}
    assert all(r.before.kpis and not r.after.kpis and r.failure == "out_of_memory" for r in failed)


def row(**changes):
    return {"id": "x", "title": "t", "changes": ["mesh"], "source": "s", "speedup": 1.5, "measure": "m", **changes}


@pytest.mark.parametrize(
    ("changes", "column"),
    [
        ({"speed_up": 1.5}, "speed_up"),
        ({"source": ""}, "source"),
        ({"changes": ["sharding"]}, "changes"),
        ({"outcome": "quicker"}, "outcome"),
        ({"bottleneck": "hbm"}, "bottleneck"),
        ({"speedup": 0.9, "outcome": "faster"}, "outcome"),
        ({"measure": ""}, "measure"),
        ({"outcome": "failed", "speedup": None}, "failure"),
        ({"before": {"mfu": 0.4}}, "before.mfu"),
    ],
)
def test_a_row_that_breaks_a_rule_does_not_load(changes, column: str, tmp_path, monkeypatch) -> None:
    (tmp_path / "some.json").write_text(json.dumps([row(**changes)]))
    monkeypatch.setattr(seeds, "FOLDER", tmp_path)
    seeds.records.cache_clear()
    with pytest.raises(seeds.SeedError, match=rf"some.json, row 1, {column}: "):
        seeds.records()
    seeds.records.cache_clear()
