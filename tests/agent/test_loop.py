"""The loop against a scripted model over HTTP: tools, answers, complaints, bounds, stopping."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from agent.control import Cancel
from agent.events import Complaint, Final, ModelResponse, Stopped, TextDelta, ToolReturned
from agent.limits import Limits, Price
from agent.loop import run
from agent.messages import AssistantMessage, ToolCall, ToolMessage, Usage, UserMessage
from agent.provider.openai import OpenAIProvider
from agent.tools import Arguments, Tool, ToolError
from tests.agent.conftest import NoWaiting, ask, drive, kinds, settings_for, tool
from tests.agent.server import Plain, ScriptedServer, Stream, Wait, answer, calls, chunk, overflow, text, usage

Serve = Callable[..., ScriptedServer]


class Axis(Arguments):
    name: str


def axis_size(axis: Axis) -> dict[str, Any]:
    """Size of a mesh axis."""
    if axis.name == "seq":
        raise ToolError("There is no axis seq.")
    return {"axis": axis.name, "size": 4}


TOOLS: Sequence[Tool] = [tool(axis_size)]


class Verdict(BaseModel):
    bottleneck: str
    size: int


RIGHT: dict[str, Any] = {"bottleneck": "hbm", "size": 4}


def only(events: Sequence[Any], kind: type) -> Any:
    found = [event for event in events if isinstance(event, kind)]
    assert len(found) == 1
    return found[0]


# A run that goes well.


def test_a_text_is_streamed_and_stands(serve: Serve) -> None:
    server = serve([text("The step is bound by HBM.")])
    events, outcome = ask(server)
    assert kinds(events) == ["model_request", "text_delta", "model_response", "final"]
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "The step is bound by HBM."
    assert len([e for e in events if isinstance(e, TextDelta)]) > 1
    assert (outcome.answer, outcome.stopped) == ("The step is bound by HBM.", None)
    assert outcome.usage == Usage(100, 20)
    assert server.requests[0].messages[1] == {"role": "user", "content": "Why is the step slow?"}


def test_parallel_calls_are_put_together_from_their_pieces_and_answered_by_id(serve: Serve) -> None:
    server = serve([calls(("axis_size", {"name": "data"}), ("axis_size", {"name": "model"})), text("Both are 4.")])
    events, outcome = ask(server, tools=TOOLS)
    assert kinds(events) == [
        "model_request", "model_response", "tool_call", "tool_result", "tool_call", "tool_result",
        "model_request", "text_delta", "model_response", "final",
    ]  # fmt: skip
    assert [(r.result_id, r.arguments, r.result) for r in outcome.results] == [
        ("r1", {"name": "data"}, {"axis": "data", "size": 4}),
        ("r2", {"name": "model"}, {"axis": "model", "size": 4}),
    ]
    wire = server.requests[1].messages[2:]
    asked = [call["id"] for call in wire[0]["tool_calls"]]
    assert [message["tool_call_id"] for message in wire[1:]] == asked and len(set(asked)) == 2
    assert '"id":"r2"' in wire[2]["content"]
    assert outcome.tool_calls == 2 and outcome.turns == 2


def test_results_are_numbered_on_from_those_of_the_conversation(serve: Serve) -> None:
    call = ToolCall("c1", "axis_size", '{"name": "data"}')
    earlier = [UserMessage("Data?"), AssistantMessage("", (call,)), ToolMessage("c1", "axis_size", "4", "r1")]
    server = serve([calls(("axis_size", {"name": "model"})), text("2.")])
    _, outcome = ask(server, [*earlier, AssistantMessage("4."), UserMessage("And model?")], tools=TOOLS)
    assert [result.result_id for result in outcome.results] == ["r2"]
    assert [message["role"] for message in server.requests[1].messages[-2:]] == ["assistant", "tool"]


def test_what_the_model_does_wrong_with_tools_is_told_to_it(serve: Serve) -> None:
    wrong = calls(
        ("axis_size", {"name": "seq"}), ("axis_size", '{"name": '), ("approve", {}), ("axis_size", {"axis": 1})
    )
    server = serve([wrong, text("I was wrong.")])
    _, outcome = ask(server, tools=TOOLS)
    assert [result.ok for result in outcome.results] == [False] * 4
    told = [message["content"] for message in server.requests[1].messages[-4:]]
    assert "There is no axis seq." in told[0]
    assert "not valid JSON" in told[1]
    assert "There is no tool 'approve'" in told[2]
    assert "Field required" in told[3]
    assert outcome.answer == "I was wrong."
    broken = server.requests[1].messages[2]["tool_calls"][1]["function"]["arguments"]
    assert broken == "{}", "chat templates that parse arguments would fail on broken JSON"


def test_an_exception_of_a_tool_is_loud_and_ends_the_run(serve: Serve) -> None:
    def broken() -> None:
        """Fails."""
        raise KeyError("step_time_s")

    run_ = run(OpenAIProvider(settings_for(serve([calls(("broken", {}))]))), [UserMessage("go")], tools=[tool(broken)])
    seen: list[Any] = []
    with pytest.raises(KeyError, match="step_time_s"):
        seen.extend(seen.append(event) for event in run_)
    seen = [event for event in seen if event is not None]
    assert isinstance(seen[-1], Stopped) and seen[-1].reason == "bug"
    assert "step_time_s" not in seen[-1].sentence


# Answers in a schema, and checks.


def test_an_answer_in_a_schema_is_a_call(serve: Serve) -> None:
    server = serve([calls(("axis_size", {"name": "data"})), calls(("answer", RIGHT))])
    events, outcome = ask(server, answer=Verdict, tools=TOOLS)
    assert outcome.answer == Verdict(**RIGHT) and outcome.tool_calls == 1
    assert only(events, Final).answer == {"bottleneck": "hbm", "size": 4}
    offered = {each["function"]["name"]: each["function"]["parameters"] for each in server.requests[0].body["tools"]}
    assert set(offered) == {"axis_size", "answer"} and set(offered["answer"]["properties"]) == set(RIGHT)


def test_on_the_last_turn_only_the_answer_can_be_called(serve: Serve) -> None:
    server = serve([calls(("axis_size", {"name": "data"})), calls(("answer", RIGHT))])
    _, outcome = ask(server, answer=Verdict, tools=TOOLS, limits=Limits(turns=2))
    assert outcome.answer == Verdict(**RIGHT)
    assert [each["function"]["name"] for each in server.requests[1].body["tools"]] == ["answer"]


@pytest.mark.parametrize(
    "words",
    [
        'Here it is:\n```json\n{"bottleneck": "hbm", "size": 4}\n```\nI hope this helps.',
        'The answer is {"bottleneck": "hbm", "size": 4}.',
        '<think>{"bottleneck": "no"} hm</think>\n{"bottleneck": "hbm", "size": 4}',
    ],
)
def test_json_is_found_among_words(serve: Serve, words: str) -> None:
    events, outcome = ask(serve([text(words)]), answer=Verdict)
    assert outcome.answer == Verdict(**RIGHT)
    assert "complaint" not in kinds(events)


def test_an_answer_of_the_wrong_form_is_sent_back_with_what_is_wrong(serve: Serve) -> None:
    server = serve([calls(("answer", {"bottleneck": "hbm", "size": "four"})), calls(("answer", RIGHT))])
    events, outcome = ask(server, answer=Verdict, tools=TOOLS)
    complaint = only(events, Complaint)
    assert complaint.about == "form" and complaint.complaints[0].startswith("size: Input should be a valid integer")
    *_, call, told = server.requests[1].messages
    assert complaint.complaints[0] in told["content"] and told["tool_call_id"] == call["tool_calls"][0]["id"]
    assert outcome.answer == Verdict(**RIGHT)


def test_a_model_that_only_says_what_it_will_do_keeps_its_tools(serve: Serve) -> None:
    server = serve(
        [
            text("I will look at the mesh first."),
            calls(("axis_size", {"name": "data"})),
            answer(RIGHT),
        ]
    )
    _, outcome = ask(server, answer=Verdict, tools=TOOLS)
    assert server.requests[1].body["tool_choice"] == "auto"
    assert outcome.answer == Verdict(**RIGHT)


def grounded(verdict: Verdict, results: tuple[ToolReturned, ...]) -> list[str]:
    sizes = [result.result["size"] for result in results if isinstance(result.result, dict)]
    return [] if verdict.size in sizes else [f"size {verdict.size} comes from no tool result."]


def test_a_claim_that_the_check_rejects_is_sent_back_and_the_tools_stay(serve: Serve) -> None:
    server = serve([answer({"bottleneck": "hbm", "size": 8}), calls(("axis_size", {"name": "data"})), answer(RIGHT)])
    events, outcome = ask(server, answer=Verdict, tools=TOOLS, check=grounded)
    assert only(events, Complaint).complaints == ("size 8 comes from no tool result.",)
    assert only(events, Complaint).about == "content"
    assert server.requests[1].body["tool_choice"] == "auto"
    assert outcome.answer == Verdict(**RIGHT)


def test_after_the_last_repair_a_run_stops_with_the_complaints(serve: Serve) -> None:
    server = serve([answer({"bottleneck": "hbm", "size": size}) for size in (8, 9, 10)])
    events, outcome = ask(server, answer=Verdict, check=grounded, limits=Limits(repairs=2))
    stopped = outcome.stopped
    assert kinds(events)[-1] == "stopped" and outcome.answer is None
    assert stopped is not None and stopped.reason == "rejected"
    assert stopped.complaints == ("size 10 comes from no tool result.",)
    assert stopped.last_answer == '{"bottleneck": "hbm", "size": 10}'
    assert "sent back 2 times: size 10 comes from no tool result." in stopped.sentence


def test_an_empty_answer_stops_a_run(serve: Serve) -> None:
    events, outcome = ask(serve([text(""), text("  ")]), limits=Limits(repairs=1))
    assert kinds(events)[-1] == "stopped"
    assert outcome.answer is None
    assert outcome.stopped is not None and outcome.stopped.complaints == ("The answer is empty.",)


def test_an_answer_that_is_cut_off_is_asked_for_again_and_shorter(serve: Serve) -> None:
    server = serve([text("The step is", finish="length"), text("HBM.")])
    events, outcome = ask(server)
    assert "cut off" in only(events, Complaint).complaints[0]
    assert outcome.answer == "HBM."


# Bounds.


def obedient(body: dict[str, Any]) -> Stream:
    """A model that calls a tool as long as it may."""
    if body.get("tool_choice") == "auto":
        return calls(("axis_size", {"name": "data"}))
    return text("I had to stop.")


def test_on_its_last_turn_the_model_must_answer(serve: Serve) -> None:
    server = serve(obedient)
    _, outcome = ask(server, tools=TOOLS, limits=Limits(turns=3))
    assert outcome.answer == "I had to stop." and outcome.turns == 3
    assert "No further tool can be called" in server.requests[-1].messages[-1]["content"]


def test_calls_beyond_the_limit_are_refused_and_the_model_must_answer(serve: Serve) -> None:
    many = calls(*[("axis_size", {"name": "data"})] * 5)
    server = serve([many, text("Three of five.")])
    _, outcome = ask(server, tools=TOOLS, limits=Limits(tool_calls=3))
    assert [result.ok for result in outcome.results] == [True] * 3 + [False] * 2
    assert server.requests[1].body["tool_choice"] == "none"
    assert outcome.tool_calls == 3 and outcome.answer == "Three of five."


def test_a_model_that_calls_all_the_same_is_stopped(serve: Serve) -> None:
    _, outcome = ask(serve(lambda _: calls(("axis_size", {"name": "data"}))), tools=TOOLS, limits=Limits(turns=2))
    assert outcome.stopped is not None and outcome.stopped.reason == "turns"
    assert "no answer within the limit of 2 answers" in outcome.stopped.sentence


def test_no_request_goes_out_that_could_run_over_the_tokens(serve: Serve) -> None:
    server = serve([calls(("axis_size", {"name": "data"}), counted=usage(900, 80)), text("Never asked.")])
    _, outcome = ask(server, tools=TOOLS, limits=Limits(tokens=1000))
    assert outcome.stopped is not None and outcome.stopped.reason == "tokens"
    assert len(server.requests) == 1 and outcome.usage == Usage(900, 80)
    assert server.requests[0].body["max_completion_tokens"] < 1000


def test_money_binds_where_the_price_is_known_and_is_unknown_where_not(serve: Serve) -> None:
    script = [calls(("axis_size", {"name": "data"}), counted=usage(1000, 100)), text("Done.")]
    price = Price(input=2, output=10)  # 1000 · 2 + 100 · 10 = 3000 µUSD
    server = serve(script)
    provider = OpenAIProvider(settings_for(server, prices={"scripted": price}))
    events, outcome = ask(provider, tools=TOOLS, limits=Limits(cost_usd=0.0031))
    assert outcome.stopped is not None and outcome.stopped.reason == "money"
    assert outcome.cost_usd == pytest.approx(3000e-6)
    assert only(events, ModelResponse).cost_usd == pytest.approx(3000e-6)
    assert len(server.requests) == 1

    events, outcome = ask(serve(script), tools=TOOLS, limits=Limits(cost_usd=0.0031))
    assert outcome.answer == "Done." and outcome.cost_usd is None and only(events, Final).cost_usd is None


def test_time_is_up_between_two_turns(serve: Serve) -> None:
    server = serve([calls(("axis_size", {"name": "data"})), text("Too late.")])
    _, outcome = ask(server, tools=TOOLS, limits=Limits(time_s=20), clock=NoWaiting(step_s=5).clock())
    assert outcome.stopped is not None and outcome.stopped.reason == "time"
    assert len(server.requests) == 1


@pytest.mark.slow
def test_time_is_up_while_the_model_is_silent(serve: Serve) -> None:
    server = serve([Stream((chunk({"content": "The"}), Wait()))])
    _, outcome = drive(run(OpenAIProvider(settings_for(server)), [UserMessage("?")], limits=Limits(time_s=2)))
    assert outcome.stopped is not None and outcome.stopped.reason == "time"
    assert server.hung_up.wait(10)


def test_tokens_that_the_server_does_not_count_are_estimated_and_marked(serve: Serve) -> None:
    words = "x" * 400
    _, outcome = ask(serve([Stream((chunk({"content": words}), chunk({}, "stop")))]), [UserMessage("y" * 800)])
    assert outcome.usage == Usage(200, 100, estimated=True)


# Stopping.


def test_closing_the_generator_hangs_up(serve: Serve) -> None:
    server = serve([Stream((chunk({"content": "The step "}), Wait()))])
    events = run(OpenAIProvider(settings_for(server)), [UserMessage("?")])
    while not isinstance(next(events), TextDelta):
        pass
    assert not server.hung_up.is_set()
    events.close()
    assert server.hung_up.wait(10)


@pytest.mark.parametrize("before_headers", [True, False])
def test_a_stop_button_ends_a_run_that_waits_for_the_model(serve: Serve, before_headers: bool) -> None:
    reply = Plain(before=Wait()) if before_headers else Stream((chunk({"content": "The"}), Wait()))
    server = serve([reply])
    cancel = Cancel()
    ended: list[Any] = []
    provider = OpenAIProvider(settings_for(server))

    def work() -> None:
        ended.append(drive(run(provider, [UserMessage("?")], cancel=cancel)))

    thread = threading.Thread(target=work)
    thread.start()
    while not server.requests:
        threading.Event().wait(0.01)
    cancel.set()
    thread.join(20)
    assert not thread.is_alive()
    assert server.hung_up.wait(10)
    events, outcome = ended[0]
    assert outcome.stopped.reason == "cancelled" and outcome.answer is None, "who stops a run wants no other answer"
    assert isinstance(events[-1], Stopped)


def test_a_run_that_is_cancelled_between_tools_leaves_a_conversation_that_can_go_on(serve: Serve) -> None:
    cancel = Cancel()

    def press() -> str:
        """Presses the stop button."""
        cancel.set()
        return "pressed"

    server = serve([calls(("press", {}), ("press", {})), text("Never.")])
    _, outcome = ask(server, tools=[tool(press)], cancel=cancel)
    assert outcome.stopped is not None and outcome.stopped.reason == "cancelled"
    assert len(outcome.results) == 1


def test_a_conversation_that_is_too_long_stops_at_once(serve: Serve) -> None:
    server = serve([overflow()])
    _, outcome = ask(server)
    assert outcome.stopped is not None and len(server.requests) == 1
    assert "longer than scripted can read" in outcome.stopped.sentence


# One response with more calls than a run may have.


def many(count: int, name: str = "axis_size") -> Stream:
    return calls(*((name, {"name": "data"}) for _ in range(count)))


@pytest.mark.slow
def test_calls_of_one_response_are_capped(serve: Serve) -> None:
    server = serve([many(400), text("It is 4.")])
    events, outcome = ask(server, tools=TOOLS)
    assert outcome.answer == "It is 4."
    assert outcome.tool_calls == len(outcome.results) == Limits().calls_per_turn
    assert len(events) < 100
    assert len(only(events[:5], ModelResponse).message.tool_calls) == Limits().calls_per_turn
    assert len([m for m in server.requests[1].messages if m["role"] == "tool"]) == Limits().calls_per_turn


def test_time_is_looked_at_before_each_call_of_a_response(serve: Serve) -> None:
    ran = []
    clock = NoWaiting()

    def slow(axis: Axis) -> int:
        """Takes 20 s."""
        ran.append(axis)
        clock.at_s += 20
        return 4

    _, outcome = ask(serve([many(16, "slow")]), tools=[tool(slow)], limits=Limits(time_s=45), clock=clock.clock())
    assert outcome.stopped is not None and outcome.stopped.reason == "time"
    assert len(ran) == 3


def test_refused_calls_end_with_the_time_as_well(serve: Serve) -> None:
    clock = NoWaiting(step_s=1.0)
    _, outcome = ask(
        serve([many(16)]), tools=TOOLS, limits=Limits(time_s=20, tool_calls=2), clock=clock.clock()
    )  # fmt: skip
    assert outcome.stopped is not None and outcome.stopped.reason == "time"
    assert outcome.tool_calls == 2


def test_results_count_before_the_next_call(serve: Serve) -> None:
    ran = []

    def long(axis: Axis) -> str:
        """10,000 characters, about 2,500 tokens."""
        ran.append(axis)
        return "x" * 10_000

    _, outcome = ask(serve([many(16, "long")]), tools=[tool(long)], limits=Limits(tokens=8_000, time_s=60))
    assert outcome.stopped is not None and outcome.stopped.reason == "tokens"
    assert len(ran) == 4
