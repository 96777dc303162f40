"""Parts that show what the language model did with a run: how far it is, its report, what backs a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import template

from experiments.models import Run
from proposals.consulted import state
from proposals.models import PlanRecord
from proposals.services import consulting

register = template.Library()


@register.inclusion_tag("proposals/_consulting.html", takes_context=True)
def consulted(context: dict[str, Any], where: str, plan: PlanRecord | None = None) -> dict[str, Any]:
    """The state of the newest consultation, and the button that asks the model.

    where: the page, `diagnosis` or `proposals`; plan: the one that is shown there.
    """
    return {
        **state(context["experiment"], where, plan),
        "membership": context["membership"],
        "csrf_token": context.get("csrf_token"),
    }


@register.simple_tag
def model_report(run: Run) -> dict[str, Any] | None:
    """The report by the model: its sections, who wrote it, and how much was checked; None where there is none."""
    made = consulting.report_of(run)
    if made is None:
        return None
    sections = made.report.get("sections") or {}
    return {
        **made.report,
        "sections": [
            {"number": number, "heading": heading, "lines": lines}
            for number, (heading, lines) in enumerate(sections.items(), start=1)
        ],
    }


@register.simple_tag
def model_lines(plan: PlanRecord) -> dict[str, dict[str, Sequence[int]]]:
    """Of a plan that the model wrote, per rank the Events behind each sentence."""
    if not plan.value.author:
        return {}
    made = consulting.of_plan(plan)
    lines = (made.proposals.get("lines") or {}) if made is not None else {}
    return {rank: {line["text"]: line.get("events") or () for line in of_rank} for rank, of_rank in lines.items()}
