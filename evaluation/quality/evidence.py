"""Runs of tools without a model: what an agent would have seen."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

from agent.events import ToolReturned
from agent.messages import ToolCall
from agent.tools import Tool, call_tool
from evaluation.steps.generated import profile
from evaluation.steps.scenario import config
from evaluation.steps.scenarios import SCENARIOS
from evaluation.steps.shipped import sample
from proposals.agents.tools import all_tools
from proposals.agents.workbench import Workbench

SAMPLES = ("asap-experiment-1", "asap-experiment-2", "asap-experiment-3", "cpu-data2-seq2-model2", "cpu-data8")
#: Generated ones: over DCN, on GPUs, with experts, and with little in the profile.
GENERATED = (
    "gradients over DCN", "tensor axis across NVLink domains", "expert dispatch",
    "only the five largest ops, memory",
)  # fmt: skip
PROFILES = ("asap-experiment-1", "asap-experiment-3", "cpu-data2-seq2-model2", *GENERATED)
#: What an agent would look at before it writes of a run and of its proposals.
LOOKED_AT: tuple[tuple[str, dict[str, Any]], ...] = (
    ("run", {}),
    ("kpis", {}),
    ("bottleneck", {}),
    ("findings", {}),
    ("collectives", {}),
    ("ops", {"top": 10}),
    ("ops", {"group_by": "family", "top": 20}),
    ("ops", {"group_by": "module", "top": 20}),
    ("proposals", {}),
    ("proposals", {"number": 1}),
    ("proposals", {"number": 2}),
    ("proposals", {"number": 3}),
    ("similar_runs", {}),
)


@cache
def bench(name: str = "asap-experiment-3") -> Workbench:
    if name in SAMPLES:
        return Workbench.of_values(*sample(name))
    scenario = next(item for item in SCENARIOS if item.name == name)
    return Workbench.of_values(profile(scenario), config(scenario))


def returned(tools: dict[str, Tool], name: str, arguments: dict[str, Any], result: str = "r1") -> ToolReturned:
    """What the loop would record of a call."""
    answered = call_tool(tools, ToolCall("c1", name, json.dumps(arguments)), result)
    return ToolReturned(
        1,
        result,
        "c1",
        name,
        answered.error is None,
        answered.arguments,
        answered.result,
        answered.truncated,
        answered.error,
    )


def ask(of: Workbench, name: str, **arguments: Any) -> Any:
    """The result of a tool, which must not refuse."""
    answered = returned(all_tools(of), name, arguments)
    assert answered.ok, answered.error
    return answered.result


def refusal(of: Workbench, name: str, **arguments: Any) -> str:
    answered = returned(all_tools(of), name, arguments)
    assert not answered.ok
    return answered.error or ""


def results(of: Workbench, calls: Iterable[tuple[str, dict[str, Any]]] = LOOKED_AT) -> list[ToolReturned]:
    tools = all_tools(of)
    return [returned(tools, name, arguments, f"r{n}") for n, (name, arguments) in enumerate(calls, start=1)]


@cache
def looked_at(name: str) -> tuple[ToolReturned, ...]:
    return tuple(results(bench(name)))


def written(of: Workbench) -> str:
    """A true text: the analyzer's report and the proposals' sentences, as markdown."""
    parts = []
    for heading, lines in of.diagnosis.report.items():
        parts.append(f"## {heading}\n\n" + "\n".join(f"- {line}" for line in lines))
    for standing in of.proposals:
        item = standing.proposal
        said = (*item.expected_impact, *item.trade_offs, *item.raises, *item.lowers)
        parts.append(
            f"### Proposal {item.rank}: {item.title}\n\n{' '.join(item.reasoning)}\n\n"
            + "\n".join(f"- {line}" for line in said)
        )
    return "\n\n".join(parts)
