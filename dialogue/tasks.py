"""What the workers of the dialogue do."""

from __future__ import annotations

from celery import shared_task

from dialogue.services import answering, asking, respond


@shared_task(name=asking.ANSWER, acks_late=True, reject_on_worker_lost=True)
def answer(message_pk: int) -> None:
    """Write an answer, unless it has ended or a live worker writes it."""
    respond.respond(message_pk)


@shared_task(name="dialogue.tasks.sweep", ignore_result=True, expires=60)
def sweep() -> list[int]:
    """Queue the answers that no live worker writes."""
    return answering.sweep()
