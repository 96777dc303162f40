"""Parts that show what the language model did with a run: how far it is, its report, what backs a sentence."""

from __future__ import annotations

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
