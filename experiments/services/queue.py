"""Hand a run to the workers.  The task stands in a higher layer, so it is sent by name."""

from __future__ import annotations

import logging

from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError

from experiments.models import Run

logger = logging.getLogger(__name__)

ADVANCE_RUN = "proposals.tasks.advance_run"


def enqueue(run: Run) -> None:
    """Send the run to a worker once the transaction has committed.

    Where the broker cannot be reached the run stays as it is, and the periodic sweep takes it up.
    """
    pk = run.pk
    transaction.on_commit(lambda: _send(pk))


def _send(pk: int) -> None:
    try:
        current_app.send_task(ADVANCE_RUN, args=[pk], retry=False)
    except (OperationalError, OSError):
        logger.warning("run %s is not queued: the broker cannot be reached; the sweep will take it up", pk)
