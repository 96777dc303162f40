"""Is the configured model there, and what does it understand?  For the settings page."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.control import Cancel
from agent.messages import UserMessage, clean
from agent.provider.base import Completion, ProviderError, Request
from agent.provider.settings import Settings
from agent.tools import Arguments, Tool
from formatting import plain

if TYPE_CHECKING:
    from agent.provider.openai import OpenAIProvider

_TIMEOUT_S = 30.0
_MAX_TOKENS = 2_000  # a reasoning model thinks before it says one word
_TRIES = 6  # one request, and once more for each thing the endpoint turns out not to know


class _Number(Arguments):
    value: int


@dataclass(frozen=True)
class ConnectionReport:
    """What came of a test of the connection.

    ok: the model answered.  sentence: for the user.  tools: whether it called a tool when asked to, None where not
    tried.
    """

    ok: bool
    sentence: str
    model: str
    base_url: str
    first_token_s: float | None = None
    tools: bool | None = None


def check_connection(settings: Settings, agent: str | None = None) -> ConnectionReport:
    """Asks the model for a word and a tool call; at most half a minute each.  Raises nothing."""
    model, where = settings.model_for(agent), settings.base_url
    if (missing := settings.missing()) is not None:
        return ConnectionReport(False, missing, model, where)
    from agent.provider.openai import OpenAIProvider  # the SDK takes 35 MB of every process that loads it

    provider = OpenAIProvider(settings, agent)
    try:
        _, first_s = _ask(provider, _request("Answer with the one word: ready"))
    except ProviderError as error:
        sentence = error.fault.sentence
        if error.fault.kind == "not_found":
            sentence += _offered(provider)
        return ConnectionReport(False, sentence, model, where)
    tools = _calls_tools(provider)
    lacking = "" if tools else " It did not call a tool when asked to, so agents will not work well with it."
    sentence = f"{model} at {where} answers; first word after {plain(first_s, 's')}.{lacking}"
    return ConnectionReport(True, sentence, model, where, first_s, tools)


def _request(text: str, **more: Any) -> Request:
    return Request((UserMessage(text),), max_tokens=_MAX_TOKENS, **more)


def _ask(provider: OpenAIProvider, request: Request) -> tuple[Completion, float]:
    """The completion, and seconds until its first piece."""
    for attempt in range(_TRIES):
        started_s = time.monotonic()
        first_s: float | None = None
        try:
            for part in provider.complete(request, timeout_s=_TIMEOUT_S, cancel=Cancel()):
                first_s = time.monotonic() - started_s if first_s is None else first_s
                if isinstance(part, Completion):
                    return part, first_s
        except ProviderError as error:
            if error.fault.kind != "unsupported" or attempt == _TRIES - 1:
                raise
    raise AssertionError("a provider ends with a completion or raises")


def _calls_tools(provider: OpenAIProvider) -> bool:
    report = Tool("report", "Reports a number.", _Number, lambda _: None)
    try:
        completion, _ = _ask(provider, _request("Call the tool report with the value 4.", tools=(report,)))
    except ProviderError:
        return False
    return any(call.name == "report" for call in completion.message.tool_calls)


def _offered(provider: OpenAIProvider) -> str:
    """What the endpoint lists, where it lists something."""
    from agent.provider.openai import FAILURES

    try:
        names = provider.models()
    except FAILURES:
        return ""
    shown = ", ".join(provider.settings.redact(clean(name))[:60] for name in names[:8])
    shown += ", …" if len(names) > 8 else ""
    return f" It offers: {shown}." if names else ""
