"""What the workers do."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from celery.signals import worker_ready

from experiments.services import runs
from proposals.services import compiling, consultants, consulting, coordinator, measuring, regenerating


@runs.RUNS.implementation()
def advance_run(run_pk: int) -> None:
    """Do the Coordinator's work on a run as far as it goes."""
    coordinator.advance(run_pk)


@regenerating.REQUESTS.implementation()
def propose_again(request_pk: int) -> None:
    """Make the plan that somebody asked for."""
    regenerating.make(request_pk)


@consulting.CONSULTATIONS.implementation()
def consult(consultation_pk: int) -> None:
    """Let the language model read a run, unless it has or a live worker lets it."""
    consultants.consult(consultation_pk)


@compiling.COMPILATIONS.implementation()
def compile_one(compilation_pk: int) -> None:
    """Compile the baseline or a proposal of a plan for its topology."""
    compiling.compile_one(compilation_pk)


@shared_task(name="proposals.tasks.measure", ignore_result=True, expires=60)
def measure() -> None:
    """Measure approved proposals whose run got ready while its worker died."""
    measuring.sweep()


@worker_ready.connect
def measure_at_start(sender: Any = None, **kwargs: Any) -> None:
    measure.delay()
