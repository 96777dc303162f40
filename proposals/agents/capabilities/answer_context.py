"""What a capability is answered with: it calls the tools that models call, and says what it writes piece by
piece."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar, get_type_hints

from pydantic import TypeAdapter

from agent.events import Final, TextDelta, ToolCalled, ToolReturned
from agent.messages import ToolCall, Usage
from agent.tools import Tool, by_name, call_tool
from proposals.agents.conversation import Said
from proposals.agents.tools import toolbox
from proposals.agents.workbench import Workbench

#: A piece of text: up to the end of a clause, a line or a cell.
_PIECE = re.compile(r".*?(?:[.;:,!?](?=\s)\s|\n+|\|\s|\Z)", re.DOTALL)
#: A cell of a column of numbers, not a sentence; a dash or a word if there is no number.
_NUMBER = re.compile(r"[\d+−<≤≈-](?!.*\.$)|–$|none$|not known$")
#: Pieces shorter than this are sent with the next.
SHORTEST = 12


Returned = TypeVar("Returned")
Answer = Generator[Said, None, None]


@dataclass(frozen=True)
class Looked(Generic[Returned]):
    """What a tool returned, or the sentence that says why it returned nothing."""

    data: Returned | None = None
    error: str = ""


class AnswerContext:
    """One answer in the making.  bench: with the conversation's constraints and facts.  user_messages: the user's
    messages, newest first."""

    def __init__(self, bench: Workbench, user_messages: Sequence[str] = ()) -> None:
        self.bench = bench
        self.user_messages = tuple(user_messages)
        self.text = ""
        self.calls = 0
        self._started = time.monotonic()
        self._tools: dict[str, Tool] = by_name(toolbox(bench, "coordinator"))
        self._known: dict[tuple[str, str], Looked[Any]] = {}

    @property
    def message(self) -> str:
        """The message that is answered; empty where a form is."""
        return self.user_messages[0] if self.user_messages else ""

    def over(self, bench: Workbench) -> None:
        """From here on the tools look at this workbench."""
        self.bench = bench
        self._tools = by_name(toolbox(bench, "coordinator"))
        self._known.clear()

    def look(self, tool: Callable[..., Returned], **arguments: Any) -> Generator[Said, None, Looked[Returned]]:
        """Calls a tool, with the events of any call; the same call of the same answer is made once.

        What is read is the result as it is recorded and as a model would see it.
        """
        name, text = tool.__name__, json.dumps({key: value for key, value in arguments.items() if value is not None})
        if (name, text) in self._known:
            return self._known[name, text]
        self.calls += 1
        call, result_id = ToolCall(f"call-{self.calls}", name, text), f"r{self.calls}"
        yield ToolCalled(1, call, result_id)
        start = time.monotonic()
        looked = call_tool(self._tools, call, result_id)
        yield ToolReturned(
            1, result_id, call.id, name, looked.error is None, looked.arguments, looked.result, looked.truncated,
            looked.error, time.monotonic() - start,
        )  # fmt: skip
        data = reader(tool).validate_python(looked.result) if looked.error is None else None
        self._known[name, text] = Looked(data, looked.error or "")
        return self._known[name, text]

    def say(self, *parts: str) -> Answer:
        """Sentences of one paragraph."""
        text = " ".join(part.strip() for part in parts if part and part.strip())
        if text:
            yield from self._write(("\n\n" if self.text else "") + text)

    def more(self, text: str) -> Answer:
        """Goes on in the same paragraph."""
        if text:
            yield from self._write(f" {text}" if self.text else text)

    def bullets(self, items: list[str]) -> Answer:
        if items:
            yield from self._write(("\n\n" if self.text else "") + "\n".join(f"- {item}" for item in items))

    def table(self, header: list[str], rows: list[list[str]]) -> Answer:
        """A markdown table, numbers after the first column set to the right; a column without one known is left out."""
        columns = [cells for cells in zip(header, *rows, strict=True) if not rows or set(cells[1:]) != {"–"}]
        sides = [
            "--:" if column and all(map(_NUMBER.match, cells)) else "---" for column, (_, *cells) in enumerate(columns)
        ]
        names, *body = zip(*columns, strict=True)
        lines = [" | ".join(line) for line in (names, sides, *body)]
        yield from self._write(("\n\n" if self.text else "") + "\n".join(f"| {line} |" for line in lines))

    def _write(self, text: str) -> Answer:
        held = ""
        for piece in _PIECE.findall(text):
            held += piece
            if len(held) >= SHORTEST:
                yield self._delta(held)
                held = ""
        if held:
            yield self._delta(held)

    def _delta(self, text: str) -> TextDelta:
        self.text += text
        return TextDelta(1, text)

    def final(self) -> Iterator[Said]:
        taken = time.monotonic() - self._started
        yield Final(self.text, "fallback", Usage(), 0.0, 1, self.calls, taken)


@cache
def reader(tool: Callable[..., Returned]) -> TypeAdapter[Returned]:
    """Reads the results of a tool, by what it says that it returns."""
    returned: TypeAdapter[Returned] = TypeAdapter(get_type_hints(tool)["return"])
    return returned
