"""Write one answer, from the claim to its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection
from django.http import Http404
from django.utils import timezone

from agent.control import Cancel
from agent.events import Final, Stopped
from dialogue.models import Message
from dialogue.services import answering
from dialogue.services.answering import Writing
from experiments.services import workers
from perfmodel.config import ConfigError
from proposals.agents import chat, stored
from proposals.agents.surroundings import Unavailable

logger = logging.getLogger(__name__)

#: A writer that waits for a model says so often that it is alive.
HEARTBEAT_EVERY_S = 5.0


def respond(pk: int) -> None:
    """Write the answer `pk`; returns at once where it has ended or a live worker has it.

    Our own faults end the answer with a sentence and are raised again.
    """
    worker = f"{workers.this_process()}/{threading.get_ident()}"[:100]
    answer = answering.claim(pk, worker)
    if answer is None or answer.question is None:
        return
    writing = Writing(answer, worker, Cancel())
    try:
        with _beating(answer, worker):
            _write(writing)
    except (Unavailable, ConfigError) as error:
        answering.end(answer, worker, Message.Status.FAILED, text=writing.text, note=str(error))
    except Http404:
        note = "You are no member of this team any more, so this is not answered."
        answering.end(answer, worker, Message.Status.FAILED, text="", note=note)
    except Exception as error:
        logger.exception("answer %s failed", pk)
        note = (
            f"Something went wrong in our code ({type(error).__name__}); "
            f"ask again, and if it happens again report it with the message number {pk}."
        )
        answering.end(answer, worker, Message.Status.FAILED, text=writing.text, note=note)
        raise


def _write(writing: Writing) -> None:
    answer, ask = writing.answer, answering.question_of(writing.answer)
    assert answer.question is not None
    bench = stored.workbench(answer.thread.experiment, answer.question.author)
    bench = bench.under(ask.facts, ask.constraints)
    final: Final | None = None
    stopped: Stopped | None = None
    for said in chat.answer(bench, ask, cancel=writing.cancel):
        writing.take(said)
        if isinstance(said, Final):
            final = said
        elif isinstance(said, Stopped):
            stopped = said
        if writing.cancel.is_set():
            break
    writing.flush(now=True)
    values = {"text": writing.text, "tokens": answer.tokens, "cost_usd": answer.cost_usd}
    if final is None:
        note = "Stopped." if writing.cancel.is_set() else stopped.sentence if stopped else "No answer came."
        status = Message.Status.STOPPED if writing.cancel.is_set() else Message.Status.FAILED
        answering.end(answer, writing.worker, status, note=note, **values)
        return
    provider = chat.provider_name() if final.source == "model" else chat.BUILT_IN
    answering.end(
        answer,
        writing.worker,
        Message.Status.DONE,
        provider=provider,
        note=stopped.sentence if stopped else "",
        supports=chat.supports(writing.text, writing.results),
        **values,
    )


@contextmanager
def _beating(answer: Message, worker: str) -> Iterator[None]:
    stop = threading.Event()

    def beat() -> None:
        try:
            while not stop.wait(HEARTBEAT_EVERY_S):
                ours = Message.objects.filter(pk=answer.pk, worker=worker, status=Message.Status.ANSWERING)
                ours.update(heartbeat_at=timezone.now())
        finally:
            connection.close()

    thread = threading.Thread(target=beat, name=f"answer-{answer.pk}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=10)
