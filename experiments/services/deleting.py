"""What blocks the deletion of an experiment: jobs on clusters, which would keep running unmonitored.

Apps above this one know the jobs; they answer the signal `asked`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.dispatch import Signal

from accounts.refusals import Refused
from experiments.models import Experiment, ProfileFile

#: Sent with `experiment`; every receiver returns a list of `DeletionBlocker`.
asked = Signal()


class DeletionError(Refused):
    """The experiment cannot be deleted now.  The text says what blocks it and what to do."""


@dataclass(frozen=True)
class DeletionBlocker:
    """sentence: what is running, or may run.  page, api: where to cancel it, empty if it cannot be cancelled.  blocks:
    False if it is only a warning."""

    sentence: str
    page: str = ""
    api: str = ""
    blocks: bool = True


def holds(experiment: Experiment) -> list[DeletionBlocker]:
    """In the order of the layers, those that block first."""
    answers: list[tuple[Any, Any]] = asked.send(Experiment, experiment=experiment)
    return sorted((hold for _, answer in answers for hold in answer), key=lambda hold: not hold.blocks)


def facts(experiment: Experiment) -> dict[str, Any]:
    """Return what the audit trail keeps of a deleted experiment (docs/accounts.md)."""
    files = ProfileFile.objects.filter(profile__experiment=experiment).values("name", "size_bytes", "sha256")
    reviews = experiment.events.filter(kind="review").select_related("user").order_by("pk")
    return {
        "created_at": experiment.created_at.isoformat(timespec="seconds"),
        "created_by": experiment.created_by.get_username() if experiment.created_by else None,
        "origin": experiment.origin,
        "state": experiment.state,
        "chip": experiment.chip,
        "chips": experiment.chips,
        "model": experiment.model_name,
        "step_time_s": experiment.step_time_s,
        "files": list(files),
        "events": experiment.events.count(),
        "reviews": [
            {
                "at": event.created_at.isoformat(timespec="seconds"),
                "by": event.user.get_username() if event.user else None,
                **{key: event.data.get(key) for key in ("decision", "rank", "title", "comment")},
            }
            for event in reviews
        ],
    }


def refuse_while_held(experiment: Experiment) -> None:
    """Raises DeletionError.  Call it with the experiment's events locked, so that nothing starts meanwhile."""
    against = [hold for hold in holds(experiment) if hold.blocks]
    if against:
        said = (f"{hold.sentence}{f' Cancel it first: POST {hold.api}.' if hold.api else ''}" for hold in against)
        raise DeletionError(" ".join(("The experiment was not deleted.", *said)))
