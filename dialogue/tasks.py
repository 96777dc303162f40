"""What the workers of the dialogue do."""

from __future__ import annotations

from dialogue.services import answering, asking


@asking.ANSWERS.implementation()
def answer(message_pk: int) -> None:
    """Write an answer, unless it has ended or a live worker writes it."""
    answering.respond(message_pk)
