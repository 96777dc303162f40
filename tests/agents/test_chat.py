"""The conversation with a language model: it writes in references, code prints them, what refers to nothing goes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent.control import Cancel
from agent.events import Complaint, Final, ModelRequest, Stopped, TextDelta, ToolReturned
from agent.provider.openai import OpenAIProvider
from evaluation.quality.evidence import bench
from proposals.agents import chat
from proposals.agents.conversation import AnswerStep, AnswerText, Ask, ConstraintStated, FactStated, MeshOffered, Turn
from proposals.agents.references import Rendered
from proposals.constraints import Constraints
from tests.agent.conftest import settings_for
from tests.agent.server import Script, ScriptedServer, calls, error, refusal, text

Talk = Callable[..., tuple[list[AnswerStep], ScriptedServer]]

TRUE = "Start with proposal 1: {r1.proposals[0].step_time_s} instead of {r1.kpis.step_time_s as s}."


@pytest.fixture
def talk() -> Iterator[Talk]:
    """Asks about experiment 3 with a scripted model; returns what was said, and the server."""
    servers: list[ScriptedServer] = []

    def talk(
        script: Script, words: str = "Which proposal first?", **more: Any
    ) -> tuple[list[AnswerStep], ScriptedServer]:
        server = ScriptedServer(script)
        server.__enter__()
        servers.append(server)
        provider = OpenAIProvider(settings_for(server, **more.pop("settings", {})))
        of = more.pop("of", None) or bench()
        return list(chat.answer(of, Ask(words, **more), provider=provider)), server

    yield talk
    for server in servers:
        server.__exit__()


def final(said: list[AnswerStep]) -> Final:
    (found,) = [item for item in said if isinstance(item, Final)]
    return found


def answered(said: list[AnswerStep]) -> AnswerText:
    (found,) = [item for item in said if isinstance(item, AnswerText)]
    return found


def streamed(said: list[AnswerStep]) -> str:
    """The text as it came since it was last withdrawn."""
    shown = ""
    for item in said:
        if isinstance(item, TextDelta):
            shown += item.text
        elif isinstance(item, Complaint | Stopped):
            shown = ""
    return shown


def test_a_model_sees_the_run_and_its_references_are_printed_with_what_they_are_of(talk: Talk) -> None:
    said, server = talk(lambda body: text(TRUE))
    proposal = bench().proposals[0].proposal
    rendered = Rendered.from_json(answered(said).parts)
    assert final(said).source == "model" and final(said).answer == rendered.plain == streamed(said)
    assert answered(said).template == TRUE
    predicted, measured = (value for value in rendered.values if not isinstance(value.value, str))
    assert proposal.predicted.step_time_s is not None
    assert predicted.value == proposal.predicted.step_time_s.estimate and predicted.origin == "predicted"
    assert predicted.interval and predicted.href == "proposal:1"
    assert measured.value == bench().diagnosis.kpis["step_time_s"] and measured.origin == "measured"
    assert [m["role"] for m in server.requests[0].messages] == ["system", "user", "assistant", "tool"]
    assert not {"approve", "reject", "decide", "add", "launch", "write"} & set(server.requests[0].tool_names)


def test_the_first_request_is_short(talk: Talk) -> None:
    _, server = talk(lambda body: text("Well."))
    body = server.requests[0].body
    assert len(json.dumps(body["tools"])) <= 8_000
    assert len(json.dumps(body["messages"])) <= 12_000


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("Proposal 1 takes 4.2 s.", "4.2"), ("It takes {r1.steptime_s}.", "r1.kpis.step_time_s"),
        ("It takes {r77.step_time_s}.", "no result r77"),
        ("{r1.kpis.step_time_s + r1.run.chips}", "cannot be added"),
        ("Use `data=4096`.", "data=4096"),
    ],
)  # fmt: skip
def test_a_typed_number_or_a_wrong_reference_is_sent_back_and_mended(talk: Talk, wrong: str, hint: str) -> None:
    def model(body: dict[str, Any]) -> Any:
        return text(TRUE if hint in body["messages"][-1]["content"] else wrong)

    said, server = talk(model)
    (complaint,) = [item for item in said if isinstance(item, Complaint)]
    assert hint in " ".join(complaint.complaints)
    assert answered(said).template == TRUE
    assert len(server.requests) == 2


def test_after_two_corrections_the_sentence_goes_and_the_rest_stays(talk: Talk) -> None:
    wrong = f"{TRUE} It saves 87.3 % of the cost. That rests on what the profile says."
    said, server = talk(lambda body: text(wrong))
    assert len(server.requests) == 3
    assert answered(said).template == f"{TRUE} That rests on what the profile says."
    assert "87.3" not in str(final(said).answer) and final(said).answer == streamed(said)


@pytest.mark.parametrize(
    "reply",
    [
        error(401, "Bad key"), error(404, "No such model"), refusal("I cannot help."), text("", finish="stop"),
        text("It will be 87.3 % faster, use 12.9 GB, and cost 77.1 % less."),
    ],
)  # fmt: skip
def test_where_nothing_of_an_answer_can_be_printed_it_says_why(talk: Talk, reply: Any) -> None:
    said, _ = talk(lambda body: reply)
    (stopped,) = [item for item in said if isinstance(item, Stopped)]
    assert stopped.sentence
    assert not [item for item in said if isinstance(item, Final | AnswerText)]


def test_without_a_language_model_it_says_so_and_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("OPENAI_", "ASAP_LLM_"))]:
        monkeypatch.delenv(name)
    (stopped,) = chat.answer(bench(), Ask("Why?"))
    assert isinstance(stopped, Stopped) and "needs a language model" in stopped.sentence


def test_a_configuration_that_was_priced_is_offered_as_a_proposal(talk: Talk) -> None:
    mesh = {"replica": 2, "data": 2, "seq": 16, "model": 4}

    def model(body: dict[str, Any]) -> Any:
        if sum(m["role"] == "tool" for m in body["messages"]) == 1:
            return calls(("price", {"configurations": [{"mesh": mesh}]}))
        return text("`data 2` and `model=4`: {r2.configurations[0].speedup_per_token} per token.")

    said, _ = talk(model, "What about that mesh: replica 2, data 2, seq 16, model 4?")
    offered = [item for item in said if isinstance(item, MeshOffered)]
    assert [dict(item.mesh["ici"]) for item in offered] == [mesh]


def test_a_refused_setting_beside_a_priced_mesh_is_no_fault_of_the_answer(talk: Talk) -> None:
    mesh = {"data": 2, "seq": 16, "model": 8}

    def model(body: dict[str, Any]) -> Any:
        if sum(m["role"] == "tool" for m in body["messages"]) == 1:
            wrong = {"mesh": mesh, "changes": {"weight_sharding": "replicated"}}
            return calls(("price", {"configurations": [{"mesh": mesh}, wrong]}))
        return text("It would take {r2.configurations[0].step_time_s}.")

    said, _ = talk(model, "What about replicated weights?")
    assert final(said)


def test_what_should_bind_is_asked_for_and_not_held(talk: Talk) -> None:
    def model(body: dict[str, Any]) -> Any:
        if sum(m["role"] == "tool" for m in body["messages"]) == 1:
            facts = {"training.global_batch": 128}
            return calls(
                ("hold", {"sentence": "The model axis stays.", "constraints": {"keep": ["model"]}, "facts": facts})
            )
        return text("Please confirm it.")

    of = bench()
    said, _ = talk(model, "The model axis stays, and the batch is 128.", of=of)
    (constraint,) = [item for item in said if isinstance(item, ConstraintStated)]
    (fact,) = [item for item in said if isinstance(item, FactStated)]
    assert constraint.constraint == {"keep_axes": ["model"]} and constraint.sentence == "The model axis stays."
    assert (fact.path, fact.value) == ("training.global_batch", 128)
    assert of.constraints == Constraints()


def test_words_alone_hold_nothing(talk: Talk) -> None:
    said, _ = talk(lambda body: text("The model is llama3.1, so I hold that."), "Why is it slow? Batch stays.")
    assert not [item for item in said if isinstance(item, FactStated | ConstraintStated)]


def test_what_the_thread_holds_is_what_is_priced(talk: Talk) -> None:
    said, _ = talk(lambda body: text("Well."), constraints=Constraints(keep_axes=("model",)))
    (looked,) = [i for i in said if isinstance(i, ToolReturned) and i.name == "look"]
    size = dict(bench().config.mesh.ici)["model"]
    assert all(f"model {size}" in row["mesh"] for row in looked.result["proposals"])  # type: ignore[index, call-overload, union-attr]


def test_numbers_of_earlier_turns_may_be_typed_and_no_others(talk: Talk) -> None:
    earlier = (Turn("user", "Is batch 512 possible?"), Turn("assistant", "It may be, at 640 ms."))
    said, server = talk(lambda body: text("512 does, at 640 ms."), earlier=earlier)
    contents = [m["content"] for m in server.requests[0].messages if m["role"] in ("user", "assistant")]
    assert contents[:2] == [turn.text for turn in earlier]
    assert final(said).answer == "512 does, at 640 ms."
    said, _ = talk(lambda body: text("It takes 641 ms."), earlier=earlier)
    assert [item for item in said if isinstance(item, Complaint)]


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
