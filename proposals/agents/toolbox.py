"""The tools of the agents, of MCP and of REST: look at one run, price configurations of it, read what is known.

No tool writes, sends or runs anything.  Approving, adding, holding and launching are a person's, through pages and API
that ask the server for the right to; whatever a text says, an agent cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import getdoc
from typing import Any, Literal, get_args, get_type_hints

from pydantic import BaseModel

from agent.tools import Tool, schema_of
from proposals.agents.tool_result import Result, to_json
from proposals.agents.tools.documented import flags
from proposals.agents.tools.hardware import hardware
from proposals.agents.tools.holding import hold
from proposals.agents.tools.known import compare, history, knowledge, published
from proposals.agents.tools.look import look
from proposals.agents.tools.operations import ops
from proposals.agents.tools.prices import price, search
from proposals.agents.workbench import Workbench

Agent = Literal["analyzer", "proposer", "coordinator"]
AGENTS: tuple[Agent, ...] = get_args(Agent)
#: Characters of a result, of what a conversation begins with, and of what was asked for in full.
ROOM, ROOM_AT_FIRST, ROOM_IN_FULL = 4_000, 6_000, 12_000

FUNCTIONS: tuple[Callable[..., Result], ...] = (
    look, ops, price, search, hardware, flags, history, knowledge, compare, published, hold,
)  # fmt: skip
_OF: Mapping[Agent, Sequence[Callable[..., Result]]] = {
    "analyzer": (look, ops, hardware, compare, published, knowledge),
    "proposer": (look, ops, price, search, hardware, history, knowledge),
    "coordinator": FUNCTIONS,
}


def toolbox(bench: Workbench, agent: Agent = "coordinator") -> tuple[Tool, ...]:
    """Return the tools of one agent.  The coordinator, who answers people, has them all."""
    return tuple(made(function, bench) for function in _OF[agent])


def made(function: Callable[..., Result], bench: Workbench) -> Tool:
    """Return a function of a workbench and its arguments as a tool."""

    def called(asked: BaseModel) -> Any:
        return to_json(function(bench, asked))

    return Tool(function.__name__, getdoc(function) or "", _arguments(function), called, _room)


def described() -> list[dict[str, Any]]:
    """Return name, description and JSON schema of the arguments of every tool."""
    return [
        {"name": function.__name__, "description": getdoc(function), "schema": schema_of(_arguments(function))}
        for function in FUNCTIONS
    ]


def _arguments(function: Callable[..., Result]) -> type[BaseModel]:
    hints = get_type_hints(function)
    (arguments,) = (hint for name, hint in hints.items() if name not in ("bench", "return"))
    return arguments


def _room(asked: BaseModel) -> int:
    """Return the characters that a result may have: more where all rows, one file or one text was asked for."""
    wanted = ("full", "name", "id", "op", "number")
    many = getattr(asked, "top", 0) > 8 or len(getattr(asked, "configurations", ())) > 3
    if many or any(getattr(asked, name, None) for name in wanted):
        return ROOM_IN_FULL
    return ROOM_AT_FIRST if getattr(asked, "part", "") == "overview" else ROOM


_OF_ARGUMENTS = {_arguments(function): function for function in FUNCTIONS}


def call(bench: Workbench, asked: BaseModel) -> Result:
    """Return the result of the tool that has these arguments, whole.  Raises ToolError."""
    return _OF_ARGUMENTS[type(asked)](bench, asked)
