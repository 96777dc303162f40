"""Two profiles side by side, from hand-written steps whose differences are known."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings

from asapweb.cli.dispatch import dispatch
from diagnosis.analyzer import diagnose
from diagnosis.compare import compare
from diagnosis.compare.comparison import Comparison
from experiments.sentences import spans_of, values
from experiments.step_profile import Op, StepProfile
from perfmodel.config import ExperimentConfig, ModelShape
from tests.diagnosis.arbitrary import configs, profiles
from tests.diagnosis.build import collective, config, matmul, profile, stream
from tests.diagnosis.test_numbers import QUANTITY

pytestmark = pytest.mark.slow

OVER_MODEL = "replica_groups=[4,4]<=[16]"
OVER_DATA = "replica_groups=[4,4]<=[4,4]T(1,0)"
BEFORE = config({"data": 4, "model": 4}, (4, 4), global_batch=64, seq_len=1024)
PATH = "jit(step)/jvp(loss)/layer/mlp"


def scaled(made: StepProfile, step_s: float) -> StepProfile:
    """The same shares in a step of another length."""
    factor = step_s / (made.step_time_s or 1.0)
    ops = tuple(
        replace(op, self_time_s=op.self_time_s * factor, total_time_s=op.total_time_s * factor) for op in made.ops
    )
    steps = tuple(replace(step, time_s=step.time_s * factor) for step in made.steps)
    return replace(made, step_time_s=step_s, steps=steps, ops=ops)


def compared(
    before: StepProfile,
    after: StepProfile,
    one: ExperimentConfig | None = BEFORE,
    two: ExperimentConfig | None = BEFORE,
) -> Comparison:
    return compare((one, diagnose(before, one)), (two, diagnose(after, two)))


def reduced(share: float, name: str = "all-reduce.7", groups: str = OVER_MODEL) -> Op:
    return collective("all-reduce", share, groups, name=name, op_name=f"{PATH}/psum", source="model.py:7")


def test_the_same_profile_twice() -> None:
    made = profile(matmul("fusion.1", 0.6), reduced(0.3), stream("fusion.2", 0.1))
    result = compared(made, made)
    assert result.comparability.comparable is True and result.comparability.basis == "step"
    assert result.configuration == () and result.speedup == pytest.approx(1.0)
    assert all(row.change == 0 for row in (*result.ops, *result.breakdown, *result.collectives))
    assert all(row.change in (0, None) for row in result.kpis)
    assert (result.matched_before, result.matched_after) == (1.0, 1.0)
    assert {row.state for row in result.findings} <= {"stays"}


def test_a_smaller_tensor_axis() -> None:
    """A step of 1 s with 0.4 s of all-reduces becomes one of 0.75 s with 0.15 s; products keep their 0.6 s.

    Fusions have other numbers, and the all-reduce another one and other groups.
    """
    before = profile(matmul("fusion.1", 0.6), reduced(0.4))
    after = scaled(profile(matmul("fusion.99", 0.8), reduced(0.2, "all-reduce.31", OVER_DATA)), 0.75)
    two = config({"data": 8, "model": 2}, (4, 4), global_batch=64, seq_len=1024)
    result = compared(before, after, BEFORE, two)
    assert result.comparability.comparable is True
    assert [(row.field, row.before, row.after) for row in result.configuration] == [
        ("mesh.ici.data", 4, 8), ("mesh.ici.model", 4, 2),
    ]  # fmt: skip
    assert result.speedup == pytest.approx(1 / 0.75)
    assert result.matched_before == result.matched_after == 1.0
    worst = result.ops[0]
    assert worst.collective == "all-reduce" and worst.matched_by == "path"
    assert (worst.before, worst.after, worst.change) == pytest.approx((0.4, 0.15, -0.25))
    assert next(op for op in result.ops if op.collective is None).change == pytest.approx(0.0)
    assert sum(row.change for row in result.breakdown) == pytest.approx(-0.25)
    assert "1.33× faster" in result.statement[0]
    assert any("mesh.ici.data and mesh.ici.model" in text for text in result.statement)
    step = next(row for row in result.kpis if row.key == "step_time_s")
    assert (step.change, step.ratio, step.better) == (pytest.approx(-0.25), pytest.approx(0.75), "lower")


def test_ops_that_came_and_went() -> None:
    before = profile(
        matmul("fusion.1", 0.7), stream("copy.4", 0.3, category="data formatting", op_name="jit(s)/x/transpose")
    )
    after = profile(matmul("fusion.1", 0.7), collective("all-to-all", 0.3, OVER_MODEL, op_name="jit(s)/moe/all_to_all"))
    result = compared(before, after)
    gone = next(op for op in result.ops if op.after is None)
    new = next(op for op in result.ops if op.before is None)
    assert (gone.category, gone.before, gone.change) == ("data formatting", pytest.approx(0.3), pytest.approx(-0.3))
    assert (new.collective, new.after) == ("all-to-all", pytest.approx(0.3))
    assert result.matched_before == result.matched_after == pytest.approx(0.7)
    assert sum(op.change for op in result.ops) == pytest.approx(0.0)
    states = {row.rule: row.state for row in result.findings}
    assert states["data_shuffle"] == "gone" and states["tensor_parallel_communication"] == "new"
    assert any("not in the second profile" in text for text in result.statement)


def test_other_batches_are_compared_per_token() -> None:
    """Twice the tokens in 1.5 times the time is 1.33 times faster per token."""
    before = profile(matmul("fusion.1", 0.9))
    after = scaled(before, 1.5)
    two = replace(BEFORE, training=replace(BEFORE.training, global_batch=128))
    result = compared(before, after, BEFORE, two)
    fit = result.comparability
    assert fit.comparable is False and fit.basis == "token"
    assert fit.reasons == ("The global batch differs: 64 and 128.",)
    assert result.speedup == pytest.approx(2 / 1.5)
    assert next(row for row in result.kpis if row.key == "time_per_token_s").before == pytest.approx(16 / 65536)
    rate = next(row for row in result.kpis if row.key == "tokens_per_s_per_chip")
    assert (rate.before, rate.better) == (pytest.approx(65536 / 16), "higher")
    half = replace(
        BEFORE,
        hardware=replace(BEFORE.hardware, topology=(4, 8)),
        mesh=replace(BEFORE.mesh, ici=(("data", 8), ("model", 4))),
    )
    assert compared(before, before, BEFORE, half).speedup == pytest.approx(0.5)


def test_other_models_and_missing_facts_leave_shares() -> None:
    made = profile(matmul("fusion.1", 0.9))
    small = ModelShape(2, 256, 512, 4, 4, 64, 1000, name="small")
    one, two = replace(BEFORE, model=small), replace(BEFORE, model=replace(small, layers=4, name="large"))
    result = compared(made, made, one, two)
    assert result.comparability.basis == "share" and result.speedup is None
    assert not any(row.better for row in result.kpis)
    step = next(row for row in result.kpis if row.key == "step_time_s")
    assert step.before == step.after and step.change is None
    assert result.comparability.reasons == ("The models differ: small and large.",)
    assert {row.field for row in result.configuration} == {"model.layers"}
    renamed = compared(made, made, one, replace(BEFORE, model=replace(small, name="the same by another name")))
    assert renamed.comparability.comparable is True
    unknown = config({"data": 4, "model": 4}, (4, 4), global_batch=64)
    two = replace(unknown, training=replace(unknown.training, global_batch=32))
    assert compared(made, made, unknown, two).comparability.basis == "share"
    nobody = compared(made, made, None, None)
    assert nobody.comparability.comparable is None and nobody.speedup == pytest.approx(1.0)


def test_precision_and_chip_are_named() -> None:
    made = profile(matmul("fusion.1", 0.9))
    other = replace(
        BEFORE, training=replace(BEFORE.training, precision="fp8"), hardware=replace(BEFORE.hardware, chip="v6e")
    )
    fit = compared(made, made, BEFORE, other).comparability
    assert fit.comparable is False and fit.basis == "step"
    assert fit.reasons == ("The chips differ: v5e and v6e.", "The precision differs: bf16 and fp8.")


def test_only_what_differs_in_the_configuration() -> None:
    made = profile(matmul("fusion.1", 0.9))
    turned = replace(BEFORE, mesh=replace(BEFORE.mesh, ici=(("model", 4), ("data", 4), ("seq", 1))))
    changes = compared(made, made, BEFORE, turned).configuration
    assert [(row.field, row.before, row.after) for row in changes] == [
        ("mesh.order", ["data", "model"], ["model", "data"])
    ]
    assert compared(made, made, BEFORE, turned).comparability.comparable is True


def test_a_difference_within_the_spread_is_no_difference() -> None:
    made = replace(profile(matmul("fusion.1", 0.9)), step_time_stdev_s=0.05)
    result = compared(made, replace(scaled(made, 1.01), step_time_stdev_s=0.05))
    assert result.significant is False and "within step-time variation" in result.statement[0]
    assert compared(made, replace(scaled(made, 1.5), step_time_stdev_s=0.05)).significant is True
    assert compared(made, replace(made, step_time_stdev_s=None)).significant is None


def test_numbers_of_the_statement() -> None:
    before = profile(matmul("fusion.1", 0.5), reduced(0.4), stream("fusion.2", 0.1))
    after = scaled(profile(matmul("fusion.3", 0.7), reduced(0.1), stream("fusion.2", 0.2)), 0.8)
    result = compared(before, after)
    for words in (span for text in result.statement for span in spans_of(text) if isinstance(span, str)):
        assert not QUANTITY.search(words), words
    found = values(*result.statement)
    assert len(found) >= 6 and {(value.field, value.value) for value in found} == {
        (row.field, row.value) for row in result.evidence
    }


@settings(max_examples=40, deadline=None)
@given(profiles(), profiles(), configs(), configs())
def test_anything_can_be_compared(
    one: StepProfile, two: StepProfile, a: ExperimentConfig | None, b: ExperimentConfig | None
) -> None:
    """Whatever was measured: it never raises, books balance, and the reverse is the reverse."""
    forth, back = compared(one, two, a, b), compared(two, one, b, a)
    json.dumps(forth.to_json(), allow_nan=False)
    assert forth.comparability.basis == back.comparability.basis
    assert 0 <= forth.matched_before <= 1 and 0 <= forth.matched_after <= 1
    assert sum(row.change for row in forth.ops) == pytest.approx(-sum(row.change for row in back.ops), abs=1e-9)
    if forth.speedup and back.speedup:
        assert forth.speedup * back.speedup == pytest.approx(1.0)
    assert forth.statement


def test_command_line(capsys: pytest.CaptureFixture[str], tmp_path: pytest.TempPathFactory) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path))
    rows = [{"name": "fusion.1", "category": "loop fusion", "time_share": 0.8, "op_name": "jit(s)/mul"}]
    for name, step in (("a", 200), ("b", 100)):
        (folder / f"{name}.json").write_text(json.dumps({"kpis": {"step_time_ms": step}, "ops": rows}))
    arguments = ["compare", str(folder / "a.json"), "--with", str(folder / "b.json")]
    assert dispatch([*arguments, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["speedup"] == pytest.approx(2.0) and answer["comparability"]["comparable"] is None
    assert dispatch(arguments) == 0
    assert "200 ms → 100 ms" in capsys.readouterr().out
    assert dispatch(["compare", str(folder / "a.json"), "--with", str(folder / "none.json")]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1


def test_a_group_of_several_paths_is_not_named_after_its_largest_op() -> None:
    before = profile(
        matmul("fusion.1", 0.2, op_name="jit(s)/mlp/gate/dot_general"),
        matmul("fusion.2", 0.4, op_name="jit(s)/attention/query/dot_general"),
    )
    after = profile(stream("copy.4", 0.9, category="data formatting", op_name="jit(s)/x/transpose"))
    gone = next(op for op in compared(before, after).ops if op.after is None)
    assert gone.before == pytest.approx(0.6)
    assert (gone.label, gone.module) == ("fusion", "")


def test_a_model_beside_none_shows_only_what_it_states() -> None:
    small = ModelShape(2, 256, 512, 4, 4, 64, 1000, name="small")
    made = profile(matmul("fusion.1", 0.9))
    found = {row.field for row in compared(made, made, replace(BEFORE, model=small), BEFORE).configuration}
    assert "model.layers" in found and "model.kv_lora_rank" not in found
