"""What is answered without a language model: computations on a run and its objects.

`registry` lists them, `run` computes one; pages, REST, the command line and MCP call these two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from django.template import Context, Engine
from pydantic import ValidationError

from agent.tools import Arguments, ToolError
from dialogue.computations import of_configuration, of_finding, of_ops, of_proposals, of_run  # noqa: F401
from dialogue.computations.computation import REGISTRY, Answer, Bar, Computation, Next, about
from perfmodel.config import ConfigError
from proposals.agents.references import Rendered, resolve
from proposals.agents.retrieval import Unavailable
from proposals.agents.workbench import Workbench

__all__ = [
    "OF_PROPOSALS", "OF_RUN", "Computation", "ComputedAnswer", "about", "arguments", "registry", "run", "values_of",
]  # fmt: skip
#: The questions that are asked most of a run, and those of its proposals.
OF_RUN = ("mfu", "parallelism", "sharding_or_input", "since_last", "other_chip", "fits")
OF_PROPOSALS = ("which_first", "how_confident", "others_promising", "still_confident")
TEMPLATES = Path(__file__).resolve().parents[2] / "templates" / "answers"


@dataclass(frozen=True)
class ComputedAnswer:
    """An answer.  arguments: as it was computed with; values: of the template; rendered: its text; next: (key, title,
    arguments)."""

    computation: Computation
    arguments: Mapping[str, Any]
    title: str
    values: Mapping[str, Any]
    template: str
    rendered: Rendered
    bars: tuple[Bar, ...]
    next: tuple[tuple[str, str, Mapping[str, Any]], ...]

    def further(self) -> list[dict[str, Any]]:
        """Return the further questions as JSON."""
        return [{"key": key, "title": title, "arguments": dict(given)} for key, title, given in self.next]


def registry() -> Mapping[str, Computation]:
    """Return all computations by key."""
    return REGISTRY


def arguments(of: Computation, given: Mapping[str, Any]) -> Arguments:
    """Return the arguments as typed.  Raises ToolError, one sentence that names the argument."""
    try:
        return of.arguments.model_validate({key: value for key, value in given.items() if value not in ("", None)})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "arguments"
        raise ToolError(f"{name}: {first['msg'][0].lower()}{first['msg'][1:]}.") from None


def run(bench: Workbench, key: str, given: Mapping[str, Any]) -> ComputedAnswer:
    """Compute an answer.  Raises ToolError with a sentence where there is none to have."""
    of = REGISTRY.get(key)
    if of is None:
        raise ToolError(f"There is no computation {key[:60]!r}.")
    asked = arguments(of, given)
    try:
        answer: Answer = of.compute(bench, asked)
    except (ConfigError, Unavailable) as error:
        raise ToolError(str(error)) from None
    template = _text(key, answer)
    further = tuple((item.key, _title(item), dict(item.arguments)) for item in answer.next)
    return ComputedAnswer(
        of, asked.model_dump(exclude_defaults=True, mode="json"), answer.title or of.title, answer.values,
        template, resolve(template, answer.values), answer.bars, further,
    )  # fmt: skip


def values_of(answered: ComputedAnswer) -> list[dict[str, Any]]:
    """Return the numbers that an answer prints, in order, as JSON; low and high: the 80 % interval where it has one."""
    names = ("value", "unit", "origin", "subject", "low", "high")
    numbers = [value for value in answered.rendered.values if not isinstance(value.value, str)]
    return [{name: shown for name in names if (shown := getattr(value, name)) is not None} for value in numbers]


def _title(item: Next) -> str:
    if item.title:
        return item.title
    title = REGISTRY[item.key].title
    if item.key == "price" and item.arguments:
        sizes = {**item.arguments.get("mesh", {}), **item.arguments.get("changes", {})}
        return "Price " + " · ".join(f"{key.replace('_', ' ')} {value}" for key, value in sizes.items())
    return title


@cache
def _engine() -> Engine:
    return Engine(dirs=[str(TEMPLATES)], autoescape=False)


def _text(key: str, answer: Answer) -> str:
    """The template with its conditions and loops done; the references in single braces stay."""
    text = _engine().get_template(f"{key}.md").render(Context(dict(answer.values), use_l10n=False))
    paragraphs = ("\n".join(filter(None, map(str.strip, part.split("\n")))) for part in text.split("\n\n"))
    return "\n\n".join(filter(None, paragraphs))
