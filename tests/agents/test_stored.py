"""The workbench of a stored run: what its pages show, within what its team may see."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import pytest
from django.http import Http404

from agent.tools import ToolError
from dialogue.computations import registry, run
from experiments.models import Event
from history.models import HistoryRecord
from history.record import Record, Side
from history.services import add, seed
from proposals.agents.retrieval import Unavailable
from proposals.agents.tools.known import Records, history
from proposals.agents.tools.prices import PriceArguments, price
from proposals.agents.tools.shared import Configuration
from proposals.models import PlanRecord, Proposal
from proposals.proposer.precedents import situation
from tests.backend.conftest import data_folder, people, ready  # noqa: F401  (fixtures)

if TYPE_CHECKING:
    from proposals.agents.workbench import Workbench
    from tests.backend.factories import People, Stored

pytestmark = [pytest.mark.slow, pytest.mark.django_db]


def bench(ready: Stored, user: Any) -> Workbench:  # noqa: F811
    from proposals.services.stored import workbench

    return workbench(ready.experiment, user)


def test_it_shows_what_is_stored_and_writes_nothing(people: People, ready: Stored) -> None:  # noqa: F811
    before = (
        Event.objects.count(),
        Proposal.objects.count(),
        PlanRecord.objects.count(),
        HistoryRecord.objects.count(),
    )
    of = bench(ready, people.viewer)
    rows = list(ready.plan.proposals.order_by("rank"))
    found = of.proposals
    assert [item.proposal.title for item in found] == [row.title for row in rows]
    assert [item.proposal.confidence for item in found] == [row.confidence for row in rows]
    assert {item.status for item in found} == {"proposed"}
    for key in registry():
        run(of, key, {})
    price(of, PriceArguments(configurations=(Configuration(mesh={"replica": 1, "data": 8, "seq": 1, "model": 2}),)))
    after = (Event.objects.count(), Proposal.objects.count(), PlanRecord.objects.count(), HistoryRecord.objects.count())
    assert after == before


def test_a_decision_is_seen_at_the_next_look(people: People, ready: Stored) -> None:  # noqa: F811
    from proposals.services import reviews

    assert bench(ready, people.viewer).proposals[0].status == "proposed"
    reviews.decide(ready.plan.proposals.get(rank=1), people.reviewer, "rejected")
    of = bench(ready, people.viewer)
    assert of.proposals[0].status == "rejected"


def test_an_outsider_finds_nothing(people: People, ready: Stored) -> None:  # noqa: F811
    with pytest.raises(Http404):
        bench(ready, people.outsider)


def test_other_teams_do_not_exist(people: People, ready: Stored) -> None:  # noqa: F811
    from accounts.models import Team
    from tests.backend.factories import make_ready

    seed()
    theirs = Team.objects.get(name="Another team")
    record = Record(
        "their-1", "Their secret mesh", "data 4 → 8", ("mesh",), Side(), Side(), "faster", "their notebook",
        provenance="imported", chip="v6e", bottleneck="communication", speedup=1.4, measure="step time",
    )  # fmt: skip
    add(record, theirs)
    other = make_ready(people, "another baseline")
    of = bench(ready, people.viewer)
    with pytest.raises(ToolError):
        history(of, Records(id="their-1"))
    assert history(of, Records(id="asap-1")).records[0].outcome == "faster"
    found = history(of, Records(query="secret mesh", top=10))
    assert "their-1" not in [row.id for row in found.records]
    assert [peer.id for peer in of.retrieval.experiments("", 9)] == [other.experiment.pk]
    assert of.retrieval.compare(other.experiment.pk).comparability.comparable is True
    with pytest.raises(Unavailable):
        of.retrieval.compare(10**9)


def test_records_like_the_run_come_with_what_is_alike(people: People, ready: Stored) -> None:  # noqa: F811
    of = bench(ready, people.viewer)
    training = {"global_batch": 32, "seq_len": 8192}
    for number, topology in enumerate(((4, 4), (4, 8), (128, 128))):
        chips = prod(topology)
        record = Record(
            f"own-{number}", "Less sequence parallelism", "seq 4 → 2", ("mesh",),
            Side(mesh={"ici": {"data": chips // 4, "seq": 4}, "dcn": {}}, training=training),
            Side(mesh={"ici": {"data": chips // 2, "seq": 2}, "dcn": {}}, training=training),
            "faster", "our sweep", provenance="imported", chip="v6e", chips=chips, model_name="llama3.1-8b",
            topology=topology, speedup=1.2, measure="step time",
        )  # fmt: skip
        add(record, ready.experiment.team, people.engineer)
    found = of.retrieval.similar_records(situation(of.config, of.diagnosis), 3)
    assert [row.record.id for row in found] == ["own-0", "own-1"]  # a batch of 32 has no 16,384 chips
    same, other = (row.why[0] for row in found)
    assert same == "the same run and change"
    assert other.startswith("same terms change: context-parallel communication −")
    assert found[0].expected is not None and found[0].expected.speedup == pytest.approx(1.2, rel=0.01)


def test_without_a_diagnosis_it_says_what_is_missing(people: People) -> None:  # noqa: F811
    from proposals.services.stored import workbench
    from tests.backend.factories import make_experiment

    experiment = make_experiment(people, "fresh")
    with pytest.raises(Unavailable, match="no diagnosis yet; wait for its analysis"):
        workbench(experiment, people.engineer)
    experiment.state = "configuring"
    with pytest.raises(Unavailable, match="no diagnosis yet; confirm its configuration"):
        workbench(experiment, people.engineer)
