"""Threads in which an engineer challenges an experiment's proposals, their messages, and the constraints and facts
stated in them."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from experiments.fields import OrderedJSONField
from jobs.models import Job


class Thread(models.Model):
    """One conversation about an experiment.  title: the beginning of its first question."""

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="+")
    experiment = models.ForeignKey("experiments.Experiment", on_delete=models.CASCADE, related_name="threads")
    title = models.CharField(max_length=120, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-updated_at", "-pk"]
        indexes = [models.Index(fields=["experiment", "-updated_at"], name="thread_by_experiment")]


class Message(Job):
    """A question of a user, or the answer to one.  Of an answer, `status` moves one way, by compare-and-set.

    text grows while a worker writes it; `revision` counts how often what was written so far was withdrawn (a retry, a
    complaint of the checks), after which it starts anew.  steps: tool calls in words, with the Events that hold them
    whole.  effects: what the answer changes or offers beside its text (`proposals.agents.conversation`).  supports:
    which results back each sentence, of answers of earlier versions.  content: of an answer, its text with the values
    that it prints, bars and further questions, as `dialogue.services.content` writes it; None for a plain text.
    provider: the model that answered; `computed` where a computation did, `built-in` of earlier versions.  note: why
    there is no answer, or why it was cut short.
    """

    class Status(models.TextChoices):
        QUEUED = "queued", "Waiting"
        ANSWERING = "answering", "Answering"
        DONE = "done", "Answered"
        STOPPED = "stopped", "Stopped"
        FAILED = "failed", "Failed"

        @property
        def is_final(self) -> bool:
            return self in (Message.Status.DONE, Message.Status.STOPPED, Message.Status.FAILED)

    class Role(models.TextChoices):
        USER = "user", "User"
        ASSISTANT = "assistant", "Assistant"

    thread = models.ForeignKey(Thread, on_delete=models.CASCADE, related_name="messages")
    role = models.CharField(max_length=10, choices=Role)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True)
    question = models.ForeignKey("self", on_delete=models.CASCADE, null=True, blank=True, related_name="answers")
    text = models.TextField(blank=True)
    revision = models.PositiveSmallIntegerField(default=0)
    status = models.CharField(max_length=10, choices=Status, default=Status.DONE)
    stop_asked = models.BooleanField(default=False)
    provider = models.CharField(max_length=120, blank=True)
    note = models.TextField(blank=True)
    steps = OrderedJSONField(default=list, blank=True)
    effects = OrderedJSONField(default=list, blank=True)
    supports = OrderedJSONField(default=list, blank=True)
    content = OrderedJSONField(null=True, blank=True)
    tokens = models.PositiveIntegerField(null=True, blank=True)
    cost_usd = models.FloatField(null=True, blank=True)
    first_text_s = models.FloatField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["pk"]
        indexes = [models.Index(fields=["thread", "id"], name="message_by_thread")]
        constraints = [
            # Of one question only one answer is being written at a time; a retry starts another.
            models.UniqueConstraint(
                fields=["question"],
                condition=models.Q(status__in=["queued", "answering"]),
                name="one_open_answer_per_question",
            )
        ]

    @property
    def team_id(self) -> int:
        """Of the thread's team, which decides who may see it."""
        return self.thread.team_id


class Held(models.Model):
    """A constraint or a fact that a person put into a thread; visible, and removable.

    key: of `Constraints.to_json`, or the configuration path of a fact.  value: as JSON.  message: the answer that asked
    for it, None where it was typed.  held_by: who confirmed it; None in rows of earlier versions.
    """

    class Kind(models.TextChoices):
        CONSTRAINT = "constraint", "Constraint"
        FACT = "fact", "Fact"

    thread = models.ForeignKey(Thread, on_delete=models.CASCADE, related_name="held")
    kind = models.CharField(max_length=10, choices=Kind)
    key = models.CharField(max_length=100)
    value = OrderedJSONField(null=True)
    sentence = models.CharField(max_length=300)
    message = models.ForeignKey(Message, on_delete=models.SET_NULL, null=True, related_name="+")
    held_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    removed_at = models.DateTimeField(null=True, blank=True)
    removed_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")

    class Meta:
        ordering = ["pk"]

    @property
    def team_id(self) -> int:
        """Of the thread's team, which decides who may see it."""
        return self.thread.team_id
