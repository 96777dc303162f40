"""Who answers in these tests in the place of the agents: says exactly what a test wants, through the same events."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from agent.control import Cancel
from agent.events import Final, TextDelta, ToolCalled, ToolReturned
from agent.messages import ToolCall, Usage
from proposals.agents.conversation import AnswerStep, AnswerText, Ask


def tool(number: int, name: str, arguments: dict[str, Any], result: Any, error: str | None = None) -> list[AnswerStep]:
    import json

    call, result_id = ToolCall(f"call-{number}", name, json.dumps(arguments)), f"r{number}"
    return [
        ToolCalled(1, call, result_id),
        ToolReturned(1, result_id, call.id, name, error is None, arguments, result, (), error, 0.0125),
    ]


def final(text: str, source: Any = "model") -> Final:
    return Final(text, source, Usage(), 0.0, 1, 0, 0.01)


def said(text: str) -> list[AnswerStep]:
    """A model's answer without values."""
    return [AnswerText(text, (text,)), final(text, "model")]


class Scripted:
    """Says these things, whatever is asked; `asked` is what it was asked, `benches` over which workbench."""

    def __init__(self, *said: AnswerStep | Sequence[AnswerStep]) -> None:
        self.said: list[AnswerStep] = []
        for item in said:
            self.said.extend(item if isinstance(item, list | tuple) else [item])  # type: ignore[list-item, arg-type]
        self.asked: list[Ask] = []
        self.benches: list[Any] = []

    def __call__(self, bench: Any, ask: Ask, cancel: Cancel | None = None) -> Iterator[AnswerStep]:
        self.asked.append(ask)
        self.benches.append(bench)
        yield from self.said


class Waiting:
    """Says the first piece, waits for the signal to continue or to stop, and says the rest."""

    def __init__(self, first: str, rest: str) -> None:
        self.first, self.rest = first, rest
        self.began, self.go = threading.Event(), threading.Event()

    def __call__(self, bench: Any, ask: Ask, cancel: Cancel | None = None) -> Iterator[AnswerStep]:
        assert cancel is not None
        yield TextDelta(1, self.first)
        self.began.set()
        while not self.go.wait(0.02):
            if cancel.is_set():
                return
        yield TextDelta(1, self.rest)
        yield final(self.first + self.rest)


def answered(pk: int) -> None:
    """Write the answer `pk` as `respond` does, in this very transaction: no other connection could see its row, and
    whether it is to stop."""
    from dialogue.services import answering
    from dialogue.services.answering import write
    from jobs import workers

    worker = workers.this_thread()
    answer = answering.claim(pk, worker)
    assert answer is not None
    looked = tool(1, "look", {"part": "kpis"}, {"step_time_s": 1.25})
    write(answering.Writing(answer, worker, Cancel()), Scripted(looked, said("The step takes 1.25 s.")))


#: A model that no test reaches, as the environment names it.
MODEL = {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": "http://127.0.0.1:9", "ASAP_LLM_MODEL": "scripted"}


@contextmanager
def model_set_up() -> Iterator[None]:
    """A model is set up, which no test reaches: `Scripted` answers in its place."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in MODEL.items():
            patch.setenv(name, value)
        yield
