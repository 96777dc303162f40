"""Every way in which an endpoint can fail, over real HTTP: what is tried again, what is said, what is remembered."""

from __future__ import annotations

import json
import socket
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from agent.events import Retry, RunEvent, TextDelta, event_to_json
from agent.limits import Limits
from agent.loop import Outcome, run
from agent.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from agent.provider.faults import retry_after_s
from agent.provider.openai import OpenAIProvider
from agent.tools import Arguments
from tests.agent.conftest import KEY, NoWaiting, ask, drive, kinds, settings_for, tool
from tests.agent.server import (
    Plain,
    Reply,
    ScriptedServer,
    Stream,
    Wait,
    answer,
    calls,
    chunk,
    cut,
    error,
    filtered,
    refusal,
    text,
)

Serve = Callable[..., ScriptedServer]


def retries(events: list[RunEvent]) -> list[str]:
    return [event.fault.kind for event in events if isinstance(event, Retry)]


def stop(outcome: Outcome[Any]) -> tuple[str, str]:
    assert outcome.stopped is not None and outcome.stopped.fault is not None
    assert outcome.answer is None
    return outcome.stopped.fault.kind, outcome.stopped.sentence


class Verdict(BaseModel):
    bottleneck: str
    notes: list[str] = []


# What is tried again.


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (error(500, "Internal error"), "server"),
        (error(503, "Overloaded"), "server"),
        (Plain(502, b"<html>Bad gateway</html>", content_type="text/html"), "server"),
        (error(408, "Timeout"), "server"),
        (error(429, "Slow down"), "rate_limit"),
        (cut("The step is bound by"), "truncated"),
        (text("The step is bound by", finish=None), "truncated"),
        (text("The step is bound by", finish=None, done=False), "truncated"),
        (Stream((chunk({"content": "The"}), b"data: {no json\n\n")), "malformed"),
        (Stream((chunk({"content": "The"}), b'data: {"error": {"message": "CUDA out of memory"}}\n\n')), "server"),
    ],
)
def test_a_passing_failure_is_tried_again_and_shown(serve: Serve, reply: Reply, kind: str) -> None:
    server = serve([reply, text("HBM.")])
    events, outcome = ask(server)
    assert retries(events) == [kind]
    assert outcome.answer == "HBM."
    assert len(server.requests) == 2, "the SDK itself repeats nothing"
    after = events[next(i for i, event in enumerate(events) if isinstance(event, Retry)) :]
    assert "".join(event.text for event in after if isinstance(event, TextDelta)) == "HBM."


def test_waits_grow_and_end_with_one_sentence(serve: Serve) -> None:
    server = serve([error(500, "Internal error")] * 9)
    time_ = NoWaiting()
    _, outcome = ask(server, clock=time_.clock(), limits=Limits(retries=3))
    assert time_.slept_s == [0.5, 1.0, 2.0]
    assert len(server.requests) == 4
    kind, sentence = stop(outcome)
    assert kind == "server"
    assert sentence == f"{server.url} failed with status 500: “Internal error” (tried 4 times)"


def test_tokens_of_a_broken_answer_count(serve: Serve) -> None:
    _, outcome = ask(serve([cut("x" * 400), text("HBM.")]), [UserMessage("y" * 400)])
    assert outcome.usage.tokens_in == 100 + 100 and outcome.usage.tokens_out == 100 + 20
    assert outcome.usage.estimated


def test_retry_after_is_honoured(serve: Serve) -> None:
    time_ = NoWaiting()
    server = serve([error(429, "Slow down", headers={"Retry-After": "7"}), text("HBM.")])
    _, outcome = ask(server, clock=time_.clock())
    assert time_.slept_s == [7.0] and outcome.answer == "HBM."


def test_a_wait_longer_than_the_run_is_not_waited(serve: Serve) -> None:
    time_ = NoWaiting()
    server = serve([error(429, "Slow down", headers={"Retry-After": "3600"})])
    _, outcome = ask(server, clock=time_.clock(), limits=Limits(time_s=60))
    assert time_.slept_s == []
    kind, sentence = stop(outcome)
    assert kind == "rate_limit" and "asks to wait 3,600 s, longer than the time left for this run" in sentence


def test_retry_after_is_read() -> None:
    assert retry_after_s({"retry-after": "2.5"}) == 2.5
    assert retry_after_s({"retry-after-ms": "1500", "retry-after": "9"}) == 1.5
    for useless in ({}, {"retry-after": "soon"}, {"retry-after": "nan"}, {"retry-after": "-3"}):
        assert retry_after_s(useless) is None


# What is not tried again.


@pytest.mark.parametrize(
    ("reply", "kind", "says"),
    [
        (error(401, f"Incorrect API key provided: {KEY}"), "auth", "check OPENAI_API_KEY"),
        (
            error(403, "Project has no access"),
            "forbidden",
            "does not permit this key to use scripted: “Project has no access”",
        ),
        (error(404, "The model does not exist"), "not_found", "has no model scripted"),
        (error(429, "Quota", "insufficient_quota"), "quota", "quota of this key"),
        (error(400, "temperature is odd"), "bad_request", "refused the request with status 400: “temperature is odd”"),
        (error(422, "Unprocessable"), "bad_request", "status 422"),
        (error(400, "Filtered", "content_filter"), "refusal", "content filter"),
        (refusal("I cannot help with that."), "refusal", "declined to answer: “I cannot help with that.”"),
        (filtered("The"), "refusal", "declined to answer."),
        (Plain(200, b"<html>Welcome</html>", content_type="text/html"), "content_type", "answered with text/html"),
        (Plain(200, {"hello": "world"}), "content_type", "not with a chat completion"),
        (Plain(413, b""), "context", "longer than scripted can read"),
    ],
)
def test_a_lasting_failure_is_one_sentence_and_no_retry(serve: Serve, reply: Reply, kind: str, says: str) -> None:
    server = serve([reply] * 3)
    events, outcome = ask(server)
    found, sentence = stop(outcome)
    assert found == kind and says in sentence and sentence.endswith((".", "”"))
    assert retries(events) == [] and len(server.requests) == 1
    assert KEY not in json.dumps([event_to_json(event) for event in events])


@pytest.mark.parametrize(
    "reply",
    [
        error(400, "This model's maximum context length is 8192 tokens.", "context_length_exceeded"),
        error(400, "You passed 1015 input tokens. Please reduce the length of the input prompt."),
        Plain(
            400, {"error": "The number of tokens to keep from the initial prompt is greater than the context length"}
        ),
        Stream((b'data: {"error": "Trying to keep the first 9000 tokens when context the overflows."}\n\n',)),
    ],
)
def test_an_overflow_is_known_in_the_words_of_several_servers(serve: Serve, reply: Reply) -> None:
    kind, _ = stop(ask(serve([reply]))[1])
    assert kind == "context"


# Nobody there.


def test_nobody_listens(serve: Serve) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = serve([])
    provider = OpenAIProvider(settings_for(server, base_url=f"http://127.0.0.1:{port}/v1"))
    events, outcome = ask(provider)
    kind, sentence = stop(outcome)
    assert kind == "connect" and "No server answers at http://127.0.0.1" in sentence and "(tried 3 times)" in sentence
    assert retries(events) == ["connect", "connect"]


def test_a_host_that_is_not_known(serve: Serve) -> None:
    provider = OpenAIProvider(settings_for(serve([]), base_url="http://no-such-host.invalid/v1"))
    kind, sentence = stop(ask(provider)[1])
    assert kind == "dns" and "The host of http://no-such-host.invalid/v1 cannot be resolved" in sentence


def test_a_server_without_tls_where_https_is_asked(serve: Serve) -> None:
    server = serve([])
    provider = OpenAIProvider(settings_for(server, base_url=server.url.replace("http:", "https:")))
    kind, sentence = stop(ask(provider)[1])
    assert kind == "tls" and "No secure connection" in sentence


@pytest.mark.slow
def test_a_server_that_says_nothing(serve: Serve) -> None:
    server = serve([Plain(before=Wait()), text("HBM.")])
    provider = OpenAIProvider(settings_for(server, read_timeout_s=2))
    events, outcome = ask(provider)
    assert retries(events) == ["timeout"] and outcome.answer == "HBM."
    assert server.hung_up.wait(10)


@pytest.mark.slow
def test_a_server_that_never_ends(serve: Serve) -> None:
    """Words keep coming, so no read times out; the request as a whole does."""
    stall = [part for _ in range(500) for part in (chunk({"content": "and "}), Wait(for_s=0.01))]
    server = serve([Stream(tuple(stall)), text("HBM.")])
    events, outcome = ask(OpenAIProvider(settings_for(server, request_timeout_s=2)))
    assert retries(events) == ["timeout"] and outcome.answer == "HBM."


def test_a_server_that_ignores_the_limit_of_tokens_is_cut(serve: Serve) -> None:
    server = serve([Stream((*(chunk({"content": "x" * 1000}) for _ in range(50)), Wait()))])
    _, outcome = ask(server, limits=Limits(answer_tokens=100, repairs=0))
    assert outcome.stopped is not None and "cut off" in outcome.stopped.sentence
    assert server.hung_up.wait(10)


# What an endpoint does not know is found out once.


@pytest.mark.parametrize(
    ("words", "gone", "instead"),
    [
        ("Unsupported parameter: 'max_completion_tokens'", "max_completion_tokens", "max_tokens"),
        ("unknown field stream_options", "stream_options", None),
    ],
)
def test_parameters_that_a_server_does_not_know_are_left_out(
    serve: Serve, words: str, gone: str, instead: str | None
) -> None:
    server = serve([error(400, words), text("HBM."), text("HBM.")])
    provider = OpenAIProvider(settings_for(server))
    assert ask(provider)[1].answer == "HBM." == ask(provider)[1].answer
    assert [gone in request.body for request in server.requests] == [True, False, False]
    assert instead is None or instead in server.requests[1].body


def test_learning_does_not_use_up_the_retries(serve: Serve) -> None:
    server = serve(
        [
            error(400, "stream_options is not supported"),
            error(400, "max_completion_tokens is not supported"),
            error(500, "Hiccup"),
            text('{"bottleneck": "hbm"}'),
        ]
    )
    events, outcome = ask(server, answer=Verdict, limits=Limits(retries=1))
    assert outcome.answer == Verdict(bottleneck="hbm")
    assert retries(events) == ["unsupported"] * 2 + ["server"]


def test_a_server_that_does_not_stream_is_understood(serve: Serve) -> None:
    message = {"role": "assistant", "content": "HBM."}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    whole = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": choices}
    _, outcome = ask(serve([Plain(body=whole | {"usage": {"prompt_tokens": 7, "completion_tokens": 3}})]))
    assert outcome.answer == "HBM." and outcome.usage.tokens == 10


# The many ways of writing a tool call.


class Axis(Arguments):
    name: str


def axis_size(axis: Axis) -> int:
    """Size of a mesh axis."""
    return len(axis.name)


def called(*deltas: dict[str, Any]) -> Stream:
    return Stream((*(chunk({"tool_calls": [delta]}) for delta in deltas), chunk({}, "tool_calls")))


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(
            called(
                {"index": 0, "id": "a", "function": {"name": "axis_size", "arguments": '{"name": "data"}'}},
                {"index": 0, "id": "b", "function": {"name": "axis_size", "arguments": '{"name": "model"}'}},
            ),
            id="every call numbered 0",
        ),
        pytest.param(
            called(
                {"index": 0, "id": "a", "function": {"name": "axis_size", "arguments": '{"name"'}},
                {"index": 0, "id": "a", "function": {"name": "axis_size", "arguments": ': "data"}'}},
                {"index": 1, "id": "b", "function": {"name": "axis_size", "arguments": '{"name": "model"}'}},
            ),
            id="id and name in every piece",
        ),
        pytest.param(
            called(
                {"index": 0, "function": {"name": "axis_size", "arguments": {"name": "data"}}},
                {"index": 1, "function": {"name": "axis_size", "arguments": {"name": "model"}}},
            ),
            id="no ids, arguments as objects",
        ),
        pytest.param(
            Stream(
                (
                    chunk(
                        {
                            "tool_calls": [
                                {"id": "a", "function": {"name": "axis_size", "arguments": '{"name": "data"}'}},
                                {"id": "b", "function": {"name": "axis_size", "arguments": '{"name": "model"}'}},
                            ]
                        },
                        "stop",
                    ),
                )
            ),
            id="all in one piece, no numbers, finish reason stop",
        ),
    ],
)
def test_tool_calls_are_understood_as_servers_write_them(serve: Serve, stream: Stream) -> None:
    server = serve([stream, text("Done.")])
    _, outcome = ask(server, tools=[tool(axis_size)])
    assert [result.result for result in outcome.results] == [4, 5]
    ids = [call["id"] for call in server.requests[1].messages[2]["tool_calls"]]
    assert len(set(ids)) == 2 and all(ids)


def test_a_block_of_thoughts_is_not_part_of_the_answer(serve: Serve) -> None:
    events, outcome = ask(serve([text("<think>The user wants HBM. Or <b>ICI</b>?</think>\n\nIt is HBM.")]))
    assert outcome.answer == "It is HBM."
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "It is HBM."
    assert ask(serve([text("<thin> walls")]))[1].answer == "<thin> walls"


def test_what_no_database_stores_does_not_come_from_a_model(serve: Serve) -> None:
    _, outcome = ask(
        serve([Stream((chunk({"content": "a\0b\ud83d"}), chunk({"content": "\ude00"}), chunk({}, "stop")))])
    )
    assert outcome.answer == "a\ufffdb😀"


# The key.


def test_a_server_that_repeats_the_key_does_not_get_it_into_the_trace(serve: Serve) -> None:
    def echo(body: dict[str, Any]) -> Reply:
        if body["messages"][-1]["role"] == "tool":
            return Stream((chunk({"content": f"Your key is {KEY}."}), chunk({}, "stop")))
        return calls(("axis_size", {"name": KEY}))

    server = serve(echo)
    events, outcome = ask(server, tools=[tool(axis_size)])
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in json.dumps([event_to_json(event) for event in events]) + repr(outcome)
    assert outcome.answer == "Your key is [hidden]."


def test_an_error_does_not_carry_the_key(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    server = serve([error(400, f"Odd header Authorization: Bearer {KEY} for sk-proj-abcdef123456")])
    provider = OpenAIProvider(settings_for(server))
    with caplog.at_level("DEBUG"):
        _, outcome = ask(provider)
    _, sentence = stop(outcome)
    assert KEY not in sentence and "sk-proj" not in sentence and "[hidden]" in sentence
    assert KEY not in repr(provider.settings) + str(vars(provider)["settings"])
    assert not [record for record in caplog.records if KEY in record.getMessage()]


def test_each_agent_may_have_a_model_of_its_own(serve: Serve) -> None:
    server = serve([text("1"), text("2")])
    provider = OpenAIProvider(settings_for(server, models={"proposer": "large"}))
    ask(provider.for_agent("analyzer"))
    ask(provider.for_agent("proposer"))
    assert [request.body["model"] for request in server.requests] == ["scripted", "large"]


def test_a_conversation_may_be_empty_of_system_and_text(serve: Serve) -> None:
    server = serve([answer({"bottleneck": "hbm"})])
    said = [
        UserMessage("?"),
        AssistantMessage("", (ToolCall("c", "x"),)),
        ToolMessage("c", "x", "1"),
        AssistantMessage(""),
    ]
    events, _ = drive(run(OpenAIProvider(settings_for(server)), said, answer=Verdict))
    assert kinds(events)[-1] == "final"
    assert [message["role"] for message in server.requests[0].messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


# What an endpoint can do to whoever reads it.


def said(events: list[RunEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.parametrize("size", [1, 5, 23])
def test_a_key_that_comes_in_pieces_is_hidden_while_it_streams(serve: Serve, size: int) -> None:
    words = f"The key sk-test is not {KEY}, nor {KEY}{KEY[:9]}"
    parts = [chunk({"content": words[at : at + size]}) for at in range(0, len(words), size)]
    events, outcome = ask(serve([Stream((*parts, chunk({}, "stop")))]))
    assert said(events) == outcome.answer == f"The key sk-test is not [hidden], nor [hidden]{KEY[:9]}"


def bomb(unpacked_bytes: int) -> bytes:
    """A stream of chunks, compressed about a thousandfold."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    line = b"data: " + json.dumps(chunk({"reasoning_content": " " * 100_000})).encode() + b"\n\n"
    return b"".join(packer.compress(line) for _ in range(unpacked_bytes // len(line))) + packer.flush()


def test_a_compressed_response_is_not_unpacked(serve: Serve) -> None:
    packed = Plain(
        200, bomb(100_000_000), content_type="text/event-stream", headers=(("Content-Encoding", "gzip"),)
    )  # fmt: skip
    server = serve([packed])
    tracemalloc.start()
    try:
        kind, sentence = stop(ask(server)[1])
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kind == "too_long" and "was not read" in sentence
    assert server.requests[0].headers["accept-encoding"] == "identity"
    assert peak_bytes < 20_000_000


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("content_type", ["text/event-stream", "application/json"])
def test_a_response_without_end_is_cut(serve: Serve, status: int, content_type: str) -> None:
    line = b"data: " + json.dumps(chunk({"reasoning_content": "x" * 1_000_000})).encode() + b"\n\n"
    kind, _ = stop(ask(serve([Plain(status, 20 * line, content_type=content_type)]))[1])
    assert kind == "too_long"


def test_a_redirect_does_not_carry_the_conversation_elsewhere(serve: Serve) -> None:
    elsewhere = serve([text("Sent on.")])
    moved = Plain(307, headers=(("Location", f"{elsewhere.url}/chat/completions"),))
    kind, sentence = stop(ask(serve([moved]))[1])
    assert kind == "redirect" and "OPENAI_BASE_URL" in sentence
    assert elsewhere.requests == []


# Odd replies.

DEEP = 100_000


@pytest.mark.parametrize("count", [10**12, 10**30, float("inf"), float("nan"), -5, "many", None, [1]])
def test_a_count_of_tokens_that_is_none_is_estimated(serve: Serve, count: Any) -> None:
    counted = chunk({}) | {"choices": [], "usage": {"prompt_tokens": count, "completion_tokens": 7}}
    events, outcome = ask(serve([text("HBM.", counted=counted)]))
    assert outcome.answer == "HBM."
    assert 0 <= outcome.usage.tokens < 2**31
    json.dumps([event_to_json(event) for event in events], allow_nan=False)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * DEEP,
        b'{"choices": ' + b"[" * DEEP + b"]" * DEEP + b"}",
        b'{"choices": [{"delta": {"content": ' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}}]}",
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
def test_deep_json_of_a_server_is_a_fault(serve: Serve, body: bytes, streamed: bool) -> None:
    reply = Stream((b"data: " + body + b"\n\n",)) if streamed else Plain(200, body)
    kind, _ = stop(ask(serve([reply] * 3))[1])
    assert kind in ("malformed", "truncated", "content_type")


@pytest.mark.parametrize(
    "words", ["[" * DEEP, '{"a":' * 30_000, '{"a":' * 200 + "1" + "}" * 200, '{"bottleneck": Infinity}']
)
def test_an_answer_that_is_odd_json_is_sent_back(serve: Serve, words: str) -> None:
    server = serve([Stream((chunk({"content": words}), chunk({}, "stop"))), answer({"bottleneck": "hbm"})])
    _, outcome = ask(server, answer=Verdict)
    assert outcome.answer == Verdict(bottleneck="hbm")


class Anything(Arguments):
    size: float = 0.0
    more: Any = None


@pytest.mark.parametrize(
    "arguments",
    [
        '{"size": Infinity}', '{"size": 1e999}', '{"size": NaN}', '{"more": ' + "[" * DEEP + "]" * DEEP + "}",
        '{"more": ' + "[" * 200 + "]" * 200 + "}", "[" * DEEP,
    ],
)  # fmt: skip
def test_odd_arguments_are_told_to_the_model_and_can_be_stored(serve: Serve, arguments: str) -> None:
    def read(given: Anything) -> dict[str, Any]:
        """Reads."""
        return {"size": given.size}

    whole = Stream(
        (
            chunk(
                {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "read", "arguments": arguments}}]},
                "tool_calls",
            ),
        )
    )
    events, outcome = ask(serve([whole, text("HBM.")]), tools=[tool(read)])
    assert outcome.answer == "HBM."
    assert not outcome.results[0].ok and "not valid JSON" in str(outcome.results[0].error)
    json.dumps([event_to_json(event) for event in events], allow_nan=False)
