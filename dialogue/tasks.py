"""What the workers of the dialogue do."""

from __future__ import annotations

import logging
import threading
from typing import Any

from celery.signals import worker_ready

from dialogue.services import answering, asking
from knowledge.embedding import EmbeddingError, current_embedder

logger = logging.getLogger(__name__)

#: After the start, when the application has better things to do.
WARM_AFTER_S = 10.0


@asking.ANSWERS.implementation()
def answer(message_pk: int) -> None:
    """Write an answer, unless it has ended or a live worker writes it."""
    answering.respond(message_pk)


@worker_ready.connect
def warm_up(sender: Any = None, **kwargs: Any) -> None:
    """Load the embedding model in the worker of the answers: the first question would wait for it."""
    if sender is not None and "dialogue" in sender.app.amqp.queues.consume_from:
        timer = threading.Timer(WARM_AFTER_S, _warm)
        timer.daemon = True
        timer.start()


def _warm() -> None:
    try:
        current_embedder().embed(["runs like this one"])
    except EmbeddingError:
        logger.warning("the embedding model is missing", exc_info=True)
