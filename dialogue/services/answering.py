"""A worker's side of a thread: take the answer, let the agents write it, keep every step; `respond` does it all.

The text is written into the row as it comes, so the page can read it at any point, a dead worker loses nothing that
was shown, and the stream needs no process of its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from django.db import InterfaceError, OperationalError
from django.db.models import F
from django.http import Http404
from django.utils import timezone

from agent.control import Cancel
from agent.events import Complaint, Final, Retry, RunEvent, Stopped, TextDelta, ToolCalled, ToolReturned
from dialogue import content
from dialogue.models import Message
from dialogue.services import asking, holding
from formatting.text import clean, clean_json
from jobs import workers
from perfmodel.config import ConfigError
from proposals.agents import chat
from proposals.agents.conversation import EFFECT, AnswerStep, AnswerText, Ask, Effect, Turn
from proposals.agents.retrieval import Unavailable
from proposals.services import recording, stored

logger = logging.getLogger(__name__)

#: How often text goes to the database while it comes: often enough that it reads as a stream.
FLUSH_EVERY_S = 0.05
#: How often the row is asked whether somebody wants the answer to stop.
LOOK_EVERY_S = 0.3
#: Earlier messages that an answer can read.
REMEMBERED = 40


@dataclass
class Writing:
    """An answer while it is being written.  cancel: set when somebody asks it to stop, or the worker lost it."""

    answer: Message
    worker: str
    cancel: Cancel
    began: float = field(default_factory=time.monotonic)
    text: str = ""
    flushed: str = ""
    flushed_at: float = 0.0
    looked_at: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, said: AnswerStep) -> None:
        """Store one thing that the agents said or did."""
        if isinstance(said, TextDelta):
            self.text += clean(said.text)
            self.flush()
        elif isinstance(said, AnswerText):
            self.answer.content = content.of_text(clean(said.template), clean_json(list(said.parts)))
        elif isinstance(said, Effect):
            self._effect(said)
        else:
            self._event(said)
        self.look()

    def flush(self, now: bool = False) -> None:
        """Write the text as far as it has come.  Also called by the thread that says the writer is alive."""
        with self.lock:
            moment, text = time.monotonic(), self.text
            if text == self.flushed or not (now or moment - self.flushed_at >= FLUSH_EVERY_S):
                return
            values: dict[str, Any] = {"text": text, "heartbeat_at": timezone.now()}
            if not text.startswith(self.flushed):  # what was shown is not the beginning of what is written now
                values["revision"] = F("revision") + 1
            if self.answer.first_text_s is None:
                values["first_text_s"] = self.answer.first_text_s = round(moment - self.began, 4)
            self._update(**values)
            self.flushed, self.flushed_at = text, moment

    def look(self) -> None:
        """Now and then: is the answer still ours, and still wanted?  Also called while the writer waits for a model."""
        if time.monotonic() - self.looked_at < LOOK_EVERY_S:
            return
        self.looked_at = time.monotonic()
        row = Message.objects.filter(pk=self.answer.pk).values_list("worker", "status", "stop_asked").first()
        if row is None or row[0] != self.worker or row[1] != Message.Status.ANSWERING or row[2]:
            self.cancel.set()

    def _update(self, **values: Any) -> None:
        ours = asking.ANSWERS.row_of_worker(self.answer.pk, self.worker)
        if not ours.update(**values):
            self.cancel.set()

    def _withdraw(self) -> None:
        """What was written so far does not count: the page shows it anew."""
        with self.lock:
            self.text = self.flushed = ""
            self._update(text="", revision=F("revision") + 1)

    def _event(self, event: RunEvent) -> None:
        if isinstance(event, Retry | Complaint) or (isinstance(event, Stopped) and event.reason != "cancelled"):
            self._withdraw()  # what stands instead is written anew
        else:
            self.flush(now=True)
        answer = self.answer
        row = recording.store(
            answer.thread.experiment_id, event, "coordinator", thread=answer.thread_id, message=answer.pk
        )
        if isinstance(event, ToolCalled):
            called = {"tool": event.call.name, "arguments": clean(event.call.arguments)[:400]}
            self.answer.steps.append({**called, "result": event.result_id, "event": row.pk, "ok": None})
            self._update(steps=self.answer.steps)
        elif isinstance(event, ToolReturned):
            for step in self.answer.steps:
                if step["result"] == event.result_id and step["ok"] is None:
                    step.update(ok=event.ok, returned=row.pk, duration_s=round(event.duration_s, 4), error=event.error)
            self._update(steps=self.answer.steps)
        elif isinstance(event, Stopped):
            self.answer.note = event.sentence
        elif isinstance(event, Final):
            if isinstance(event.answer, str):
                self.text = clean(event.answer)
            self.answer.tokens, self.answer.cost_usd = event.usage.tokens or None, event.cost_usd

    def _effect(self, effect: Effect) -> None:
        self.flush(now=True)
        self.answer.effects.append(clean_json(EFFECT.write(effect)))
        self._update(effects=self.answer.effects)


def claim(pk: int, worker: str) -> Message | None:
    """Take an answer for this worker; None where it has ended, or a live worker has it."""
    # Of an earlier attempt nothing counts.
    anew: dict[str, Any] = {"text": "", "steps": [], "effects": [], "content": None}
    anew["revision"] = F("revision") + F("attempts")
    if not asking.ANSWERS.claim(pk, worker, **anew):
        return None
    answer = Message.objects.select_related("thread__experiment", "thread__team", "question__author").get(pk=pk)
    if answer.attempts > asking.ANSWERS.most_attempts:
        end(answer, worker, Message.Status.FAILED, note="The worker died twice while writing this answer; retry.")
        return None
    return answer


def end(answer: Message, worker: str, status: Message.Status, **values: Any) -> bool:
    """The answer has ended; False where another worker has it."""
    ours = asking.ANSWERS.row_of_worker(answer.pk, worker)
    return bool(ours.update(status=status, finished_at=timezone.now(), **values))


def question_of(answer: Message) -> Ask:
    """What the agents are asked: the question, the thread before it, and its constraints and facts."""
    assert answer.question is not None
    earlier = answer.thread.messages.filter(pk__lt=answer.question_id).exclude(text="").order_by("-pk")[:REMEMBERED]
    turns = [Turn("user" if m.role == Message.Role.USER else "assistant", m.text) for m in reversed(earlier)]
    held = holding.held_by(answer.thread)
    return Ask(answer.question.text, tuple(turns), holding.constraints_of(held), holding.facts_of(held))


#: While a model is waited for: how often what came is written out, and it is looked whether the answer is to stop.
WAITED_S = 0.25

Answerer = Callable[..., Iterator[AnswerStep]]


def respond(pk: int, answerer: Answerer = chat.answer) -> None:
    """Write the answer `pk`; returns at once where it has ended or a live worker has it.

    answerer: called as `chat.answer`, with the workbench, what is asked, and `cancel`.  Our own faults end the answer
    with a sentence and are raised again; where the database is away the answer is left for the sweep to take over.
    """
    worker = workers.this_thread()
    answer = claim(pk, worker)
    if answer is None or answer.question is None:
        return
    writing = Writing(answer, worker, Cancel())
    try:
        with asking.ANSWERS.beating(pk, worker, (WAITED_S, writing.flush), (WAITED_S, writing.look)):
            write(writing, answerer)
    except (Unavailable, ConfigError) as error:
        end(answer, worker, Message.Status.FAILED, text=writing.text, note=str(error))
    except Http404:
        note = "The author is no longer a member of the team, so this is not answered."
        end(answer, worker, Message.Status.FAILED, text="", note=note)
    except (OperationalError, InterfaceError):
        raise  # the database is away, or full: the sweep finds an answer that nobody writes
    except Exception as error:
        logger.exception("answer %s failed", pk)
        note = f"Internal error ({type(error).__name__}); ask again; if it recurs, report it with message number {pk}."
        end(answer, worker, Message.Status.FAILED, text=writing.text, note=note)
        raise


def write(writing: Writing, answerer: Answerer = chat.answer) -> None:
    """Compute a claimed answer and store it with its end; no heartbeat is sent (`respond`).

    Raises Unavailable, ConfigError or Http404 where nothing can be answered.
    """
    answer, ask = writing.answer, question_of(writing.answer)
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
        end(answer, writing.worker, status, note=note, **values)
        return
    values |= {"provider": chat.provider_name(), "note": stopped.sentence if stopped else "", "content": answer.content}
    end(answer, writing.worker, Message.Status.DONE, **values)
