"""What a row needs so that workers can hold it, and which team was served when."""

from __future__ import annotations

from django.db import models


class Job(models.Model):
    """A row that one worker at a time works on; see `jobs.jobs.Jobs`.

    worker: name of who holds it, empty while nobody does.  heartbeat_at: when the holder last said that it lives, or
    when the row was last sent to the workers.  attempts: how often it was claimed.  A subclass has `created_at`.
    """

    worker = models.CharField(max_length=100, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)

    class Meta:
        abstract = True


class Turn(models.Model):
    """When a team was last served in a queue."""

    queue = models.CharField(max_length=50, blank=True)  # empty: the default one
    team = models.BigIntegerField()  # key of the team; 0: rows without one
    number = models.BigIntegerField(default=0)  # of the queue's turn, counted over all teams

    class Meta:
        constraints = [models.UniqueConstraint(fields=["queue", "team"], name="one_turn_per_queue_and_team")]
