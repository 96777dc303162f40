"""What the agents may do: look at one run, price configurations of it, and read what is known.

No tool writes, sends or runs anything.  Approving, adding and launching are a person's, through pages and API that ask
the server for the right to; whatever a text says, an agent cannot.
"""

from __future__ import annotations

from typing import Literal, get_args

from agent.tools import Tool, tool
from proposals.agents.tools.arithmetic import ArithmeticTools
from proposals.agents.tools.economics import EconomicsTools
from proposals.agents.tools.figures import FigureTools
from proposals.agents.tools.flags import FlagTools
from proposals.agents.tools.launching import LaunchTools
from proposals.agents.tools.machine import MachineTools
from proposals.agents.tools.memory_use import MemoryTools
from proposals.agents.tools.model import ModelTools
from proposals.agents.tools.ops import OpTools
from proposals.agents.tools.retrieval import RetrievalTools
from proposals.agents.tools.run import RunTools
from proposals.agents.tools.steps import StepTools
from proposals.agents.tools.what_if import WhatIfTools
from proposals.agents.tools.without_model import ModelFreeTools
from proposals.agents.workbench import Workbench

__all__ = [
    "AGENTS", "Agent", "ArithmeticTools", "EconomicsTools", "FigureTools", "FlagTools", "LaunchTools", "MachineTools",
    "MemoryTools", "ModelFreeTools", "ModelTools", "OpTools", "RetrievalTools", "RunTools", "StepTools", "WhatIfTools",
    "all_tools", "toolbox",
]  # fmt: skip

Agent = Literal["analyzer", "proposer", "coordinator"]
AGENTS: tuple[Agent, ...] = get_args(Agent)

_MEASURED = ("run", "kpis", "bottleneck", "findings", "ops", "op", "collectives", "compare")
_PRICED = ("proposals", "predict", "search", "sensitivity", "compare_meshes", "legality", "rejected", "launch_files")
_BEYOND = ("throughput", "cost", "retarget", "chip_counts", "vary", "hardware", "model_size", "divisors", "flags",
           "figures", "flag", "steps", "memory_use",
           "without_model", "calculate")  # fmt: skip
_KNOWN = ("search_history", "similar_runs", "record", "search_knowledge", "passage")
#: Results that hold long text or many rows.
_ROOM = {"proposals": 20_000, "findings": 24_000, "launch_files": 20_000, "compare": 16_000, "compare_meshes": 16_000}
_OF: dict[Agent, tuple[str, ...]] = {
    "analyzer": (*_MEASURED, "search_knowledge", "passage"),
    "proposer": ("run", "kpis", "bottleneck", "findings", "collectives", "ops", *_PRICED, *_KNOWN),
    "coordinator": (*_MEASURED, *_PRICED, *_BEYOND, *_KNOWN),
}


def all_tools(bench: Workbench) -> dict[str, Tool]:
    """Every tool over a workbench, by name."""
    run, ops, model = RunTools(bench), OpTools(bench), ModelTools(bench)
    known, launching = RetrievalTools(bench), LaunchTools(bench)
    economics, elsewhere, machine = EconomicsTools(bench), WhatIfTools(bench), MachineTools(bench)
    functions = (
        run.run, run.kpis, run.bottleneck, run.findings, ops.ops, ops.op, run.collectives, run.compare,
        model.proposals, model.predict, model.search, model.sensitivity, model.compare_meshes, model.legality,
        model.rejected, launching.launch_files, known.search_history, known.similar_runs, known.record,
        known.search_knowledge, known.passage, economics.throughput, economics.cost, elsewhere.retarget,
        elsewhere.chip_counts, elsewhere.vary, machine.hardware, machine.model_size, machine.divisors, machine.flags,
        FigureTools(bench).figures, FlagTools(bench).flag, StepTools(bench).steps, MemoryTools(bench).memory_use,
        ModelFreeTools(bench).without_model, ArithmeticTools().calculate,
    )  # fmt: skip
    made = (tool(each, max_chars=_ROOM.get(each.__name__, 12_000)) for each in functions)
    return {each.name: each for each in made}


def toolbox(bench: Workbench, agent: Agent) -> tuple[Tool, ...]:
    """The tools of one agent.  The coordinator, who answers people, has them all."""
    every = all_tools(bench)
    return tuple(every[name] for name in _OF[agent])
