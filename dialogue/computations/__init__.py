"""What is answered without a language model: tools called with filled arguments, and the template that prints them.

`registry` lists the computations, `run` answers one; pages, REST and the command line call these two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from django.template import Context, Engine
from pydantic import ValidationError

from agent.tools import Arguments, ToolError, complaints
from dialogue.computations.named import Named
from dialogue.computations.table import OF_PROPOSALS, OF_RUN, TABLE, About, Computation
from proposals.agents.references import Rendered, resolve
from proposals.agents.tool_result import Result, about_of
from proposals.agents.toolbox import call
from proposals.agents.tools.look import kpi_name
from proposals.agents.tools.shared import Absent, as_tool_error, same_work
from proposals.agents.workbench import Workbench
from proposals.facts import setting

__all__ = ["OF_PROPOSALS", "OF_RUN", "Computation", "ComputedAnswer", "about", "arguments", "registry", "run"]
TEMPLATES = Path(__file__).resolve().parents[2] / "templates" / "answers"
#: Rows of a result that are drawn as bars.
MOST_BARS = 3
_REGISTRY = {item.key: item for item in TABLE}


@dataclass(frozen=True)
class ComputedAnswer:
    """An answer.  arguments: as it was computed with; results: of tools, by the names that references begin with;
    rendered: its text; bars: as they are stored, of steps or of memory; next: (key, title, arguments)."""

    computation: Computation
    arguments: Mapping[str, Any]
    title: str
    results: Mapping[str, object]
    template: str
    rendered: Rendered
    bars: tuple[dict[str, Any], ...]
    next: tuple[tuple[str, str, Mapping[str, Any]], ...]

    def further(self) -> list[dict[str, Any]]:
        """Return the further questions as JSON."""
        return [{"key": key, "title": title, "arguments": dict(given)} for key, title, given in self.next]

    @property
    def values(self) -> list[dict[str, Any]]:
        """The numbers that it prints, in order, as JSON; low and high: the 80 % interval where it has one."""
        names = ("value", "unit", "origin", "subject", "low", "high")
        numbers = [value for value in self.rendered.values if not isinstance(value.value, str)]
        return [{name: shown for name in names if (shown := getattr(value, name)) is not None} for value in numbers]


def registry() -> Mapping[str, Computation]:
    """Return all computations by key."""
    return _REGISTRY


def about(kind: About) -> Iterator[Computation]:
    """Yield the computations about a kind of object, in the order in which a page shows them."""
    return (item for item in TABLE if item.about == kind)


def arguments(of: Computation, given: Mapping[str, Any]) -> Arguments:
    """Return the arguments as typed.  Raises ToolError, one sentence that names the argument."""
    try:
        return of.arguments.model_validate({key: value for key, value in given.items() if value not in ("", None)})
    except ValidationError as error:
        raise ToolError(f"{complaints(error)[0]}.") from None


def run(bench: Workbench, key: str, given: Mapping[str, Any]) -> ComputedAnswer:
    """Compute an answer.  Raises ToolError with a sentence where there is none to have."""
    of = _REGISTRY.get(key)
    if of is None:
        raise ToolError(f"There is no computation {key[:60]!r}.")
    asked = arguments(of, given)
    every = asked.model_dump(mode="json")
    kept = {name: every[name] for name in ("finding", "proposal") if every.get(name)}  # an object is always named
    kept |= asked.model_dump(exclude_defaults=True, mode="json")
    results: dict[str, object] = {"asked": every}
    with as_tool_error():
        calls = of.calls(bench, asked)
    for name, wanted in calls.items():
        try:
            results[name] = call(bench, wanted)
        except ToolError as error:
            if name == next(iter(calls)) and not isinstance(error, Absent):
                raise
            results |= {name: None, "problem": str(error)}
    template = _text(of, results)
    beside = [item.key for item in about(of.about) if item.key != key and item.arguments is of.arguments]
    alike = [(each, _REGISTRY[each].title, kept) for each in beside] if of.about not in ("run", "ops", "op") else []
    asked_next = of.more(bench, asked, results) if of.more else ()
    more = [(each, titled(_REGISTRY[each], with_), with_) for each, with_ in asked_next]
    further = (*more, *alike, *((each, _REGISTRY[each].title, {}) for each in of.then))
    return ComputedAnswer(
        of, kept, titled(of, kept), results, template, resolve(template, results), tuple(_bars(of, results)), further,
    )  # fmt: skip


def titled(of: Computation, given: Mapping[str, Any]) -> str:
    """Return the title of a computation with what it is about: `How sure, and what would lower it? Proposal 2`."""
    named = kpi_name(given["number"]) if given.get("number") else in_short(given)
    if named and isinstance(next(iter(given.values())), int):  # `Finding 2`; names of axes and ops are as they are
        named = named.capitalize()
    return f"{of.title}{'' if of.title[-1] == '?' else ':'} {named}".strip() if named else of.title


def in_short(given: Mapping[str, Any]) -> str:
    """Return the arguments of a computation or tool in a few words: `data 16 · seq 2 · remat full`."""
    words: list[str] = []
    for name, value in given.items():
        if isinstance(value, dict):
            words += [f"{setting(key)} {each}" for key, each in value.items()]
        elif isinstance(value, list):
            words += [f"{len(value)} {name}"] if value else []
        elif isinstance(value, str):
            words += [value] if value else []
        elif value is not None and value is not False:
            words.append(name if value is True else f"{setting(name)} {value:,}")
    return " · ".join(words)


@cache
def _engine() -> Engine:
    return Engine(dirs=[str(TEMPLATES)], autoescape=False, builtins=["dialogue.computations.named"])


def _text(of: Computation, results: Mapping[str, object]) -> str:
    """Return the template with its conditions and loops done; references in single braces stay."""
    names = {name: Named(result, name) for name, result in results.items()}
    text = _engine().get_template(f"{of.key}.md").render(Context(names, use_l10n=False))
    paragraphs = ("\n".join(filter(None, map(str.strip, part.split("\n")))) for part in text.split("\n\n"))
    return "\n\n".join(filter(None, paragraphs))


def _bars(of: Computation, results: Mapping[str, object]) -> Iterator[dict[str, Any]]:
    """Yield the step that ran and the configurations that are priced beside it, as far as they do the same work."""
    if of.bars == "memory":
        for row in getattr(results["found"], "configurations", ()):
            yield _bar("Memory", row.memory_parts_bytes, row, "memory_bytes", "bytes")
        return
    drawn: set[str] = set()
    found = [result for result in results.values() if isinstance(result, Result)] if of.bars else []
    for result in found:
        is_own = "parts_s" in result
        own = result if is_own else result.get("current")
        if own and "Now" not in drawn:
            parts = own["parts_s" if is_own else "terms_s"]
            time = "step_time_s" if own.step_time_s is not None else "predicted_step_time_s"
            drawn.add("Now")
            if parts:
                yield _bar("Now", parts, own, time)
        rows = (row for name in ("proposals", "configurations", "candidates") for row in result.get(name, ()))
        for row in list(rows)[:MOST_BARS]:
            named = about_of(row)["subject"]
            label = named.capitalize() if row.number else named
            if row["terms_s"] and same_work(row) and not row.is_current and label not in drawn:
                drawn.add(label)
                yield _bar(label, row.terms_s, row, "step_time_s")


def _bar(label: str, parts: Mapping[str, float | None], of: Result, total: str, unit: str = "s") -> dict[str, Any]:
    """Return a stacked bar.  parts: by the keys of `Diagnosis.breakdown_s`, or of memory; total: the key of what is
    printed beside it."""
    shown = resolve(f"{{r.{total}}}", {"r": of})
    return {"label": label, "parts": dict(parts), "unit": unit, "total": shown.to_json()[0] if shown.values else None}
