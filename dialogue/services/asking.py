"""A user's side of a thread: open it, ask, stop, ask again, remove constraints and facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from accounts.models import Membership, Role, User
from accounts.refusals import Refused
from accounts.text import one_line
from dialogue.models import Message, Thread
from experiments.models import Experiment
from experiments.services import events, secrets
from formatting.text import clean
from jobs.declared import DIALOGUE_QUEUE
from jobs.jobs import Jobs
from proposals.agents import chat

#: Of one question.
MOST_CHARACTERS = 8_000
#: Messages of one thread; a longer one is better begun anew.
MOST_MESSAGES = 400
MOST_THREADS = 200
TITLE_CHARACTERS = 80
OPEN = (Message.Status.QUEUED, Message.Status.ANSWERING)
ANSWERS = Jobs(Message, OPEN, Message.Status.ANSWERING, queue=DIALOGUE_QUEUE, most_attempts=2, team="thread__team")
NOT_YOURS = "Only its author or an administrator of the team can delete a conversation."


class DialogueError(Refused):
    """What was asked for cannot be done."""


def open_thread(experiment: Experiment, user: User) -> Thread:
    """Return a new, empty thread, or the user's unused one."""
    unused = Thread.objects.filter(experiment=experiment, created_by=user, messages=None).first()
    if unused is not None:
        return unused
    if Thread.objects.filter(experiment=experiment).count() >= MOST_THREADS:
        raise DialogueError(f"This experiment has {MOST_THREADS} conversations; delete one that is not needed.")
    return Thread.objects.create(team_id=experiment.team_id, experiment=experiment, created_by=user)


def used(experiment: Experiment) -> QuerySet[Thread]:
    """The experiment's threads in which something was asked, the one last written in first."""
    return Thread.objects.filter(experiment=experiment).exclude(messages=None)


def ask(thread: Thread, user: User, text: str) -> Message:
    """Store the question and queue its answer; returns the answer, still to be written."""
    text = secrets.redact(clean(text)).strip()
    if not text:
        raise DialogueError("Write a question first.")
    if not chat.provider_name():
        raise DialogueError(chat.NO_MODEL)
    if len(text) > MOST_CHARACTERS:
        raise DialogueError(f"A question has at most {MOST_CHARACTERS:,} characters; this one has {len(text):,}.")
    with transaction.atomic():
        return _queue(store_question(thread, user, text))


def store_question(thread: Thread, user: User, text: str, data: Mapping[str, Any] | None = None) -> Message:
    """Store a question with its Event.  data: what the Event holds beside the text."""
    with transaction.atomic():
        events.lock(thread.experiment_id)
        if thread.messages.filter(status__in=OPEN).exists():
            raise DialogueError("The previous answer is still being written; wait for it or stop it.")
        if thread.messages.count() >= MOST_MESSAGES:
            raise DialogueError("This conversation is too long; start a new one.")
        question = Message.objects.create(thread=thread, role=Message.Role.USER, author=user, text=clean(text))
        if not thread.title:
            thread.title = one_line(text, TITLE_CHARACTERS)
        thread.save(update_fields=["title", "updated_at"])
        event = {"thread": thread.pk, "message": question.pk, "text": text, **(data or {})}
        events.append(thread.experiment_id, "message", "user", user=user, data=event)
        return question


def retry(answer: Message, user: User) -> Message:
    """Another answer to the question of the last one, which stays."""
    with transaction.atomic():
        events.lock(answer.thread.experiment_id)
        newest = answer.thread.messages.order_by("-pk").first()
        if answer.question is None or newest != answer or answer.status in OPEN:
            raise DialogueError("Only the last answer can be retried, once it has ended.")
        if not chat.provider_name():
            raise DialogueError(chat.NO_MODEL)
        event = {"thread": answer.thread_id, "message": answer.question_id, "again": True}
        events.append(answer.thread.experiment_id, "message", "user", user=user, data=event)
        return _queue(answer.question)


def stop(answer: Message) -> bool:
    """Ask the worker to stop; False where the answer has ended."""
    waiting = Message.objects.filter(pk=answer.pk, status=Message.Status.QUEUED)
    ended = {"status": Message.Status.STOPPED, "finished_at": timezone.now(), "note": "Stopped before it started."}
    if waiting.update(**ended):
        return True
    return bool(Message.objects.filter(pk=answer.pk, status=Message.Status.ANSWERING).update(stop_asked=True))


def may_delete(thread: Thread, membership: Membership) -> bool:
    """Administrators, and who opened it and may still ask."""
    mine = thread.created_by_id == membership.user_id and membership.may(Role.ENGINEER)
    return bool(membership.may(Role.ADMINISTRATOR) or mine)


def delete(thread: Thread, user: User) -> None:
    """The thread and its messages go; what they did stays in the Sharding Memory."""
    with transaction.atomic():
        events.lock(thread.experiment_id)
        event = {"thread": thread.pk, "deleted": True, "title": thread.title}
        events.append(thread.experiment_id, "message", "user", user=user, data=event)
        thread.delete()


def _queue(question: Message) -> Message:
    answer = Message.objects.create(
        thread=question.thread, role=Message.Role.ASSISTANT, question=question, status=Message.Status.QUEUED
    )
    ANSWERS.enqueue(answer.pk)
    return answer
