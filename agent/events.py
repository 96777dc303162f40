"""What happens in a run of an agent, step by step, as frozen values that become JSON.

The order within a turn: ModelRequest, TextDelta…, then ModelResponse or Retry; after a response either
(ToolCalled, ToolReturned)… or Complaint or Final.  Stopped says why a run ended without an accepted answer; a Final
after it carries the caller's fallback.  Text of a turn that ends in Retry or Complaint is withdrawn.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Literal, TypeVar

from pydantic_core import to_jsonable_python

from agent.bounded import compact, shown
from agent.messages import AssistantMessage, JsonValue, Message, ToolCall, Usage, UserMessage

T = TypeVar("T")

FaultKind = Literal[
    "auth", "forbidden", "not_found", "rate_limit", "quota", "server", "connect", "dns", "tls", "timeout", "truncated",
    "malformed", "content_type", "refusal", "context", "unsupported", "bad_request", "cancelled",
    "too_long", "redirect",
]  # fmt: skip

StopReason = Literal["turns", "tool_calls", "tokens", "time", "money", "rejected", "cancelled", "fault", "bug"]


@dataclass(frozen=True)
class Fault:
    """Why a model request failed.

    sentence: for the user, without secrets.  status: HTTP status where there was one.  attempts: how often such a
    request may be sent in all.  wait_s: what the server asked for (Retry-After); None: the loop's own back-off.
    usage: what the failed request spent all the same, estimated.
    """

    kind: FaultKind
    sentence: str
    status: int | None = None
    attempts: int = 1
    wait_s: float | None = None
    usage: Usage | None = None


@dataclass(frozen=True)
class ModelRequest:
    """A request goes out.

    messages: those from index `since` on; earlier ones are in the previous requests.  tools: names offered.
    tool_choice `none`: the model must answer now.  schema: name of the answer's schema, None for free text.
    """

    turn: int
    attempt: int
    provider: str
    model: str
    since: int
    messages: tuple[Message, ...]
    tools: tuple[str, ...] = ()
    tool_choice: Literal["auto", "none"] = "auto"
    schema: str | None = None
    kind: Literal["model_request"] = "model_request"


@dataclass(frozen=True)
class TextDelta:
    turn: int
    text: str
    kind: Literal["text_delta"] = "text_delta"


@dataclass(frozen=True)
class ModelResponse:
    """A whole response.  cost_usd: None where the model's price is unknown.  first_token_s: None without any text."""

    turn: int
    message: AssistantMessage
    finish: Literal["stop", "tool_calls", "length"]
    usage: Usage
    model: str
    cost_usd: float | None
    duration_s: float
    first_token_s: float | None = None
    kind: Literal["model_response"] = "model_response"


@dataclass(frozen=True)
class ToolCalled:
    """A tool is about to run.  result_id: the id that its result will have."""

    turn: int
    call: ToolCall
    result_id: str
    kind: Literal["tool_call"] = "tool_call"


@dataclass(frozen=True)
class ToolReturned:
    """What a tool returned: what the model saw, with all digits.

    ok: False where the call was refused or failed with a sentence for the model (`error`).  arguments: as validated,
    None where they were not valid.  truncated: what was left out of `result` so that it is not too large.
    """

    turn: int
    result_id: str
    call_id: str
    name: str
    ok: bool
    arguments: JsonValue
    result: JsonValue
    truncated: tuple[str, ...] = ()
    error: str | None = None
    duration_s: float = 0.0
    kind: Literal["tool_result"] = "tool_result"

    @property
    def text(self) -> str:
        """As the model reads it."""
        if self.error is not None:
            return compact({"id": self.result_id, "error": self.error})
        left_out: dict[str, JsonValue] = {"left_out": list(self.truncated)} if self.truncated else {}
        return shown({"id": self.result_id, "result": self.result, **left_out})


@dataclass(frozen=True)
class Complaint:
    """An answer was sent back.  about: `form` (not the schema, cut off, empty) or `content` (the caller's check)."""

    turn: int
    repair: int
    about: Literal["form", "content"]
    complaints: tuple[str, ...]
    message: UserMessage
    kind: Literal["complaint"] = "complaint"


@dataclass(frozen=True)
class Retry:
    """A request failed and is sent again after `wait_s`; text of this turn so far is withdrawn."""

    turn: int
    attempt: int
    fault: Fault
    wait_s: float
    kind: Literal["retry"] = "retry"


@dataclass(frozen=True)
class Stopped:
    """The run ended without an accepted answer.

    sentence: for the user.  fault: the last failure of the endpoint, where that is the reason.  last_answer: the text
    that was rejected last, with the complaints that stand against it.
    """

    reason: StopReason
    sentence: str
    fault: Fault | None = None
    last_answer: str | None = None
    complaints: tuple[str, ...] = ()
    kind: Literal["stopped"] = "stopped"


@dataclass(frozen=True)
class Final:
    """The answer that stands: the model's, or the caller's fallback.  Totals are of the whole run.

    answer: text, or the schema's JSON.  cost_usd: None where the model's price is unknown.
    """

    answer: JsonValue
    source: Literal["model", "fallback"]
    usage: Usage
    cost_usd: float | None
    turns: int
    tool_calls: int
    duration_s: float
    kind: Literal["final"] = "final"


RunEvent = (
    ModelRequest | TextDelta | ModelResponse | ToolCalled | ToolReturned | Complaint | Retry | Stopped | Final
)  # fmt: skip


def event_to_json(event: RunEvent) -> dict[str, JsonValue]:
    """JSON with the key `kind`, for an Event row."""
    data: dict[str, JsonValue] = to_jsonable_python(event)
    return data


def drive(steps: Generator[RunEvent, None, T], on_event: Callable[[RunEvent], object] = lambda event: None) -> T:
    """Let an agent work, each event to on_event; returns what it came to."""
    while True:
        try:
            event = next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        on_event(event)
