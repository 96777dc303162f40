"""The tool over all figures of a run: which of them a text names, how they were computed, and how they relate."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from agent.tools import Arguments
from proposals.agents.figures import by_words, figures_of, look_up, relations, to_json
from proposals.agents.tool_result import present
from proposals.agents.tools.common import Tools


class FigureQuery(Arguments):
    text: str = Field(max_length=600, description="Numbers with their units, or words that name a figure.")


class FigureTools(Tools):
    def figures(self, asked: FigureQuery) -> dict[str, Any]:
        """Which figures of this run have the numbers of a text: what each is, how it was computed and of what, whether
        it was measured, computed or predicted; how they relate; without numbers, the figures that the words name."""
        every = figures_of(self._bench)
        named = look_up(asked.text, every)
        first = [item.found[0] for item in named if item.found]
        step = self._bench.diagnosis.kpis.get("step_time_s")
        return present(
            {
                "numbers": [to_json(item) for item in named],
                "relations": relations(first, step),
                "named": [item.to_json() for item in by_words(asked.text, every)],
            }
        )
