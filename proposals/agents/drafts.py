"""What a language model writes, in references: resolved against tool results, sent back with complaints, or mended."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.control import Cancel
from agent.events import RunEvent, ToolCalled, ToolReturned
from agent.limits import Limits
from agent.loop import Outcome, run
from agent.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage
from agent.provider.base import Provider
from agent.tools import AnswerError, Tool, by_name, call_tool, parse
from experiments import sentences
from experiments.sentences import Sentence
from proposals.agents import endpoint
from proposals.agents.references import Rendered, resolve, without_sentences
from proposals.agents.toolbox import Agent, toolbox
from proposals.agents.typed_numbers import Typed
from proposals.agents.values import Value
from proposals.agents.workbench import Workbench


class Written(BaseModel):
    """An answer in a schema whose statements refer to results."""

    model_config = ConfigDict(extra="forbid")

    def mapped(self, change: Callable[[str], str]) -> Self:
        """Return the answer with each statement changed; without those that become empty."""
        raise NotImplementedError


M = TypeVar("M", bound=Written)

#: Of a rejected draft, what must be left of its characters; below, the built-in text is better.
LEAST_LEFT = 0.6
_ROOT = re.compile(r"(?<![\w.\]])([A-Za-z_]\w*)(?=\s*[.\[])")
_MARKER = re.compile(r"^(?:[-*+•]|\d+[.)]|#{1,6})\s+")


@cache
def prompt(agent: str, package: str = __package__) -> str:
    """Return the system prompt of an agent, with the rules on references at its end."""
    rules = files(__package__).joinpath("prompts/references.md").read_text("utf-8")
    return f"{files(package).joinpath(f'prompts/{agent}.md').read_text('utf-8')}\n{rules}"


def look(
    tools: Sequence[Tool], name: str = "look", arguments: str = '{"part": "overview"}'
) -> Generator[RunEvent, None, tuple[tuple[Message, ...], tuple[ToolReturned]]]:
    """Call a tool as a model would, so that it need not spend its first turn on finding out where it is.

    Returns (messages, results) for a conversation to begin with; most questions need no more than the overview.
    """
    call = ToolCall("look-1", name, arguments)
    yield ToolCalled(0, call, "r1")
    returned = call_tool(by_name(tools), call, "r1")
    yield returned
    return (AssistantMessage("", (call,)), ToolMessage(call.id, name, returned.text, "r1")), (returned,)


@dataclass(frozen=True)
class Line:
    """Hold a printed line of an answer.  results: that its references lead to."""

    text: str
    results: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sources:
    """What a draft may refer to.  results: by the name that references begin with; typed: the digits it may hold."""

    results: Mapping[str, object]
    typed: Typed = field(default_factory=Typed)

    @classmethod
    def of(cls, returned: Sequence[ToolReturned], words: Sequence[str] = ()) -> Sources:
        """words: of the conversation."""
        results = {item.result_id: item.result if item.ok else {"error": item.error} for item in returned}
        arguments = [item.arguments for item in returned if item.ok]
        return cls(results, Typed(words, results, arguments))

    def resolve(self, text: str) -> Rendered:
        return resolve(text, self.results, self.typed)

    def complaints(self, text: str) -> list[str]:
        """Return what is wrong with a text, each once."""
        return list(dict.fromkeys(item.message for item in self.resolve(text).complaints))

    def mended(self, text: str) -> tuple[str, int]:
        """Return the text without the sentences that cannot be resolved, and how many went."""
        gone = 0
        for _ in range(4):  # sentences that meet anew may hold what neither did
            found = self.resolve(text).complaints
            if not found:
                return text, gone
            text, count = without_sentences(text, found)
            gone += count
        return ("", gone) if self.resolve(text).complaints else (text, gone)

    def line(self, text: str) -> Line:
        """Return a statement, printed, with the results behind it."""
        return Line(str(self.sentence(text)), tuple(dict.fromkeys(roots(text, self.results))))

    def sentence(self, text: str) -> Sentence:
        """Return a statement as spans of words and values, as plans store it: on one line, without a list's marker."""
        line = _MARKER.sub("", " ".join(text.split()))
        return Sentence(*(span for part in self.resolve(line).parts for span in _spans(part)))


def _spans(part: str | Value) -> Iterator[str | sentences.Value]:
    if isinstance(part, str) or isinstance(part.value, str) or part.form:
        yield part if isinstance(part, str) else part.text
        return
    origin = "sourced" if part.origin == "stated" else part.origin
    yield sentences.Value(part.subject, part.value, part.unit, origin)
    if part.beside:
        yield f" ({part.beside})"


def roots(text: str, results: Mapping[str, object]) -> list[str]:
    """Return the names of the results that a text refers to, in its order."""
    return [name for braces in re.findall(r"\{[^{}\n]+\}", text) for name in _ROOT.findall(braces) if name in results]


@dataclass(frozen=True)
class Draft(Generic[M]):
    """What an agent came to: an answer in a schema, or None, with what it may refer to and what became of the run.

    struck: how many sentences were taken out.
    """

    answer: M | None
    sources: Sources
    outcome: Outcome[M]
    struck: int

    @property
    def source(self) -> Literal["model", "fallback", "cancelled"]:
        """Whose text it is; `fallback`: the built-in one is kept."""
        stopped = self.outcome.stopped
        if stopped is not None and stopped.reason == "cancelled":
            return "cancelled"
        return "model" if self.answer else "fallback"

    @property
    def sentence(self) -> str:
        """Why it is not the model's; empty where it is."""
        stopped = self.outcome.stopped
        return stopped.sentence if stopped is not None and self.answer is None else ""


def drafted(
    bench: Workbench,
    agent: Agent,
    request: str,
    kind: type[M],
    refused: Callable[[M, Sources], Iterable[str]],
    instead: Any,
    provider: Provider,
    cancel: Cancel | None = None,
    limits: Limits | None = None,
    unbacked: Callable[[M, Sources], Iterable[str]] = lambda answer, sources: (),
) -> Generator[RunEvent, None, Draft[M]]:
    """Let a model write an answer of a `kind`; ends with one Final unless it was cancelled.

    What is wrong with it goes back to the model: what `refused` and `unbacked` say, and its statements that cannot be
    resolved.  Of a rejected answer the latter go, unless it is still `refused`.  instead: what the Final says if there
    is no answer.
    """
    tools = toolbox(bench, agent)
    shown, seen = yield from look(tools)
    messages: list[Message] = [SystemMessage(prompt(agent)), UserMessage(request), *shown]

    def checked(answer: M, results: tuple[ToolReturned, ...]) -> list[str]:
        sources = Sources.of((*seen, *results))
        wrong = [complaint for text in _texts(answer) for complaint in sources.complaints(text)]
        return [*refused(answer, sources), *wrong, *unbacked(answer, sources)]

    outcome: Outcome[M] = yield from run(
        provider, messages, tools=tools, answer=kind, check=checked, limits=limits or endpoint.limits(), cancel=cancel
    )
    sources, stopped = Sources.of((*seen, *outcome.results)), outcome.stopped
    if stopped is None or stopped.reason == "cancelled":
        return Draft(outcome.answer, sources, outcome, 0)
    answer, struck = None, 0
    if stopped.reason == "rejected":
        with suppress(AnswerError, ValidationError):
            last = parse(stopped.last_answer or "", kind)
            answer, struck = (None, 0) if any(refused(last, sources)) else _mended(last, sources)
    yield outcome.final(answer.model_dump(mode="json") if answer else instead, "model" if answer else "fallback")
    return Draft(answer, sources, outcome, struck)


def _mended(answer: M, sources: Sources) -> tuple[M | None, int]:
    """Return an answer without the sentences that cannot be resolved, and how many went; None where too little is
    left."""
    gone: list[int] = []

    def change(text: str) -> str:
        left, count = sources.mended(text)
        gone.append(count)
        return left

    mended = answer.mapped(change)
    before, left = (sum(map(len, _texts(each))) for each in (answer, mended))
    type(answer).model_validate(mended.model_dump())
    return (mended, sum(gone)) if left >= LEAST_LEFT * before else (None, 0)


def _texts(answer: Written) -> list[str]:
    """Return the statements of an answer."""
    texts: list[str] = []
    answer.mapped(lambda text: texts.append(text) or text)  # type: ignore[func-returns-value]
    return texts
