"""What stands against deleting an experiment: jobs elsewhere, which would run on when their rows are gone.

Which jobs there are the layers above know; they answer to `asked`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.dispatch import Signal

from experiments.models import Experiment

#: Sent with `experiment`; every receiver returns a list of `Hold`.
asked = Signal()


class DeletionError(Exception):
    """The experiment cannot be deleted now.  The text says what stands against it, and what to do."""


@dataclass(frozen=True)
class Hold:
    """sentence: what runs, or may.  page: where it is cancelled, api: the same as a request; empty where there is
    nothing to cancel.  blocks: False for what was tried in vain and is only to be known."""

    sentence: str
    page: str = ""
    api: str = ""
    blocks: bool = True


def holds(experiment: Experiment) -> list[Hold]:
    """In the order of the layers, those that block first."""
    answers: list[tuple[Any, Any]] = asked.send(Experiment, experiment=experiment)
    found: list[Hold] = [hold for _, answer in answers for hold in answer]
    return sorted(found, key=lambda hold: not hold.blocks)


def refuse_while_held(experiment: Experiment) -> None:
    """Raises DeletionError.  Call it with the experiment's events locked, so that nothing begins meanwhile."""
    against = [hold for hold in holds(experiment) if hold.blocks]
    if against:
        said = (f"{hold.sentence}{f' Cancel it first: POST {hold.api}.' if hold.api else ''}" for hold in against)
        raise DeletionError(" ".join(("The experiment was not deleted.", *said)))
