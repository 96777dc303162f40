from __future__ import annotations

import dataclasses

import pytest

from experiments.models import Event
from proposals.models import PlanRecord
from proposals.plan import Predicted
from proposals.services import backing, checks, plans
from tests.backend.factories import CONFIG, diagnosis, plan, step_profile


def values(sentence):
    return [claim.value for claim in backing.claims(sentence)]


@pytest.mark.parametrize(
    ("sentence", "found"),
    [
        ("The step takes 1.25 s.", [1.25]),
        ("It takes 830 ms instead of 1,250 ms.", [0.83, 1.25]),
        ("All-gathers take 41.6 % of it.", [0.416]),
        ("12% and 1.3× and 1.3x", [0.12, 1.3, 1.3]),
        ("12 GB of 31.25 GiB", [12e9, 31.25 * 2**30]),
        ("819 GB/s, 197 TFLOP/s, 3.2 MB per step", [819e9, 197e12, 3.2e6]),
        ("It drops by −12 % to 2.5e-3 s", [0.12, 0.0025]),
        ("262,144 tokens on 16 chips.", [262144, 16]),
        ("on a v5p or v6e-16 with bf16 and int8, fusion.12 and all-reduce.3", []),
        ("`%dot.42 = bf16[8,128] dot(%a.1)` is slow", []),
        ("see chapter 5 and section 3.2, §4.1 and appendix A.3", []),
        ("as in arXiv 2511.03844 and arXiv:2511.03844", []),
        ("data 4 · seq 4", [4, 4]),
        ("15.5 GB.", [15.5e9]),
        ("between 0.8 and 1.1 s", [0.8, 1.1]),
    ],
)
def test_the_numbers_of_a_sentence_are_read_in_si(sentence, found):
    assert values(sentence) == pytest.approx(found)


@pytest.mark.parametrize(
    ("fact", "sentence", "backed"),
    [
        (0.41603, "41.6 % of the step", True),
        (0.41603, "41.7 % of the step", False),
        (0.41603, "42 % of the step", True),
        (1.2534, "1.25 s", True),
        (1.2534, "1.26 s", False),
        (1.2534, "1,253 ms", True),
        (-0.12, "12 %", True),
        (31.25 * 2**30, "31.25 GiB", True),
        (31.25 * 2**30, "33.55 GB", True),
        (31.25 * 2**30, "31.25 GB", False),
        (1.234e12, "1,230 GFLOP", True),
        (7.0, "123 ms", False),
        (7.0, "2 of the 3 axes", True),
        (7.0, "2 s", False),
    ],
)
def test_a_number_is_backed_to_the_digits_it_is_printed_with(fact, sentence, backed):
    assert (backing.unbacked(sentence, backing.Facts([fact])) == []) is backed


def test_ratios_and_differences_of_a_prediction_and_its_baseline_are_backed():
    before = Predicted({"estimate": 2.0}, hbm_per_chip_bytes={"total": 12e9, "capacity": 16e9})
    after = Predicted({"estimate": 1.6}, 1.25, hbm_per_chip_bytes={"total": 14e9, "capacity": 16e9})
    printed = backing.numbers([dataclasses.asdict(before), dataclasses.asdict(after)])
    facts = backing.Facts([*backing.derived(before, after), *printed])
    for sentence in (
        "0.4 s less",
        "20 % less time",
        "1.25× as fast",
        "25 % faster",
        "2 GB more",
        "87.5 % of the memory",
    ):
        assert backing.unbacked(sentence, facts) == [], sentence
    assert backing.unbacked("30 % faster", facts) == ["30 %"]


@pytest.fixture
def checked(ready):
    """Check a plan as the Coordinator does; the plan record, and the verdict."""

    def check(value):
        from experiments.services import configuration

        PlanRecord.objects.all().delete()
        record = plans.store(ready.run, value)
        profile = step_profile()
        config = configuration.check(CONFIG).config
        verdict = checks.check(record, config, diagnosis(profile), profile)
        return record, verdict

    return check


def changed(value, **fields):
    first, *others = value.proposals
    return dataclasses.replace(value, proposals=(dataclasses.replace(first, **fields), *others))


def test_a_legal_plan_with_traced_numbers_passes(checked):
    _, verdict = checked(plan())
    assert verdict.broken == ()
    assert verdict.struck == ()
    assert verdict.claims > 5


def test_a_sentence_with_a_number_from_nowhere_is_taken_out_and_kept_in_the_trace(ready, checked):
    invented = "All-gathers take 77.7 % of the step."
    record, verdict = checked(changed(plan(), reasoning=(invented, "All-gathers take 41.6 % of the step.")))
    assert [(s.rank, s.field, s.numbers) for s in verdict.struck] == [(1, "reasoning", ("77.7 %",))]
    checks.store(ready.run, record, verdict)
    assert record.proposals.get(rank=1).data["reasoning"] == ["All-gathers take 41.6 % of the step."]
    event = Event.objects.get(kind="rejected_claim")
    assert event.data["sentence"] == invented


@pytest.mark.parametrize(
    ("mesh", "changes", "why"),
    [
        ({"ici": {"data": 8}, "dcn": {}}, {}, "cannot run"),
        ({"ici": {"data": 1, "model": 16}, "dcn": {"data": 1}}, {}, "breaks the rule kv_heads"),
        ({"ici": {"data": 16}, "dcn": {"data": 1}}, {"weight_sharding": "none"}, "does not fit"),
    ],
)
def test_an_illegal_or_too_large_proposal_never_reaches_a_user(ready, checked, mesh, changes, why):
    record, verdict = checked(changed(plan(), mesh=mesh, changes=changes))
    assert any(why in sentence for sentence in verdict.broken), verdict.broken
    with pytest.raises(RuntimeError, match="Proposal 1"):
        checks.store(ready.run, record, verdict)


def test_to_keep_what_runs_is_always_possible(checked):
    _, verdict = checked(changed(plan(), kind="keep", mesh=CONFIG["mesh"], changes={}))
    assert verdict.broken == ()
