"""Is the configured model there, and what does it understand?  For the settings page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.events import ModelResponse, RunEvent, drive
from agent.limits import Limits
from agent.loop import run
from agent.messages import UserMessage
from agent.provider.settings import Settings
from agent.tools import Arguments, Tool
from formatting import plain
from formatting.text import clean

if TYPE_CHECKING:
    from agent.provider.openai import OpenAIProvider

_WORDS = "Call the tool report with the value 4. Then answer with the one word: ready"
#: A reasoning model thinks before it says one word.
_LIMITS = Limits(turns=2, time_s=60.0, repairs=0, retries=0, answer_tokens=2_000)


class _Number(Arguments):
    value: int


@dataclass(frozen=True)
class ConnectionReport:
    """Report a test of the connection.

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
    """Ask the model to call a tool and to say a word; at most a minute.  Raises nothing."""
    model, where = settings.model_for(agent), settings.base_url
    if (missing := settings.missing()) is not None:
        return ConnectionReport(False, missing, model, where)
    from agent.provider.openai import OpenAIProvider  # the SDK takes 35 MB of every process that loads it

    provider = OpenAIProvider(settings, agent)
    report = Tool("report", "Reports a number.", _Number, lambda _: "noted")
    firsts: list[float] = []

    def see(event: RunEvent) -> None:
        if isinstance(event, ModelResponse):
            firsts.append(event.first_token_s or event.duration_s)

    outcome = drive(run(provider, [UserMessage(_WORDS)], tools=[report], limits=_LIMITS), see)
    if not firsts:
        fault = outcome.stopped.fault if outcome.stopped else None
        sentence = fault.sentence if fault else "The language model did not answer."
        return ConnectionReport(
            False, sentence + (_offered(provider) if fault and fault.kind == "not_found" else ""), model, where
        )
    tools = outcome.tool_calls > 0
    lacking = "" if tools else " It did not call a tool when asked to, so agents will not work well with it."
    sentence = f"{model} at {where} answers; first word after {plain(firsts[0], 's')}.{lacking}"
    return ConnectionReport(True, sentence, model, where, firsts[0], tools)


def _offered(provider: OpenAIProvider) -> str:
    """Return the models that the endpoint lists, in a sentence; empty where it lists none."""
    from agent.provider.openai import FAILURES

    try:
        names = provider.models()
    except FAILURES:
        return ""
    shown = ", ".join(provider.settings.redact(clean(name))[:60] for name in names[:8])
    shown += ", …" if len(names) > 8 else ""
    return f" It offers: {shown}." if names else ""
