"""A server to script, settings that point to it, and a clock that does not wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from inspect import getdoc
from typing import Any, get_type_hints

import pytest

from agent.control import Cancel, Clock
from agent.events import RunEvent
from agent.limits import Limits
from agent.loop import Outcome, run
from agent.messages import Message, SystemMessage, UserMessage
from agent.provider.openai import OpenAIProvider
from agent.provider.settings import Settings
from agent.tools import NoArguments, Tool
from tests.agent.server import Script, ScriptedServer

KEY = "sk-test-0123456789abcdef"


@pytest.fixture
def serve() -> Iterator[Callable[..., ScriptedServer]]:
    """Starts a scripted server; it stops with the test."""
    with ExitStack() as stack:
        yield lambda script=(), **more: stack.enter_context(ScriptedServer(script, **more))


def settings_for(server: ScriptedServer, **more: Any) -> Settings:
    env = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url, "ASAP_LLM_MODEL": "scripted"}
    return replace(Settings.from_env(env), **more)


@dataclass
class NoWaiting:
    """A clock whose sleeps are written down and take no time; `now` is what they add up to, and `step` per reading."""

    slept_s: list[float] = field(default_factory=list)
    at_s: float = 0.0
    step_s: float = 0.0

    def clock(self) -> Clock:
        return Clock(self._now, self._sleep)

    def _now(self) -> float:
        self.at_s += self.step_s
        return self.at_s

    def _sleep(self, seconds_s: float, cancel: Cancel) -> None:
        self.slept_s.append(seconds_s)
        self.at_s += seconds_s


def drive(events: Any) -> tuple[list[RunEvent], Outcome[Any]]:
    """Runs a generator of events to its end."""
    seen = []
    while True:
        try:
            seen.append(next(events))
        except StopIteration as end:
            return seen, end.value


def ask(
    server: ScriptedServer | OpenAIProvider,
    words: str | Iterable[Message] = "Why is the step slow?",
    **more: Any,
) -> tuple[list[RunEvent], Outcome[Any]]:
    """A whole run against the server, without waiting between retries."""
    provider = server if not isinstance(server, ScriptedServer) else OpenAIProvider(settings_for(server))
    messages = [SystemMessage("You analyse profiles."), UserMessage(words)] if isinstance(words, str) else list(words)
    more.setdefault("clock", NoWaiting().clock())
    more.setdefault("limits", Limits(time_s=60))
    return drive(run(provider, messages, **more))


def tool(function: Callable[..., object], max_chars: int = 12_000) -> Tool:
    """A function of one pydantic model, or of nothing, as a tool."""
    hints = {name: hint for name, hint in get_type_hints(function).items() if name != "return"}
    arguments = next(iter(hints.values()), NoArguments)
    call = function if hints else lambda _: function()
    return Tool(function.__name__, getdoc(function) or "", arguments, call, max_chars)


def kinds(events: Iterable[RunEvent]) -> list[str]:
    """The kinds of the events, text deltas once in a row."""
    found: list[str] = []
    for event in events:
        if not (event.kind == "text_delta" and found[-1:] == ["text_delta"]):
            found.append(event.kind)
    return found


__all__ = ["KEY", "NoWaiting", "Script", "ask", "drive", "kinds", "settings_for", "tool"]
