"""The agent loop: model, tools, model …, until an answer passes its check or a bound is reached.

`run` is a plain generator of events without state of its own outside the generator; its return value is the `Outcome`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel

from agent import compose
from agent.control import Cancel, Clock
from agent.events import (
    Complaint,
    Fault,
    Final,
    ModelRequest,
    ModelResponse,
    Retry,
    RunEvent,
    Stopped,
    StopReason,
    TextDelta,
    ToolCalled,
    ToolReturned,
)
from agent.limits import Limits, Meter
from agent.messages import AssistantMessage, JsonValue, Message, ToolCall, ToolMessage, Usage, UserMessage, size_chars
from agent.provider.base import Completion, Provider, ProviderError, Request
from agent.tools import ANSWER, AnswerError, Tool, answer_tool, by_name, call_tool, parse, refused
from formatting import plain

A = TypeVar("A")

#: Of one answer; with more errors than this the model starts again.
_MOST_COMPLAINTS = 25
#: Fewer tokens than this are not worth a request.
_LEAST_ANSWER_TOKENS = 32


@dataclass(frozen=True)
class Outcome(Generic[A]):
    """What a run came to.

    answer: None where it stopped.  results: of all tools.  cost_usd: None where the model's price is unknown.
    """

    answer: A | None
    stopped: Stopped | None
    results: tuple[ToolReturned, ...]
    usage: Usage
    cost_usd: float | None
    turns: int
    tool_calls: int
    duration_s: float

    def final(self, data: JsonValue, source: Literal["model", "fallback"]) -> Final:
        """Another answer that stands for this run, with its totals."""
        return Final(data, source, self.usage, self.cost_usd, self.turns, self.tool_calls, self.duration_s)


def run(
    provider: Provider,
    messages: Sequence[Message],
    *,
    tools: Sequence[Tool] = (),
    answer: type[BaseModel] | None = None,
    check: Callable[[Any, tuple[ToolReturned, ...]], Iterable[str]] | None = None,
    limits: Limits | None = None,
    cancel: Cancel | None = None,
    clock: Clock | None = None,
) -> Generator[RunEvent, None, Outcome[Any]]:
    """Runs an agent on a conversation; yields what happens and returns the outcome.

    answer: pydantic model of the final answer, given by a call of the tool `answer`; None for text.  check: what is
    wrong with an answer, one exact sentence each; it is sent back with them, `limits.repairs` times.  cancel: ends the
    run from another thread.  Closing the generator ends it from its own; either way the connection to the model is
    closed.

    Raises what a tool raises other than ToolError, after a Stopped with reason `bug`.
    """
    loop = _Loop(provider, list(messages), by_name(tools), answer, check, limits or Limits(), cancel or Cancel(),
                 clock or Clock())  # fmt: skip
    stopped: Stopped | None = None
    accepted: Any = None
    try:
        accepted = yield from loop.turns()
    except _Stop as stop:
        stopped = replace(stop.event, last_answer=loop.last_answer, complaints=loop.last_complaints)
        yield stopped
    meter = loop.meter
    outcome: Outcome[Any] = Outcome(
        accepted, stopped, tuple(loop.results), meter.usage, meter.cost_usd, meter.turns, meter.tool_calls,
        loop.clock.now() - meter.started_s,
    )  # fmt: skip
    if stopped is None:
        yield outcome.final(accepted.model_dump(mode="json") if isinstance(accepted, BaseModel) else accepted, "model")
    return outcome


class _Stop(Exception):
    def __init__(self, reason: StopReason, sentence: str, fault: Fault | None = None) -> None:
        self.event = Stopped(reason, sentence, fault)


@dataclass
class _Loop:
    """One run while it lasts."""

    provider: Provider
    conversation: list[Message]
    tools: dict[str, Tool]
    answer: type[BaseModel] | None
    check: Callable[[Any, tuple[ToolReturned, ...]], Iterable[str]] | None
    limits: Limits
    cancel: Cancel
    clock: Clock
    meter: Meter = field(init=False)
    results: list[ToolReturned] = field(default_factory=list)
    last_answer: str | None = None
    last_complaints: tuple[str, ...] = ()
    repairs: int = 0
    told: int = 0  # messages that an event has shown already
    next_result: int = field(init=False)

    def __post_init__(self) -> None:
        self.meter = Meter(self.limits, self.provider.price, self.clock.now())
        self.next_result = 1 + sum(isinstance(message, ToolMessage) for message in self.conversation)

    def turns(self) -> Generator[RunEvent, None, Any]:
        noticed = False
        while True:
            calls_left = self.limits.tool_calls - self.meter.tool_calls
            must_answer = bool(self.tools) and (self.meter.turns + 1 >= self.limits.turns or calls_left <= 0)
            if must_answer and self.meter.turns and not noticed:
                noticed = True
                self.conversation.append(UserMessage(compose.LAST_TURN))
            completion = yield from self._ask(must_answer)
            message = completion.message
            given = next((call for call in message.tool_calls if self.answer and call.name == ANSWER), None)
            if message.tool_calls and given is None and completion.finish != "length":
                if must_answer:
                    reason: StopReason = "tool_calls" if calls_left <= 0 else "turns"
                    raise _Stop(reason, compose.bound(reason, self.limits))
                yield from self._call(message)
                continue
            value, about, complaints = self._judge(completion, given.arguments if given else message.text)
            if not complaints:
                return value
            yield self._complain(message.text, given, about, complaints)

    # One request, repeated as far as its faults and the limits allow.

    def _ask(self, must_answer: bool) -> Generator[RunEvent, None, Completion]:
        turn = self.meter.turns + 1
        if turn > self.limits.turns:
            raise _Stop("turns", compose.bound("turns", self.limits))
        attempt = 0
        retries = 0
        failed: Counter[str] = Counter()
        while True:
            attempt += 1
            request = self._request(must_answer)
            yield self._requested(request, turn, attempt)
            try:
                return (yield from self._receive(request, turn))
            except ProviderError as error:
                fault = error.fault
            if fault.usage is not None:
                self.meter.usage += fault.usage
            if fault.kind == "cancelled" or self.cancel.is_set():
                raise _Stop("cancelled", compose.CANCELLED, None)
            now_s = self.clock.now()
            if fault.kind == "timeout" and self.meter.remaining_s(now_s) <= 0:
                raise _Stop("time", compose.bound("time", self.limits), fault)
            if fault.kind != "unsupported":
                retries += 1
            failed[fault.kind] += 1
            if failed[fault.kind] >= fault.attempts or retries > self.limits.retries:
                tried = f" (tried {attempt} times)" if attempt > 1 else ""
                raise _Stop("fault", f"{fault.sentence}{tried}", fault)
            wait_s = self._wait_s(fault, retries)
            if wait_s >= self.meter.remaining_s(now_s):
                asked = f"asks to wait {plain(wait_s, 's')}, longer than the time left for this run"
                raise _Stop("fault", f"{fault.sentence} ({asked})", fault)
            yield Retry(turn, attempt, fault, wait_s)
            self.clock.sleep(wait_s, self.cancel)

    def _request(self, must_answer: bool) -> Request:
        allowed, tools = self._may_go_on(), tuple(self.tools.values())
        if self.answer is not None:  # given by a call, so on the last turn nothing else can be called
            tools = (*(() if must_answer else tools), answer_tool(self.answer))
        tool_choice: Literal["auto", "none"] = "none" if must_answer and self.answer is None else "auto"
        return Request(tuple(self.conversation), tools, tool_choice, allowed)

    def _requested(self, request: Request, turn: int, attempt: int) -> ModelRequest:
        since, self.told = self.told, len(request.messages)
        return ModelRequest(
            turn, attempt, self.provider.name, self.provider.model, since, request.messages[since:],
            tuple(tool.name for tool in request.tools), request.tool_choice,
            None if self.answer is None else self.answer.__name__,
        )  # fmt: skip

    def _receive(self, request: Request, turn: int) -> Generator[RunEvent, None, Completion]:
        started_s = self.clock.now()
        first_s: float | None = None
        parts = self.provider.complete(request, timeout_s=self.meter.remaining_s(started_s), cancel=self.cancel)
        try:
            for part in parts:
                if isinstance(part, Completion):
                    part = self._capped(part)
                    self.meter.turns += 1
                    self.meter.usage += part.usage
                    price = self.provider.price
                    yield ModelResponse(
                        turn, part.message, part.finish, part.usage, part.model,
                        None if price is None else price.cost_usd(part.usage), self.clock.now() - started_s, first_s,
                    )  # fmt: skip
                    return part
                if first_s is None:
                    first_s = self.clock.now() - started_s
                yield TextDelta(turn, part)
        finally:
            close = getattr(parts, "close", None)
            if close is not None:
                close()
        raise RuntimeError(f"The provider {self.provider.name} ended without a completion.")

    def _capped(self, completion: Completion) -> Completion:
        """With the calls that one response may have; the others enter neither the conversation nor the record."""
        calls = completion.message.tool_calls[: self.limits.calls_per_turn]
        return replace(completion, message=replace(completion.message, tool_calls=calls))

    def _wait_s(self, fault: Fault, retries: int) -> float:
        if fault.wait_s is not None:
            return fault.wait_s
        return 0.0 if fault.kind == "unsupported" else min(0.5 * 2 ** (retries - 1), 8.0)

    # Tools.

    def _may_go_on(self, exchange: Sequence[Message] = ()) -> int:
        """Tokens that the next response may have; stops the run where a bound is reached.

        exchange: what the conversation is about to get, results included: they are read, and paid for, next.
        """
        if self.cancel.is_set():
            raise _Stop("cancelled", compose.CANCELLED)
        if self.meter.remaining_s(self.clock.now()) <= 0:
            raise _Stop("time", compose.bound("time", self.limits))
        tool_chars = sum(len(tool.description) + len(str(tool.parameters())) for tool in self.tools.values())
        allowed, binds = self.meter.allowance(size_chars(self.conversation) + size_chars(exchange) + tool_chars)
        if allowed < _LEAST_ANSWER_TOKENS:
            raise _Stop(binds, compose.bound(binds, self.limits))
        return allowed

    def _call(self, message: AssistantMessage) -> Generator[RunEvent, None, None]:
        exchange: list[Message] = [message]
        for call in message.tool_calls:
            self._may_go_on(exchange)
            result_id = f"r{self.next_result}"
            self.next_result += 1
            yield ToolCalled(self.meter.turns, call, result_id)
            started_s = self.clock.now()
            if self.meter.tool_calls >= self.limits.tool_calls:
                returned = refused(compose.NO_CALLS_LEFT, call, result_id, self.meter.turns)
            else:
                self.meter.tool_calls += 1
                try:
                    returned = call_tool(self.tools, call, result_id, self.meter.turns)
                except Exception:
                    yield Stopped("bug", f"The tool {call.name} failed with an internal error; it has been logged.")
                    raise
            returned = replace(returned, duration_s=self.clock.now() - started_s)
            self.results.append(returned)
            exchange.append(ToolMessage(call.id, call.name, returned.text, result_id))
            yield returned
        self.conversation += exchange  # at once: a conversation never holds a call without its result

    # The answer.

    def _judge(self, completion: Completion, text: str) -> tuple[Any, Literal["form", "content"], list[str]]:
        """The answer as a value, or what is wrong with it."""
        if completion.finish == "length":
            return None, "form", [compose.CUT_OFF]
        if not text.strip():
            return None, "form", [compose.EMPTY]
        value: Any = text
        if self.answer is not None:
            try:
                value = parse(text, self.answer)
            except AnswerError as error:
                return None, "form", error.complaints
        complaints = [] if self.check is None else list(self.check(value, tuple(self.results)))
        if len(complaints) > _MOST_COMPLAINTS:
            complaints = [
                *complaints[:_MOST_COMPLAINTS],
                f"There are {len(complaints) - _MOST_COMPLAINTS} more such points.",
            ]
        return value, "content", complaints

    def _complain(
        self, text: str, given: ToolCall | None, about: Literal["form", "content"], complaints: list[str]
    ) -> Complaint:
        self.last_answer, self.last_complaints = given.arguments if given else text, tuple(complaints)
        if self.repairs >= self.limits.repairs:
            raise _Stop("rejected", compose.rejected(self.repairs, complaints))
        self.repairs += 1
        message = UserMessage(compose.complaint(complaints))
        if given is None:
            self.conversation += [AssistantMessage(text if text.strip() else compose.NOTHING), message]
        else:
            self.conversation += [AssistantMessage(text, (given,)), ToolMessage(given.id, ANSWER, message.text)]
        return Complaint(self.meter.turns, self.repairs, about, tuple(complaints), message)
