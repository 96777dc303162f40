"""The questions of an object, for the page that shows it."""

from __future__ import annotations

from typing import Any

from django import template

from accounts.models import Membership, Role
from dialogue.content import Question, question, questions_about
from experiments.models import Experiment

register = template.Library()


@register.simple_tag
def questions(about: str, experiment: Experiment, number: int = 0, of: Any = None) -> list[Question]:
    """Return the questions of an object: `run`, `proposals`, or `finding`, `proposal` with its number, `op`, `kpi` with
    the key of a figure, `axis` with its name."""
    if about == "op":
        on_axis = questions_about(experiment, f"axis:{of.mesh_axis}") if of.mesh_axis and of.resource != "dcn" else []
        alike = [question(experiment, "ops", {"words": of.module or of.category})]
        return [*questions_about(experiment, f"op:{of.key}"), *(on_axis or alike)]
    return questions_about(experiment, f"{about}:{number or of or ''}")


@register.filter
def may_ask(membership: Membership | None) -> bool:
    """Return True if the member may keep answers in a conversation."""
    return membership is not None and membership.may(Role.ENGINEER)
