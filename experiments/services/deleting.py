"""What blocks the deletion of an experiment: jobs on clusters, which would keep running unmonitored.

Apps above this one know the jobs; they answer the signal `asked`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.dispatch import Signal

from accounts.refusals import Refused
from experiments.models import Experiment

#: Sent with `experiment`; every receiver returns a list of `Hold`.
asked = Signal()


class DeletionError(Refused):
    """The experiment cannot be deleted now.  The text says what blocks it and what to do."""


@dataclass(frozen=True)
class Hold:
    """sentence: what is running, or may run.  page, api: where to cancel it, empty if it cannot be cancelled.  blocks:
    False if it is only a warning."""

    sentence: str
    page: str = ""
    api: str = ""
    blocks: bool = True


def holds(experiment: Experiment) -> list[Hold]:
    """In the order of the layers, those that block first."""
    answers: list[tuple[Any, Any]] = asked.send(Experiment, experiment=experiment)
    return sorted((hold for _, answer in answers for hold in answer), key=lambda hold: not hold.blocks)


def refuse_while_held(experiment: Experiment) -> None:
    """Raises DeletionError.  Call it with the experiment's events locked, so that nothing starts meanwhile."""
    against = [hold for hold in holds(experiment) if hold.blocks]
    if against:
        said = (f"{hold.sentence}{f' Cancel it first: POST {hold.api}.' if hold.api else ''}" for hold in against)
        raise DeletionError(" ".join(("The experiment was not deleted.", *said)))
