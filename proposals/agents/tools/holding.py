"""The tool that asks to hold a constraint or a fact, which a person confirms."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema, model_validator

from agent.tools import Arguments
from proposals.agents.tool_result import Result
from proposals.agents.tools.prices import ConstraintArguments
from proposals.agents.tools.shared import as_tool_error
from proposals.agents.workbench import FACT_PATHS, Workbench


class Hold(Arguments):
    sentence: str = Field(min_length=3, max_length=300, description="The engineer's words.")
    constraints: Annotated[ConstraintArguments, WithJsonSchema({"type": "object"})] = Field(
        default_factory=ConstraintArguments, description="As in search: keep, fixed, at_least …"
    )
    facts: dict[str, Any] = Field(
        default_factory=dict, description=f"By path: {', '.join(FACT_PATHS)}; model.name: llama3-8b."
    )

    @model_validator(mode="after")
    def _something(self) -> Hold:
        if not self.facts and self.constraints == ConstraintArguments():
            raise ValueError("name at least one constraint or fact")
        return self


#: What the card that a person is asked to confirm says to the model.
STATE = "The engineer is asked to confirm it; until then nothing is held."


def hold(bench: Workbench, asked: Hold) -> Result:
    """Asks the engineer to confirm a constraint or fact that he said and that binds later answers."""
    with as_tool_error():
        wanted = asked.constraints.constraints()
        wanted.check(bench.config)
        bench.under({**bench.facts, **asked.facts})
    return Result(constraint=wanted.to_json(), facts=asked.facts, sentence=asked.sentence, state=STATE)
