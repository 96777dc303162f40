"""Tools that ask to hold a constraint or a fact, which a person confirms, and read compile checks."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from agent.tools import Arguments
from proposals.agents.tool_result import About, ToolResult
from proposals.agents.tools.prices import ConstraintArguments
from proposals.agents.tools.shared import Configuration, as_tool_error, proposal
from proposals.agents.workbench import FACT_PATHS, Workbench
from proposals.candidate import is_same, keeps
from proposals.compiling.wording import sentence


class Hold(ConstraintArguments):
    sentence: str = Field(min_length=3, max_length=300, description="The engineer's words that say it.")
    facts: dict[str, Any] = Field(
        default_factory=dict,
        description=f"By configuration path: {', '.join(FACT_PATHS)}.…; model.name: llama3-8b.",
    )

    @model_validator(mode="after")
    def _something(self) -> Hold:
        if not any(value for name, value in self if name != "sentence"):
            raise ValueError("name at least one constraint or fact")
        return self


class HoldCard(ToolResult):
    """A card that a person is asked to confirm.  Nothing binds before."""

    constraint: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    sentence: str = ""
    state: str = "The engineer is asked to confirm it; until then nothing is held."


def hold(bench: Workbench, asked: Hold) -> HoldCard:
    """Asks the engineer to confirm a constraint or a fact that binds later answers, such as a batch that stays. Only
    for what the engineer said; it is not held before it is confirmed."""
    with as_tool_error():
        wanted = asked.constraints()
        wanted.check(bench.config)
        bench.with_facts({**bench.facts, **asked.facts})
    return HoldCard(constraint=wanted.to_json(), facts=asked.facts, sentence=asked.sentence)


class CompileQuestion(Arguments):
    proposal: int | None = None
    configuration: Configuration | None = None


class CompileResult(ToolResult):
    """What the compiler said of a configuration; empty outcome: not compiled yet."""

    outcome: str = ""
    says: str = ""
    peak_bytes: float | None = None
    capacity_bytes: float | None = None
    headroom_bytes: float | None = None

    def about(self) -> About:
        return About("computed", "compile check")


def compile_check(bench: Workbench, asked: CompileQuestion) -> CompileResult:
    """Whether a proposal or configuration was compiled for its chips, and the memory that the compiler needs. A person
    starts a compile check on the page of proposals."""
    check = None
    if asked.configuration is not None:
        with as_tool_error():
            wanted = asked.configuration.candidate(bench.config)
        states = [state for state in bench.rows if is_same(bench.config, state.proposal, wanted)]
        check = states[0].compiled if states else bench.compiled if keeps(bench.config, wanted) else None
    elif asked.proposal is not None:
        check = proposal(bench, asked.proposal).compiled
    else:
        check = bench.compiled
    if check is None:
        return CompileResult(says="It was not compiled; the page of proposals has the button that compiles it.")
    room = check.capacity_bytes - check.peak_bytes if check.capacity_bytes and check.peak_bytes else None
    return CompileResult(
        outcome=check.outcome, says=sentence(check), peak_bytes=check.peak_bytes, capacity_bytes=check.capacity_bytes,
        headroom_bytes=room,
    )  # fmt: skip
