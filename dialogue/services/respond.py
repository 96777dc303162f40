"""Write one answer, from the claim to its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from django.db import InterfaceError, OperationalError
from django.http import Http404

from agent.control import Cancel
from agent.events import Final, Stopped
from dialogue.models import Message
from dialogue.services import answering, asking
from dialogue.services.answering import Writing
from jobs import workers
from perfmodel.config import ConfigError
from proposals.agents import chat
from proposals.agents.conversation import AnswerStep
from proposals.agents.retrieval import Unavailable
from proposals.services import stored

logger = logging.getLogger(__name__)

#: While a model is waited for: how often what came is written out, and it is looked whether the answer is to stop.
LOOK_EVERY_S = 0.25

Answerer = Callable[..., Iterator[AnswerStep]]


def respond(pk: int, answerer: Answerer = chat.answer) -> None:
    """Write the answer `pk`; returns at once where it has ended or a live worker has it.

    answerer: called as `chat.answer`, with the workbench, what is asked, and `cancel`.  Our own faults end the answer
    with a sentence and are raised again; where the database is away the answer is left for the sweep to take over.
    """
    worker = workers.this_thread()
    answer = answering.claim(pk, worker)
    if answer is None or answer.question is None:
        return
    writing = Writing(answer, worker, Cancel())
    try:
        with asking.ANSWERS.beating(pk, worker, (LOOK_EVERY_S, writing.flush), (LOOK_EVERY_S, writing.look)):
            write(writing, answerer)
    except (Unavailable, ConfigError) as error:
        answering.end(answer, worker, Message.Status.FAILED, text=writing.text, note=str(error))
    except Http404:
        note = "The author is no longer a member of the team, so this is not answered."
        answering.end(answer, worker, Message.Status.FAILED, text="", note=note)
    except (OperationalError, InterfaceError):
        raise  # the database is away, or full: the sweep finds an answer that nobody writes
    except Exception as error:
        logger.exception("answer %s failed", pk)
        note = f"Internal error ({type(error).__name__}); ask again; if it recurs, report it with message number {pk}."
        answering.end(answer, worker, Message.Status.FAILED, text=writing.text, note=note)
        raise


def write(writing: Writing, answerer: Answerer = chat.answer) -> None:
    """Compute a claimed answer and store it with its end; no heartbeat is sent (`respond`).

    Raises Unavailable, ConfigError or Http404 where nothing can be answered.
    """
    answer, ask = writing.answer, answering.question_of(writing.answer)
    assert answer.question is not None
    bench = stored.workbench(answer.thread.experiment, answer.question.author)
    try:
        bench = bench.under(ask.facts, ask.constraints)
    except ConfigError as error:
        sentence = (
            f"The constraints and facts of this conversation do not fit this run: {error}. Remove them and ask again."
        )
        raise Unavailable(sentence) from error
    final: Final | None = None
    stopped: Stopped | None = None
    for said in answerer(bench, ask, cancel=writing.cancel):
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
        note = "Stopped." if writing.cancel.is_set() else stopped.sentence if stopped else "No answer was produced."
        status = Message.Status.STOPPED if writing.cancel.is_set() else Message.Status.FAILED
        answering.end(answer, writing.worker, status, note=note, **values)
        return
    answering.end(
        answer,
        writing.worker,
        Message.Status.DONE,
        provider=chat.provider_name(),
        note=stopped.sentence if stopped else "",
        content=answer.content,
        **values,
    )
