"""The tool over all figures of a run: which of them a text names, how they were computed, and how they relate."""

from __future__ import annotations

from pydantic import Field

from agent.tools import Arguments
from proposals.agents.figures import Figure, Named, by_words, figures_of, look_up, relations
from proposals.agents.tool_result import ToolResult
from proposals.agents.tools.common import Tools


class FigureQuery(Arguments):
    text: str = Field(max_length=600, description="Numbers with their units, or words that name a figure.")


class FigureFound(ToolResult):
    """A figure of the run: see `figures.Figure`.  inputs: name and value of what it was computed from."""

    figure: str = ""
    text: str = ""
    value: float = 0.0
    unit: str = ""
    origin: str = ""
    place: str = ""
    field: str = ""
    formula: str = ""
    counted: str = ""
    of: tuple[str, ...] = ()
    inputs: tuple[dict[str, str], ...] = ()


class NumberFound(ToolResult):
    """A number of a text with the figures that it can be: see `figures.Named`."""

    kept = frozenset(("found",))
    said: str = ""
    value: float = 0.0
    kind: str = ""
    found: tuple[FigureFound, ...] = ()
    follows: str = ""
    nearest: FigureFound | None = None
    times_the_nearest: float | None = None


class Figures(ToolResult):
    """Figures of a text: by its numbers, how these relate, and by its words."""

    numbers: tuple[NumberFound, ...] = ()
    relations: tuple[str, ...] = ()
    named: tuple[FigureFound, ...] = ()


class FigureTools(Tools):
    def figures(self, asked: FigureQuery) -> Figures:
        """Which figures of this run have the numbers of a text: what each is, how it was computed and of what, whether
        it was measured, computed or predicted; how they relate; without numbers, the figures that the words name."""
        every = figures_of(self._bench)
        named = look_up(asked.text, every)
        first = [item.found[0] for item in named if item.found]
        step = self._bench.diagnosis.kpis.get("step_time_s")
        return Figures(
            numbers=tuple(_number(item) for item in named),
            relations=tuple(relations(first, step)),
            named=tuple(_figure(item) for item in by_words(asked.text, every)),
        )


def _figure(item: Figure) -> FigureFound:
    return FigureFound(
        figure=item.label, text=item.text, value=item.value, unit=item.unit, origin=item.origin, place=item.place,
        field=item.field, formula=item.formula, counted=item.counts, of=item.of,
        inputs=tuple({"name": name, "value": value} for name, value in item.inputs),
    )  # fmt: skip


def _number(item: Named) -> NumberFound:
    near = item.nearest
    return NumberFound(
        said=item.said, value=item.number.value, kind=item.number.kind,
        found=tuple(_figure(each) for each in item.found), follows=item.follows,
        nearest=_figure(near) if near else None,
        times_the_nearest=item.number.value / near.value if near and near.value else None,
    )  # fmt: skip
