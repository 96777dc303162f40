"""The questions of an object, for the page that shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import template

from accounts.models import Membership, Role
from dialogue.computations import OF_PROPOSALS, OF_RUN, registry
from dialogue.computations import about as about_kind
from dialogue.content import Question, as_typed, question_url
from experiments.models import Experiment
from perfmodel.config import flat_sizes

register = template.Library()


@register.simple_tag
def questions(about: str, experiment: Experiment, number: int = 0, of: Any = None) -> list[Question]:
    """Return the questions of an object: `run`, `proposals`, or `finding`, `proposal` with its number, `configuration`
    with its mesh and changes, `number` with the key of a figure, `axis` with its name."""
    if about in ("run", "proposals"):
        return [_question(experiment, key, {}) for key in (OF_RUN if about == "run" else OF_PROPOSALS)]
    if about == "number":
        return [_question(experiment, "figure", {"number": of})]
    if about == "axis":
        return [_question(experiment, "axis", {"axis": of}), _question(experiment, "ops", {"axis": of})]
    if about == "configuration":
        given = {"mesh": flat_sizes(of.mesh), "changes": dict(of.changes)}
        return [_question(experiment, key, given) for key in ("fits", "around")]
    return [_question(experiment, item.key, {about: number}) for item in about_kind(about)]  # type: ignore[arg-type]


def _question(experiment: Experiment, key: str, given: Mapping[str, Any]) -> Question:
    kept = {name: as_typed(value) for name, value in given.items() if value}
    return Question(registry()[key].title, question_url(experiment.pk, key, kept))


@register.filter
def may_ask(membership: Membership | None) -> bool:
    """Return True if the member may keep answers in a conversation."""
    return membership is not None and membership.may(Role.ENGINEER)
