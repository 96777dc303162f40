"""The tool that asks to hold a constraint or a fact, which a person confirms."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from proposals.agents.tool_result import ToolResult
from proposals.agents.tools.prices import ConstraintArguments
from proposals.agents.tools.shared import as_tool_error
from proposals.agents.workbench import FACT_PATHS, Workbench


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
