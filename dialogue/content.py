"""The content of an answer as it is stored: text with the values that it prints, bars, and the questions below it.

`of_computed` and `of_text` write it, `blocks` draws it; what is stored needs none of the results it came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.safestring import mark_safe

from dialogue.computations import OF_PROPOSALS, OF_RUN, ComputedAnswer, about, registry
from dialogue.links import link_of
from experiments import bars
from experiments.models import Experiment
from proposals.agents import markdown
from proposals.agents.markdown import Link
from proposals.agents.references import Rendered
from proposals.agents.tools.shared import Configuration
from proposals.agents.values import Value

Content = dict[str, Any]


@dataclass(frozen=True)
class Block:
    """A part of an answer: its HTML, or its bars."""

    html: str = ""
    bars: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Question:
    """A question to press.  url: answers it, by GET without storing it, by POST in the conversation."""

    title: str
    url: str


def of_text(template: str, parts: Sequence[Any]) -> Content:
    """The content of a text of a language model; parts: `Rendered.to_json()`."""
    return {"blocks": [{"kind": "text", "text": template, "values": list(parts)}]}


def of_computed(answered: ComputedAnswer) -> Content:
    """The content of a computed answer."""
    blocks: list[dict[str, Any]] = [
        {"kind": "text", "text": answered.template, "values": answered.rendered.to_json()},
    ]
    if answered.bars:
        blocks.insert(0, {"kind": "bars", "rows": list(answered.bars)})
    return {
        "computation": answered.computation.key, "arguments": dict(answered.arguments), "title": answered.title,
        "blocks": blocks, "next": answered.further(),
    }  # fmt: skip


def blocks(content: Mapping[str, Any], experiment: Experiment) -> list[Block]:
    """Return the parts of a stored answer as a page shows them."""
    link = link_of(experiment)
    return [
        Block(bars=_drawn(block["rows"], experiment, link))
        if block["kind"] == "bars"
        else Block(html=mark_safe(Rendered.from_json(block["values"]).html(link)))
        for block in content.get("blocks", ())
    ]


def _drawn(rows: Sequence[Mapping[str, Any]], experiment: Experiment, link: Link) -> list[dict[str, Any]]:
    """Return the bars with their terms, on one scale."""
    drawn: list[dict[str, Any]] = []
    for row in rows:
        total = cast(Value, Rendered.from_json([row["total"]]).parts[0]) if row["total"] else None
        is_memory = row["unit"] == "bytes"
        terms = bars.memory_terms(row["parts"]) if is_memory else bars.step_terms(row["parts"], experiment.axis_roles)
        shown = mark_safe(markdown.of_value(total, link)) if total else ""
        end = max(sum(row["parts"].values()), (total.high or 0.0) if total else 0.0)
        drawn.append(
            {
                "label": row["label"], "terms": terms, "total": shown, "unit": row["unit"], "end": end,
                "predicted": bool(total and total.origin == "predicted"), "low": total.low if total else None,
                "high": total.high if total else None,
            }
        )  # fmt: skip
    scale = max((bar["end"] for bar in drawn), default=1.0)
    return [{**bar, "scale": scale} for bar in drawn]


def further(content: Mapping[str, Any], experiment: Experiment) -> list[Question]:
    """Return the questions below an answer; of those that there no longer are, none."""
    return [
        Question(item["title"], question_url(experiment.pk, item["key"], item["arguments"]))
        for item in content.get("next", ())
        if item["key"] in registry()
    ]


def questions_about(experiment: Experiment, target: str) -> list[Question]:
    """Return the questions of what a value is of, as `Value.href` names it: `proposal:2`, `finding:1`, `op:KEY`,
    `configuration:mesh=…&changes=…`; of `run` and `proposals` those that are asked most."""
    kind, _, name = target.partition(":")
    typed: dict[str, Any] = dict(part.partition("=")[::2] for part in name.split("&"))
    asked: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "run": [(key, {}) for key in OF_RUN],
        "proposals": [(key, {}) for key in OF_PROPOSALS],
        "kpi": [("figure", {"number": name})],
        "op": [("op", {"op": name})],
        "experiment": [("since_last", {"experiment": name})],
        "axis": [("axis", {"axis": name}), ("ops", {"axis": name})],
        "configuration": [(item.key, typed) for item in about("configuration") if item.arguments is Configuration],
        **{each: [(item.key, {each: name}) for item in about(each)] for each in ("finding", "proposal")},
    }
    return [question(experiment, key, given) for key, given in asked.get(kind, ())]


def question(experiment: Experiment, key: str, given: Mapping[str, Any] | None = None) -> Question:
    """Return a computation with its arguments as a question to press."""
    kept = {name: value for name, value in (given or {}).items() if value}
    return Question(registry()[key].title, question_url(experiment.pk, key, kept))


def question_url(experiment: int, key: str, arguments: Mapping[str, Any] | None = None) -> str:
    """Return the address of a computation with its arguments."""
    query = urlencode({name: as_typed(value) for name, value in (arguments or {}).items()}, safe="=,")
    return reverse("computation", args=[experiment, key]) + (f"?{query}" if query else "")


def as_typed(value: Any) -> Any:
    """Return an argument as a form or an address has it: sizes as `fsdp=16,tp=4`, numbers as `64,128`."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return ",".join(f"{key}={each}" for key, each in value.items()) if isinstance(value, Mapping) else value
