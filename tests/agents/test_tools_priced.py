"""What tools price: nothing without the fact that decides, each row by itself, and with what it is made of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evaluation.quality.evidence import PROFILES, ask, bench, refusal
from experiments.step_profile import Memory
from perfmodel.chips import load_chips
from perfmodel.config import Hardware, Mesh
from proposals.agents.workbench import Workbench
from proposals.constraints import Constraints

TOLD = {"model.name": "llama3.1-8b", "training.global_batch": 128, "training.seq_len": 4096}


def known(name: str = "asap-experiment-1") -> Workbench:
    """The run with model, batch and length."""
    return bench(name).with_facts(TOLD)


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ({"global_batch": 64}, "the global batch"),
        ({"seq_len": 16384}, "the sequence length"),
        ({"grad_accum": 4}, "the global batch and the sequence length"),
    ],
)
def test_a_change_of_what_is_unknown_is_not_priced_and_says_what_is_missing(
    change: dict[str, int], missing: str
) -> None:
    of = bench("asap-experiment-2")
    ran = dict(of.config.mesh.ici)
    assert missing in refusal(of, "predict", ici=ran, changes=change)
    assert ask(of, "predict", ici=ran, changes={"remat": "minimal"})["step_time_s"]
    assert ask(of.with_facts(TOLD), "predict", ici=ran, changes=change)["step_time_s"]


def test_of_meshes_set_side_by_side_the_bad_one_is_named_and_the_others_are_answered() -> None:
    of = bench("asap-experiment-1")
    good, bad = {"ici": {"data": 8, "seq": 16, "model": 4}}, {"ici": {"rows": 3}}
    found = ask(of, "compare_meshes", configurations=[bad, good])
    (row,), (refused,) = found["configurations"], found["not_priced"]
    assert row["configuration"] == 2 and row["mesh"]["ici"]["seq"] == 16
    assert refused["configuration"] == 1 and "rows" in refused["reason"]
    assert found["fastest_legal"] == 2
    assert "None of them" in refusal(of, "compare_meshes", configurations=[bad, bad])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["asap-experiment-1", "gradients over DCN", "tensor axis across NVLink domains"])
def test_predicted_communication_is_bytes_over_bandwidth(name: str) -> None:
    of = known(name)
    mesh = of.config.mesh.to_json()
    rows = ask(of, "predict", ici=mesh["ici"], dcn=mesh["dcn"])["traffic"]
    assert rows
    for row in rows:
        assert row["calls_per_step"] > 0
        if "bandwidth_per_chip_bytes_per_s" in row:
            seconds = row["sent_bytes_per_chip"] / row["bandwidth_per_chip_bytes_per_s"]
            assert seconds == pytest.approx(row["at_full_bandwidth_s"])
            assert row["sent_bytes_per_call"] == pytest.approx(row["sent_bytes_per_chip"] / row["calls_per_step"])
        assert row.get("axes") or row.get("dcn_axes")
        for axis in row.get("axes", ()):
            assert mesh["ici"][axis] > 1


def test_without_the_model_no_bytes_are_claimed() -> None:
    of = bench("asap-experiment-1")
    assert "traffic" not in ask(of, "predict", ici=dict(of.config.mesh.ici))


@pytest.mark.parametrize("name", PROFILES)
def test_the_time_of_a_run_is_given_in_hours_as_in_days(name: str) -> None:
    rows = ask(bench(name), "cost", steps=1000)["rows"]
    for row in rows:
        assert row["hours_of_the_run"] == pytest.approx(24 * row["days_of_the_run"])
        assert row["hours_of_the_run"] == pytest.approx(row["steps_of_the_run"] * row["step_time_s"] / 3600)
    by_hours = ask(bench(name), "cost", steps=1000, hours=48)["within_days"]
    assert by_hours == ask(bench(name), "cost", steps=1000, days=2)["within_days"]


@pytest.mark.parametrize("chip", sorted(load_chips()))
def test_a_chip_is_told_with_its_host_link_and_its_devices(chip: str) -> None:
    found = ask(bench(), "hardware", chip=chip)
    assert found["host_link_bytes_per_s"] > 1e9
    assert found["devices_per_chip"] == (2 if chip in ("v3", "tpu7x") else 1)
    assert ("devices" in found) == chip.startswith(("v3", "v4", "v5", "v6", "tpu"))


def test_on_a_chip_with_less_memory_remat_changes_unless_it_is_kept() -> None:
    """8 chips of v5p hold an 8B model without remat; of v6e, with a third of the memory, they do not."""
    of = bench("asap-experiment-1")
    config = replace(
        of.config, hardware=Hardware("v5p", (2, 2, 2)), mesh=Mesh((("fsdp", 8),)),
        training=replace(of.config.training, remat="minimal", global_batch=16, seq_len=4096),
        model=known().config.model,
    )  # fmt: skip
    small = Workbench.of_values(replace(of.profile, memory=Memory()), config)  # its peak is another run's
    there = ask(small, "retarget", chip="v6e")
    assert "memory" in refusal(small, "retarget", chip="v6e", changes={"remat": "minimal"})
    assert there["there"]["fits"] and there["there"]["remat"] != "minimal"
    assert "minimal does not fit" in there["note"]


def test_a_forward_pass_is_called_inference() -> None:
    of = bench("asap-experiment-1")
    assert "program" not in ask(of, "run")
    forward = tuple(replace(op, op_name="jit(serve)/decode/attention/dot_general") for op in of.profile.ops)
    served = Workbench.of_values(replace(of.profile, ops=forward, source_kind="xplane"), of.config)
    assert ask(served, "run")["program"].count("inference")


def test_what_is_faster_than_all_proposals_and_no_candidate_is_found_with_the_reason() -> None:
    of = bench("asap-experiment-1")
    best = max(item.proposal.predicted.speedup or 0.0 for item in of.proposals)
    rows = ask(of, "search")["faster_but_excluded"]
    assert "minimal" in [row["changes"].get("remat") for row in rows]
    for row in rows:
        assert row["speedup_per_token"] > best
        assert "the model is unknown" in row["why_not_proposed"]
    one = ask(of, "predict", ici=dict(of.config.mesh.ici), changes={"remat": "minimal"})
    assert one["why_not_proposed"] == next(r for r in rows if r["changes"] == {"remat": "minimal"})["why_not_proposed"]
    assert "faster_but_excluded" not in ask(known(), "search")
    held = of.with_constraints(Constraints(keep_remat=True))
    assert not [row for row in ask(held, "search").get("faster_but_excluded", ()) if "remat" in row["changes"]]


def test_a_mesh_that_is_left_out_for_a_missing_fact_is_priced_and_says_so() -> None:
    of = bench("asap-experiment-1")
    rows = [row for row in ask(of, "rejected", top=40)["rows"] if row["rule"].endswith("_unknown")]
    assert rows
    for row in rows[:3]:
        found = ask(of, "predict", ici=row["mesh"]["ici"], dcn=row["mesh"]["dcn"])
        assert found["may_run"] and row["reason"] in found["why_not_proposed"]
        assert "unchecked" in row["whose_rule"]


def test_arithmetic_is_done_and_nothing_else() -> None:
    of = bench()
    assert ask(of, "calculate", expression="(12.7e-3 + 3.1e-3) × 2", unit="s") == {
        "value": pytest.approx(0.0316), "unit": "s",
    }  # fmt: skip
    assert ask(of, "calculate", expression="ceil(512 / 100) - min(2, 3)")["value"] == 4.0
    for wrong in ("__import__('os')", "2 ** 9999999", "1 / 0", "'a' * 9", "(1).real", "1e308 * 10", "1 +", "x"):
        assert refusal(of, "calculate", expression=wrong)


def test_a_limit_of_memory_holds_for_every_candidate() -> None:
    of = known()
    usable = ask(of, "hardware")["hbm_usable_bytes"]
    held = 0.6 * usable
    rows = ask(of, "search", constraints={"memory_at_most_bytes": held})["candidates"]
    moved = [row for row in rows if not row.get("is_current")]
    assert moved
    assert all(row["hbm_per_chip_bytes"]["total"] <= held * (1 + 1e-9) for row in moved)
    assert "at most 0.5" in refusal(of, "search", constraints={"memory_at_most_bytes": 0.1 * usable})
