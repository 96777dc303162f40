"""The last gate: what is illegal or does not fit is never shown."""

from __future__ import annotations

import dataclasses

import pytest

from experiments.models import Event
from experiments.sentences import Value, say
from proposals.models import PlanRecord
from proposals.services import checks, plans
from tests.backend.factories import CONFIG, plan


@pytest.fixture
def checked(ready):
    """The verdict on a plan, as the Coordinator has it checked."""

    def check(value):
        PlanRecord.objects.all().delete()
        record = plans.store(ready.run, value)
        return checks.check(record)

    return check


def changed(value, **fields):
    first, *others = value.proposals
    return dataclasses.replace(value, proposals=(dataclasses.replace(first, **fields), *others))


def test_a_legal_plan_passes_with_the_count_of_its_values(ready, checked):
    value = plan()
    share = Value("all-gathers", 0.416, "share", field="finding-0-0")
    verdict = checked(changed(value, reasoning=(say("All-gathers take {}.", share), "Nothing else.")))
    assert (verdict.broken, verdict.values) == ((), 1)
    checks.store(ready.run, verdict)
    said = Event.objects.filter(run=ready.run).latest("pk").data["text"]
    assert said == "The proposals are legal and fit in memory; 1 number has a source"


@pytest.mark.parametrize(
    ("mesh", "changes", "why"),
    [
        ({"ici": {"data": 8}, "dcn": {}}, {}, "cannot run"),
        ({"ici": {"data": 1, "model": 16}, "dcn": {"data": 1}}, {}, "breaks the rule kv_heads"),
        ({"ici": {"data": 16}, "dcn": {"data": 1}}, {"weight_sharding": "none"}, "breaks the rule memory"),
    ],
)
def test_an_illegal_or_too_large_proposal_never_reaches_a_user(ready, checked, mesh, changes, why):
    verdict = checked(changed(plan(), mesh=mesh, changes=changes))
    assert any(why in sentence for sentence in verdict.broken), verdict.broken
    with pytest.raises(RuntimeError, match="Proposal 1"):
        checks.store(ready.run, verdict)


def test_to_keep_what_runs_is_always_possible(checked):
    verdict = checked(changed(plan(), kind="keep", mesh=CONFIG["mesh"], changes={}))
    assert verdict.broken == ()
