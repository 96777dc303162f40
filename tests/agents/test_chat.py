"""The conversation with a language model: what it says is checked, what it cannot say the built-in reasoner says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from agent.control import Cancel
from agent.events import Complaint, Final, ModelRequest, Stopped, ToolReturned
from agent.provider.openai import OpenAIProvider
from evaluation.quality.evidence import bench
from proposals.agents import chat, grounding
from proposals.agents.conversation import Ask, ConstraintStated, FactStated, MeshOffered, Said, Turn
from tests.agent.conftest import settings_for
from tests.agent.server import Script, ScriptedServer, calls, error, refusal, text

Talk = Callable[..., tuple[list[Said], ScriptedServer]]


@pytest.fixture
def talk() -> Iterator[Talk]:
    """Asks about experiment 3 with a scripted model; returns what was said, and the server."""
    servers: list[ScriptedServer] = []

    def talk(script: Script, words: str = "Which proposal first?", **more: Any) -> tuple[list[Said], ScriptedServer]:
        server = ScriptedServer(script)
        server.__enter__()
        servers.append(server)
        provider = OpenAIProvider(settings_for(server, **more.pop("settings", {})))
        of = more.pop("of", None) or bench()
        return list(chat.answer(of, Ask(words, **more), provider=provider)), server

    yield talk
    for server in servers:
        server.__exit__()


def final(said: list[Said]) -> Final:
    (found,) = [item for item in said if isinstance(item, Final)]
    return found


def seen(body: dict[str, Any], tool: str) -> dict[str, Any]:
    """The newest result of a tool, as the model was shown it."""
    ids = {c["id"]: c["function"]["name"] for m in body["messages"] for c in m.get("tool_calls") or ()}
    found = [m for m in body["messages"] if m["role"] == "tool" and ids[m["tool_call_id"]] == tool]
    result: dict[str, Any] = json.loads(found[-1]["content"])["result"]
    return result


def percent(value: float) -> str:
    return f"{value * 100:.1f} %"


def first_proposal(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = seen(body, "proposals")["proposals"][0]
    return found


def true_sentence(body: dict[str, Any]) -> str:
    return f"Start with proposal 1: its confidence is {percent(first_proposal(body)['confidence_share'])}."


def test_a_model_sees_the_run_before_it_is_asked_and_its_backed_answer_stands(talk: Talk) -> None:
    said, server = talk(lambda body: text(true_sentence(body)))
    assert final(said).source == "model"
    assert "Start with proposal 1" in str(final(said).answer)
    roles = [m["role"] for m in server.requests[0].messages]
    assert roles == ["system", "user", "assistant", "tool", "tool", "tool"]
    assert {"predict", "search", "ops", "search_history", "search_knowledge"} <= set(server.requests[0].tool_names)
    assert not {"approve", "reject", "decide", "add", "launch", "write"} & set(server.requests[0].tool_names)


def test_an_invented_number_is_sent_back_with_the_exact_complaint_and_mended(talk: Talk) -> None:
    def model(body: dict[str, Any]) -> Any:
        if "in no tool result" in body["messages"][-1]["content"]:
            return text(true_sentence(body))
        return text("Start with proposal 1: it makes the step 87.3 % faster.")

    said, server = talk(model)
    (complaint,) = [item for item in said if isinstance(item, Complaint)]
    assert "87.3 %" in complaint.complaints[0]
    assert "87.3" not in str(final(said).answer)
    assert final(said).source == "model"
    assert len(server.requests) == 2


def test_what_a_stubborn_model_invents_is_struck_and_the_rest_stands(talk: Talk) -> None:
    def model(body: dict[str, Any]) -> Any:
        return text(f"{true_sentence(body)} It rests on what the profile says. It will save 87.3 % of the cost.")

    said, _ = talk(model)
    answer = str(final(said).answer)
    assert final(said).source == "model"
    assert "Start with proposal 1" in answer
    assert "87.3" not in answer
    assert "One sentence was removed" in answer


def test_an_answer_that_is_mostly_invented_gives_way_to_the_built_in_one(talk: Talk) -> None:
    said, _ = talk(lambda body: text("It will be 87.3 % faster, use 12.9 GB, and cost 77.1 % less in every way."))
    (stopped,) = [item for item in said if isinstance(item, Stopped)]
    assert stopped.reason == "rejected"
    assert final(said).source == "fallback"
    assert "87.3" not in str(final(said).answer)
    assert "roposal 1" in str(final(said).answer)


@pytest.mark.parametrize(
    "reply", [error(401, "Bad key"), error(404, "No such model"), refusal("I cannot help."), text("", finish="stop")]
)
def test_where_the_endpoint_fails_the_built_in_answer_stands_and_says_why(talk: Talk, reply: Any) -> None:
    said, _ = talk(lambda body: reply)
    (stopped,) = [item for item in said if isinstance(item, Stopped)]
    assert stopped.sentence
    assert final(said).source == "fallback"
    assert "roposal" in str(final(said).answer)


def test_a_model_prices_a_mesh_and_it_is_offered_as_a_proposal(talk: Talk) -> None:
    mesh = {"replica": 2, "data": 2, "seq": 16, "model": 4}

    def model(body: dict[str, Any]) -> Any:
        if len([m for m in body["messages"] if m["role"] == "tool"]) == len(chat.FIRST_LOOK):
            return calls(("predict", {"ici": mesh}))
        speedup = seen(body, "predict")["speedup_per_token"]
        return text(f"That mesh is predicted to be {speedup:.2f}× per token.")

    said, _ = talk(model, "What about that mesh: replica 2, data 2, seq 16, model 4?")
    assert final(said).source == "model"
    offered = [item for item in said if isinstance(item, MeshOffered)]
    assert [dict(item.mesh["ici"]) for item in offered] == [mesh]


def test_what_the_users_words_hold_fast_is_read_by_rules_and_priced(talk: Talk) -> None:
    said, server = talk(lambda body: text("Noted."), "Please do not touch the model axis.")
    (told,) = [item for item in said if isinstance(item, ConstraintStated)]
    assert told.constraint == {"keep_axes": ["model"]}
    shown = seen(server.requests[0].body, "proposals")
    sizes = [p["mesh"]["ici"]["model"] for p in shown["proposals"]]
    assert set(sizes) == {dict(bench().config.mesh.ici)["model"]}


def test_earlier_turns_are_part_of_what_the_model_reads(talk: Talk) -> None:
    earlier = (Turn("user", "Is batch 512 possible?"), Turn("assistant", "It may be."))
    _, server = talk(lambda body: text("It stands."), earlier=earlier)
    said = [m["content"] for m in server.requests[0].messages if m["role"] in ("user", "assistant")]
    assert said[:2] == ["Is batch 512 possible?", "It may be."]


def test_a_follow_up_has_what_the_tools_returned_before(talk: Talk) -> None:
    found = [
        ToolReturned(1, f"r{n}", f"c{n}", "cost", True, {"steps": n}, {"rows": [{"days_of_the_run": n + 0.25}]})
        for n in (1, 2)
    ]
    refused = ToolReturned(1, "r3", "c3", "op", False, {}, None, (), "There is no op x.")
    earlier = (Turn("user", "How long?"), Turn("assistant", "Days.", (*found, refused)))
    said, server = talk(lambda body: text("It takes 2.25 days."), "And exactly?", earlier=earlier)
    (before,) = [m["content"] for m in server.requests[0].messages if "earlier questions" in str(m["content"])]
    assert before.index("2.25") < before.index("1.25")  # the newest first
    assert "There is no op" not in before
    assert final(said).source == "model"
    long = replace(found[0], result={"text": "x" * chat.ROOM_FOR_EARLIER})
    _, server = talk(lambda body: text("Well."), earlier=(Turn("assistant", "So.", (long, found[1])),))
    (before,) = [m["content"] for m in server.requests[0].messages if "earlier questions" in str(m["content"])]
    assert "xxx" not in before and "2.25" in before


def test_stopping_ends_the_model_and_nothing_answers_instead(talk: Talk) -> None:
    server = ScriptedServer(lambda body: text("never " * 50))
    with server:
        cancel = Cancel()
        said = []
        for item in chat.answer(bench(), Ask("Go on"), cancel, OpenAIProvider(settings_for(server))):
            said.append(item)
            if isinstance(item, ModelRequest):
                cancel.set()
    assert not [item for item in said if isinstance(item, Final)]
    (stopped,) = [item for item in said if isinstance(item, Stopped)]
    assert stopped.reason == "cancelled"


def test_numbers_are_the_same_with_and_without_a_model(talk: Talk) -> None:
    said, _ = talk(lambda body: text(true_sentence(body)))
    looked = {item.name: item.result for item in said if isinstance(item, ToolReturned)}
    without = {
        item.name: item.result
        for item in chat.answer(bench(), Ask("Which proposal first?"))
        if isinstance(item, ToolReturned)
    }
    assert without["proposals"] == looked["proposals"]


def test_every_sentence_of_an_answer_leads_to_the_results_behind_it(talk: Talk) -> None:
    said, _ = talk(lambda body: text(true_sentence(body)))
    results = [item for item in said if isinstance(item, ToolReturned)]
    (link,) = chat.supports(str(final(said).answer), results)
    assert [r.name for r in results if r.result_id in link["results"]][:1] == ["proposals"]
    assert not grounding.check(str(final(said).answer), grounding.Evidence.of(results))


def test_facts_come_from_the_user_alone(talk: Talk) -> None:
    said, _ = talk(lambda body: text("The model is llama3.1-405b, so I hold that."), "Why is it slow?")
    assert not [item for item in said if isinstance(item, FactStated | ConstraintStated)]
