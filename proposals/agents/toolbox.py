"""The tools of the agents, of MCP and of REST: look at one run, price configurations of it, read what is known.

No tool writes, sends or runs anything.  Approving, adding, holding and launching are a person's, through pages and API
that ask the server for the right to; whatever a text says, an agent cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import getdoc
from typing import Any, Literal, get_args, get_type_hints

from pydantic import BaseModel, ValidationError

from agent.events import ToolReturned
from agent.tools import Tool, schema_of
from proposals.agents.tool_result import ToolResult
from proposals.agents.tools.documented import flags
from proposals.agents.tools.hardware import hardware
from proposals.agents.tools.holding import hold
from proposals.agents.tools.known import compare, history, knowledge, published
from proposals.agents.tools.look import RESULTS, look
from proposals.agents.tools.operations import ops
from proposals.agents.tools.prices import price, search
from proposals.agents.workbench import Workbench

Agent = Literal["analyzer", "proposer", "coordinator"]
AGENTS: tuple[Agent, ...] = get_args(Agent)
#: Characters of a result, and of one that was asked for in full.
ROOM, ROOM_IN_FULL = 4_000, 12_000

FUNCTIONS: tuple[Callable[..., ToolResult], ...] = (
    look, ops, price, search, hardware, flags, history, knowledge, compare, published, hold,
)  # fmt: skip
_OF: Mapping[Agent, Sequence[Callable[..., ToolResult]]] = {
    "analyzer": (look, ops, hardware, compare, published, knowledge),
    "proposer": (look, ops, price, search, hardware, history, knowledge),
    "coordinator": FUNCTIONS,
}


def toolbox(bench: Workbench, agent: Agent = "coordinator") -> tuple[Tool, ...]:
    """Return the tools of one agent.  The coordinator, who answers people, has them all."""
    return tuple(made(function, bench) for function in _OF[agent])


def made(function: Callable[..., ToolResult], bench: Workbench) -> Tool:
    """Return a function of a workbench and its arguments as a tool."""
    return Tool(function.__name__, getdoc(function) or "", _arguments(function), partial(function, bench), _room)


def described() -> list[dict[str, Any]]:
    """Return name, description and JSON schema of the arguments of every tool."""
    return [
        {"name": function.__name__, "description": getdoc(function), "schema": schema_of(_arguments(function))}
        for function in FUNCTIONS
    ]


def _arguments(function: Callable[..., ToolResult]) -> type[BaseModel]:
    hints = get_type_hints(function)
    (arguments,) = (hint for name, hint in hints.items() if name not in ("bench", "return"))
    return arguments


def _room(asked: BaseModel) -> int:
    """Return the characters that a result may have: more where all rows, one file or one text was asked for."""
    wanted = ("full", "name", "id", "op")
    more = any(getattr(asked, name, None) for name in wanted) or getattr(asked, "top", 0) > 8
    return ROOM_IN_FULL if more else ROOM


_OF_ARGUMENTS = {_arguments(function): function for function in FUNCTIONS}


def call(bench: Workbench, asked: BaseModel) -> ToolResult:
    """Return the result of the tool that has these arguments, whole.  Raises ToolError."""
    return _OF_ARGUMENTS[type(asked)](bench, asked)


_RETURNS = {function.__name__: get_type_hints(function)["return"] for function in FUNCTIONS}


def read(returned: ToolReturned) -> ToolResult | Any:
    """Return the result of a tool as a value that knows units, origins and links; its JSON for tools of before."""
    kind = _RETURNS.get(returned.name)
    if returned.name == "look" and isinstance(returned.arguments, Mapping):
        kind = RESULTS.get(str(returned.arguments.get("part")))
    if kind is None:
        return returned.result
    try:
        return kind.model_validate(returned.result)
    except ValidationError:
        return returned.result
