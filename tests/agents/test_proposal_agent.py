"""Three proposals by a language model: priced, legal, distinct and backed, or they are not shown."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent.events import Complaint, Final, RunEvent, Stopped
from agent.messages import UserMessage
from agent.provider.openai import OpenAIProvider
from evaluation.quality.evidence import bench
from experiments.sentences import values
from perfmodel.config import flat_sizes
from proposals.agents import proposal_agent
from proposals.agents.proposal_agent import EvaluatedProposal, is_similar
from proposals.agents.workbench import Workbench
from proposals.candidate import Candidate
from proposals.constraints import Constraints
from tests.agent.conftest import drive, settings_for
from tests.agent.server import Reply, Script, ScriptedServer, answer, calls, error, refusal

pytestmark = pytest.mark.slow

Propose = Callable[..., tuple[list[RunEvent], EvaluatedProposal, ScriptedServer]]
PRECEDENTS = ("history", {"query": "faster mesh", "outcome": "faster", "top": 20})
#: Results that prices and precedents have after the first look.
PRICED = "r2"


@pytest.fixture
def propose() -> Iterator[Propose]:
    """Lets a scripted model propose for experiment 3."""
    servers: list[ScriptedServer] = []

    def propose(
        script: Script, of: Workbench | None = None
    ) -> tuple[list[RunEvent], EvaluatedProposal, ScriptedServer]:
        server = ScriptedServer(script)
        server.__enter__()
        servers.append(server)
        found, outcome = drive(proposal_agent.propose(of or bench(), OpenAIProvider(settings_for(server))))
        return found, outcome, server  # type: ignore[return-value]

    yield propose
    for server in servers:
        server.__exit__()


def configurations(of: Workbench | None = None) -> list[dict[str, Any]]:
    """What the built-in rules propose, as arguments of a tool."""
    found = []
    for standing in (of or bench()).proposals:
        item = standing.proposal
        found.append({"mesh": flat_sizes(item.mesh), "changes": item.changes})
    return found


def agreeing(of: Workbench | None = None) -> dict[str, Any]:
    """A model that agrees with the built-in proposals and gives true reasons."""
    proposals = []
    rows = enumerate(zip((of or bench()).proposals, configurations(of), strict=True))
    for place, (standing, configuration) in rows:
        item = standing.proposal
        proposals.append(
            {
                "kind": item.kind,
                "title": "A step that moves less over the links",
                **configuration,
                "reasoning": [
                    f"It is predicted at {{{PRICED}.configurations[{place}].speedup_per_token}} per token.",
                    "What is moved less, waits less.",
                ],
                "trade_offs": ["It has not been run here."],
                "citations": [],
            }
        )
    return {"proposals": proposals}


def prices_then(
    reply: Callable[[dict[str, Any]], Reply], *more: tuple[str, Any], of: Workbench | None = None
) -> Callable[[dict[str, Any]], Reply]:
    """A model that prices what it proposes, and looks for precedents, before it answers."""

    def model(body: dict[str, Any]) -> Reply:
        if sum(m["role"] == "tool" for m in body["messages"]) == 1:
            return calls(("price", {"configurations": configurations(of)}), PRECEDENTS, *more)
        return reply(body)

    return model


def told(events: list[RunEvent]) -> list[str]:
    return [text for e in events if isinstance(e, Complaint) for text in e.complaints]


def changed(of: Workbench | None = None, **of_first: Any) -> dict[str, Any]:
    made = copy.deepcopy(agreeing(of))
    made["proposals"][0] |= of_first
    return made


def last(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"])


def test_what_a_model_proposes_stands_with_the_numbers_of_the_performance_model(propose: Propose) -> None:
    events, found, server = propose(prices_then(lambda body: answer(agreeing())))
    assert told(events) == []
    assert (found.source, found.struck, found.sentence) == ("model", 0, "")
    assert found.outcome.usage.tokens > 0
    for number, item in enumerate(found.proposals, start=1):
        own = bench().pricer.evaluate(item.plan)
        assert item.plan.rank == number
        assert item.plan.predicted == own.predicted
        assert (item.plan.confidence, item.plan.sensitivity) == (own.confidence, own.sensitivity)
        assert item.plan.reasoning[1] == "What is moved less, waits less."
        (value,) = values(item.plan.reasoning[0])
        assert value.value == pytest.approx(own.predicted.speedup) and value.origin == "predicted"
    assert {"price", "search", "history"} <= set(server.requests[0].tool_names)
    assert not {"approve", "decide", "add", "launch"} & set(server.requests[0].tool_names)


def test_numbers_are_the_same_with_and_without_a_model(propose: Propose) -> None:
    _, found, _ = propose(prices_then(lambda body: answer(agreeing())))
    for item, standing in zip(found.proposals, bench().proposals, strict=True):
        assert vars(item.plan.predicted.step_time_s) == pytest.approx(vars(standing.proposal.predicted.step_time_s))
        assert item.plan.predicted.hbm_per_chip_bytes == standing.proposal.predicted.hbm_per_chip_bytes
        assert item.plan.predicted.speedup == pytest.approx(standing.proposal.predicted.speedup)


def test_an_invented_number_is_sent_back_and_mended(propose: Propose) -> None:
    def model(body: dict[str, Any]) -> Reply:
        if "9.87" in last(body):
            return answer(agreeing())
        return answer(changed(reasoning=["It is predicted to be 9.87× per token."]))

    events, found, _ = propose(prices_then(model))
    assert len(told(events)) == 1 and "9.87" in told(events)[0]
    assert found.source == "model"


def test_a_stubborn_invention_is_struck_and_the_rest_stands(propose: Propose) -> None:
    true = agreeing()["proposals"][0]["reasoning"]
    false = changed(reasoning=[*true, "It is predicted to be 9.87× per token."])
    events, found, _ = propose(prices_then(lambda body: answer(false)))
    assert (found.source, found.struck) == ("model", 1)
    assert len(found.proposals[0].plan.reasoning) == len(true)
    assert "9.87" not in " ".join(found.proposals[0].plan.reasoning)
    (final,) = [e for e in events if isinstance(e, Final)]
    assert final.source == "model" and "9.87" not in json.dumps(final.answer)


def test_a_mesh_of_other_chips_is_sent_back_with_the_rule(propose: Propose) -> None:
    def model(body: dict[str, Any]) -> Reply:
        if "cannot be proposed" in last(body):
            return answer(agreeing())
        return answer(changed(mesh={"replica": 3, "data": 5, "seq": 7, "model": 1}))

    events, found, _ = propose(prices_then(model))
    assert any("Proposal 1" in text and "breaks the rule chips" in text for text in told(events))
    assert found.source == "model"


def test_what_does_not_fit_is_never_proposed_however_fast(propose: Propose) -> None:
    of = bench("gradients over DCN")
    mesh, changes = of.config.mesh.to_json(), {"global_batch": 65536}
    greedy = {"mesh": flat_sizes(mesh), "changes": changes}
    priced = of.pricer.evaluate(Candidate(mesh, changes))
    assert (priced.predicted.speedup or 0.0) > 2.0 and (priced.memory_headroom_bytes or 0.0) < 0.0

    def model(body: dict[str, Any]) -> Reply:
        if sum(m["role"] == "tool" for m in body["messages"]) == 1:
            return calls(("price", {"configurations": [greedy]}))
        return answer(changed(**greedy, reasoning=["It computes more at once."]))

    events, found, _ = propose(model, of)
    assert any("Proposal 1" in text and "breaks the rule memory" in text for text in told(events))
    assert (found.source, found.proposals) == ("fallback", ())


def test_the_same_configuration_twice_is_sent_back(propose: Propose) -> None:
    def model(body: dict[str, Any]) -> Reply:
        made = copy.deepcopy(agreeing())
        if "proposal 1 again" not in last(body):
            made["proposals"][1] = {**made["proposals"][0], "kind": "alternative"}
        return answer(made)

    events, found, _ = propose(prices_then(model))
    assert any("Proposal 2 is proposal 1 again" in text for text in told(events))
    assert found.source == "model"


def test_a_record_that_no_tool_returned_cannot_be_cited(propose: Propose) -> None:
    events, found, _ = propose(prices_then(lambda body: answer(changed(citations=["made-up-record-17"]))))
    assert any("`made-up-record-17`, which no tool result of this run has" in text for text in told(events))
    assert (found.source, found.struck) == ("model", 0)
    assert "made-up-record-17" not in [cite.key for cite in found.proposals[0].plan.citations]


def test_a_record_of_a_measured_gain_by_such_a_move_makes_it_proven(propose: Propose) -> None:
    """The record traded sequence for data parallelism in this very run, and so does the first proposal."""
    of = bench("asap-experiment-1")
    record = of.retrieval.record("asap-1")
    assert record is not None
    made = changed(of, citations=["`asap-1`"])
    events, found, _ = propose(prices_then(lambda body: answer(made), ("history", {"id": "asap-1"}), of=of), of)
    assert told(events) == []
    first = found.proposals[0]
    assert first.plan.support == "proven"
    (cite,) = first.plan.citations
    assert (cite.source, cite.key, cite.title) == ("history", "asap-1", record.title)


def test_a_record_of_another_run_proves_nothing_though_it_moved_an_axis_the_same_way(propose: Propose) -> None:
    """There data parallelism grew for sequence parallelism, here for tensor parallelism."""
    made = changed(citations=["asap-1"])
    _, found, _ = propose(prices_then(lambda body: answer(made)))
    assert found.proposals[0].plan.support == "hypothesis"


def test_a_record_of_another_kind_of_change_proves_nothing(propose: Propose) -> None:
    made = changed(citations=["marin-8054-batch"])
    _, found, _ = propose(prices_then(lambda body: answer(made), ("history", {"id": "marin-8054-batch"})))
    assert found.proposals[0].plan.support == "hypothesis"
    assert [cite.key for cite in found.proposals[0].plan.citations] == ["marin-8054-batch"]


def test_what_is_tried_first_may_not_be_slower_than_what_runs(propose: Propose) -> None:
    slow = slower()

    def model(body: dict[str, Any]) -> Reply:
        if "slower" in last(body) or "clearly slower" in last(body):
            return answer(agreeing())
        return answer(changed(**slow, reasoning=["It computes more at once."]))

    events, found, _ = propose(prices_then(model, ("price", {"configurations": [slow]})))
    assert any("Proposal 1" in text and "slower than the current configuration" in text for text in told(events))
    assert found.source == "model"


def slower() -> dict[str, Any]:
    """The slowest of the legal meshes of experiment 3 that move chips between two axes, slower than the current
    configuration."""
    ran, found = dict(bench().config.mesh.ici), []
    for one in ran:
        for other in ran:
            for factor in (2, 4, 8):
                if one != other and ran[one] % factor == 0:
                    ici = {**ran, one: ran[one] // factor, other: ran[other] * factor}
                    plan = bench().pricer.evaluate(Candidate({"ici": ici}))
                    if not plan.violations and plan.predicted.speedup is not None:
                        found.append((plan.predicted.speedup, ici))
    speedup, ici = min(found, key=lambda item: item[0])
    assert speedup < 0.99, "nothing here is slower"
    return {"mesh": ici, "changes": {}}


def test_only_what_runs_is_of_the_kind_keep(propose: Propose) -> None:
    def model(body: dict[str, Any]) -> Reply:
        return answer(
            agreeing() if "its kind is keep" in last(body) or "but changes" in last(body) else changed(kind="keep")
        )

    events, found, _ = propose(prices_then(model))
    assert any("is of the kind keep, but changes the current configuration" in text for text in told(events))
    assert found.source == "model"


def test_the_users_constraints_bind_the_model(propose: Propose) -> None:
    ran = dict(bench().config.mesh.ici)
    axis = next(axis for axis in ran if any(c["mesh"].get(axis, 1) != ran[axis] for c in configurations()))
    of = bench().under({}, Constraints(keep_axes=(axis,)))
    events, found, _ = propose(prices_then(lambda body: answer(agreeing())), of)
    assert any("your constraint" in text for text in told(events))
    assert found.source == "fallback"


@pytest.mark.parametrize(
    "reply", [error(401, "Bad key"), error(404, "No such model"), refusal("No."), answer({"a": 1})]
)
def test_where_the_endpoint_fails_nothing_is_proposed_and_it_says_why(propose: Propose, reply: Reply) -> None:
    events, found, _ = propose(lambda body: reply)
    assert (found.source, found.proposals) == ("fallback", ())
    assert found.sentence == next(e for e in events if isinstance(e, Stopped)).sentence
    (final,) = [e for e in events if isinstance(e, Final)]
    assert final.source == "fallback"


def test_every_complaint_is_a_message_that_the_model_reads(propose: Propose) -> None:
    events, _, server = propose(prices_then(lambda body: answer(changed(confidence=0.9))))
    complaint = next(e for e in events if isinstance(e, Complaint))
    assert isinstance(complaint.message, UserMessage)
    assert complaint.complaints[0] in server.requests[-1].messages[-1]["content"]


def test_whether_a_record_bears_is_decided_by_likeness_and_not_by_the_name_of_the_change() -> None:
    """Another model's batch on other chips says nothing of this run's, though both are called a batch."""
    of = bench()
    record = of.retrieval.record("marin-8054-batch")
    batch = of.config.training.global_batch or 32
    assert record is not None and record.changes == ("batch",)
    assert not is_similar(record, Candidate(of.config.mesh.to_json(), {"global_batch": 2 * batch}), of)
