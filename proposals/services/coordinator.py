"""The Coordinator: takes a run from the uploaded files to checked proposals, one stage at a time.

Every stage ends with a compare-and-set of the status in the same transaction as what the stage stored, and only while
this worker still holds the run.  So a worker can die anywhere: the next one starts the stage again, and nothing is
stored twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from celery.exceptions import SoftTimeLimitExceeded
from django.db import DatabaseError, InterfaceError, OperationalError, connection, transaction

from diagnosis import services as diagnosis_services
from diagnosis.analyzer import diagnose
from diagnosis.report import Diagnosis
from disk import space
from experiments.consistency import facts_of
from experiments.ingest import IngestError, read_profile
from experiments.models import Experiment, Run, RunStatus
from experiments.services import configuration, events, profiles, runs, storage, traces
from experiments.step_profile import PROFILE, StepProfile
from formatting import counted, plain
from formatting.text import clean, clean_json
from jobs import workers
from perfmodel.config import ConfigError, ExperimentConfig
from proposals.plan import Plan
from proposals.proposer import propose
from proposals.proposer.observed import start
from proposals.proposer.precedents import situation
from proposals.services import checks, compiling, confidence, consulting, measuring, plans, precedents

logger = logging.getLogger(__name__)


#: How long a stage waits for a database that restarts, and how often in one run.
OUTAGE_S = 60.0
MAX_OUTAGES = 5


class StageFailed(Exception):
    """The run cannot go on for a reason the user can act on.  The text is a sentence with the next step."""


class OwnershipLost(Exception):
    """Another worker has the run, or it was moved on (a changed configuration); this one stops."""


@dataclass
class Work:
    """One run in the hands of one worker, with what its stages share."""

    run: Run
    worker: str
    began: float = field(default_factory=time.monotonic)
    outages: int = 0

    @cached_property
    def profile(self) -> StepProfile:
        return profiles.load(self.run.profile)

    @cached_property
    def config(self) -> ExperimentConfig:
        config = configuration.load(Experiment.objects.get(pk=self.run.experiment_id))
        if config is None:
            raise StageFailed("The stored configuration is no longer valid; open it and save it again.")
        return config

    @cached_property
    def diagnosis(self) -> Diagnosis:
        return diagnose(self.profile, self.config)

    def progress(self, text: str, fraction: float | None = None, actor: str = "coordinator") -> None:
        events.progress(self.run, clean(text), fraction=fraction, actor=actor)

    def wait_for_database(self) -> bool:
        """After a connection broke: True once the database answers again, and the stage can be done again.

        False where it stays away; raises Lost where another worker took over meanwhile.
        """
        self.outages += 1
        if self.outages > MAX_OUTAGES:
            return False
        logger.warning("run %s: database unavailable; waiting", self.run.pk, exc_info=True)
        deadline = time.monotonic() + OUTAGE_S
        while True:
            try:
                connection.close()
                if not runs.RUNS.beat(self.run.pk, self.worker):
                    raise OwnershipLost
                self.run.refresh_from_db()
                return True
            except DatabaseError:
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.5)

    def move(self, new: RunStatus, **facts: Any) -> None:
        """Leave the stage; raises Lost, which rolls the stage back, where the run is not this worker's any more."""
        took = round(time.monotonic() - self.began, 3)
        old = RunStatus(self.run.status)
        if not runs.move(self.run, old, new, actor="coordinator", worker=self.worker, took_s=took, **facts):
            raise OwnershipLost
        self.began = time.monotonic()


@dataclass
class Reporter:
    """Passes the reader's progress on as events: each new stage, and within one at most one a second.

    It is also where a worker that lost its run stops reading: what it raises ends the reader.
    """

    work: Work
    stage: str = ""
    at: float = 0.0

    def __call__(self, stage: str, fraction: float | None, text: str) -> None:
        now = time.monotonic()
        if stage == self.stage and now - self.at < 1.0:
            return
        self.stage, self.at = stage, now
        if not runs.RUNS.beat(self.work.run.pk, self.work.worker):
            raise OwnershipLost
        self.work.progress(text, fraction)


def advance(run_pk: int) -> None:
    """Do the work on a run until it is ready, has failed, or waits for a person.

    Returns at once where a live worker has the run or nothing is left to do.  Our own faults fail the run with a
    sentence and are raised again; where the database is away the run is left for the sweep to take over.
    """
    worker = workers.this_thread()
    run = runs.claim(run_pk, worker)
    if run is None:
        return
    work = Work(run, worker)
    with runs.RUNS.beating(run.pk, worker):
        try:
            while (stage := _STAGES.get(RunStatus(run.status))) is not None:
                try:
                    stage(work)
                except (OperationalError, InterfaceError):
                    if not work.wait_for_database():
                        raise
        except OwnershipLost:
            logger.info("run %s: owned by another worker, or its status changed", run.pk)
        except IngestError as error:
            runs.fail(run, clean(error.line), worker=worker, **clean_json(error.to_json()))
        except SoftTimeLimitExceeded:
            stage_name = RunStatus(run.status).label.lower()
            reason = f"The time limit was exceeded while {stage_name}; profile fewer steps and upload again."
            runs.fail(run, reason, worker=worker)
        except (StageFailed, profiles.NotIngested, ConfigError, space.NoSpace) as error:
            runs.fail(run, clean(str(error)), worker=worker)
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:
            if space.is_full(error):
                runs.fail(run, f"{space.sentence(error)} Your upload is kept; retry the analysis.", worker=worker)
                raise
            stage_name = RunStatus(run.status).label.lower()
            logger.exception("run %s failed while %s", run.pk, stage_name)
            reason = (
                f"Internal error while {stage_name} ({type(error).__name__}); your upload is kept. Retry; if it "
                f"recurs, report it with run number {run.pk}."
            )
            runs.fail(run, reason, worker=worker, error=clean(repr(error))[:2000])
            raise


def _start(work: Work) -> None:
    work.move(RunStatus.INGESTING)


def _ingest(work: Work) -> None:
    """Read the files; then on to the diagnosis, or wait for the configuration, or for a decision where the profile
    contradicts it."""
    trace = traces.path_of(work.run)
    value = _measured(work) if runs.is_without_profile(work.run) else _read(work, trace)
    path = profiles.write(work.run, value)
    told = facts_of(value)
    with transaction.atomic():
        events.lock(work.run.experiment_id)  # a configuration saved meanwhile is seen here, or sees the new status
        profiles.store(work.run.profile, value, path)
        traces.store(work.run.profile, trace)
        configured = Experiment.objects.filter(pk=work.run.experiment_id, config__isnull=False).exists()
        undecided = configuration.hold_against(work.run.experiment_id, told) if configured else ()
        Experiment.objects.filter(pk=work.run.experiment_id).update(step_time_s=value.step_time_s)
        if not configured and value.device.chip:
            Experiment.objects.filter(pk=work.run.experiment_id).update(chip=value.device.chip)
        waits = undecided or not configured
        facts = {"contradictions": [item.to_json() for item in undecided]} if undecided else {}
        work.move(RunStatus.CONFIGURING if waits else RunStatus.DIAGNOSING, **facts)


def _read(work: Work, trace: str) -> StepProfile:
    files = list(work.run.profile.files.filter(included=True))
    if not files:
        raise StageFailed("This profile has no files left; add one and the analysis restarts.")
    size = sum(file.size_bytes for file in files)
    space.require(storage.root(), what="The analysis")
    work.progress(f"Reading {counted(len(files), 'file')} ({plain(size, 'bytes')})")
    value = read_profile(
        [storage.absolute(file.path) for file in files],
        names=[file.name for file in files],
        exclude=work.run.profile.excluded,
        on_progress=Reporter(work),
        trace_to=storage.absolute(trace),
    )
    steps, ops = counted(len(value.steps), "step"), counted(len(value.ops), "op")
    work.progress(f"Read {steps} and {ops} of {counted(value.device.core_count, 'core')}", 1.0)
    return value


def _measured(work: Work) -> StepProfile:
    """What stands for the profile where there is none: the step time that the configuration says was measured."""
    value = start(work.config)
    if value.step_time_s is None:
        raise StageFailed("There is neither a profile nor a step time; add one of them to continue.")
    work.progress(f"No profile, only the measured step time of {plain(value.step_time_s, 's')}", 1.0)
    return value


def _diagnose(work: Work) -> None:
    what = f"Diagnosing {counted(len(work.profile.ops), 'op')}"
    work.progress(
        what if work.profile.basis == PROFILE else "Predicting the breakdown of the measured step", actor="analyzer"
    )
    diagnosis = work.diagnosis
    with transaction.atomic():
        diagnosis_services.store(work.run, diagnosis)
        work.move(RunStatus.PROPOSING)


def _propose(work: Work) -> None:
    work.progress("Pricing the legal meshes", actor="proposer")
    known = precedents.of_run(work.run.team_id, situation(work.config, work.diagnosis))
    learnt = confidence.of_team(work.run.team_id)
    plan: Plan = propose(work.profile, work.config, work.diagnosis, known.values, confidence=learnt)
    with transaction.atomic():
        plans.store(work.run, plan, precedents=known.keys)
        work.move(RunStatus.CHECKING)


def _check(work: Work) -> None:
    record = plans.newest_of_run(work.run)
    if record is None:
        raise StageFailed("The proposals of this run no longer exist; retry the analysis.")
    work.progress("Checking legality and memory of the proposals")
    verdict = checks.check(record)
    with transaction.atomic():
        checks.store(work.run, verdict)
        work.move(RunStatus.READY)
        consulting.on_ready(work.run)
        compiling.on_ready(record)
    measuring.on_ready(work.run)  # what a worker that dies here leaves, the sweep finds


_STAGES: dict[RunStatus, Callable[[Work], None]] = {
    RunStatus.UPLOADED: _start,
    RunStatus.INGESTING: _ingest,
    RunStatus.DIAGNOSING: _diagnose,
    RunStatus.PROPOSING: _propose,
    RunStatus.CHECKING: _check,
}
