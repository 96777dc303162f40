"""Read what a run reported, and once every run of a launch has ended, judge a proposal against its control arm.

Whatever is stored here is stored once: each step moves the run or the launch by compare-and-set.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from io import BytesIO
from statistics import median
from typing import Any, BinaryIO

from django.core.files.base import File
from django.db import transaction
from django.utils import timezone

from accounts import tokens
from accounts.models import User
from experiments.models import Experiment
from experiments.services import events, secrets, starting, storage, uploads
from formatting.text import clean
from launches.models import ArmRun, Launch, ReportFile
from launches.services import arms, bundles
from perfmodel.config import ExperimentConfig
from perfmodel.reading import parse_text
from proposals.control_arm import VERDICT, Arm, Verdict, judge
from proposals.control_arm import ArmRun as Timed
from proposals.failures import Failure, read_failure
from proposals.services import failing, measuring

logger = logging.getLogger(__name__)

S = ArmRun.Status
DONE = (S.REPORTED, S.FAILED, S.CANCELLED)


def collect(run: ArmRun) -> None:
    """Make an experiment of a run's profile, or read the cause in the log of one that failed; ends the run."""
    failure = run.failure
    files = list(run.files.filter(complete=True))
    if failure or not run.report.get("step_times_s"):
        cause = _cause(run, files)
        words = failure or "It reported no step times."
        _end(run, S.FAILED, reason=words, analysis=cause.to_json() if cause is not None else {})
        return
    compared = run.launch.proposal_id is not None  # the profile of a trial would be one more experiment of each
    profiles = [item for item in files if item.kind == ReportFile.Kind.PROFILE and compared]
    experiment = run.experiment or (_uploaded(run, profiles) if profiles else None)
    _end(run, S.REPORTED, experiment=experiment, reason="")


def fail(run: ArmRun, reason: str, log: bytes = b"") -> None:
    """End a run that reported nothing.  log: what its processes wrote, as far as the backend has it."""
    failure = read_failure([("", BytesIO(log))], arms.config_of(run.launch, run.arm)) if log.strip() else None
    _end(run, S.FAILED, reason=reason, analysis=failure.to_json() if failure is not None else {})


def close_if_done(pk: int) -> None:
    """End a launch whose runs have all ended: its tokens and files go.

    Of a proposal with the verdict, its Event and the measurement.
    """
    launch = Launch.objects.select_related("experiment", "proposal__plan__run__profile", "created_by").get(pk=pk)
    runs = list(launch.runs.all())
    if any(run.status not in DONE for run in runs):
        return
    verdict = verdict_of(launch, runs) if launch.proposal is not None else None
    with transaction.atomic():
        events.lock(launch.experiment_id)
        judged = VERDICT.write(verdict) if verdict is not None else None
        if not Launch.objects.filter(pk=pk, closed_at=None).update(closed_at=timezone.now(), verdict=judged):
            return
        tokens.revoke_scope(launch.scope)
        if verdict is not None:
            _say(launch, verdict)
        paths = list(ReportFile.objects.filter(run__launch=launch).values_list("path", flat=True))
        transaction.on_commit(lambda: storage.remove(paths))
    if verdict is not None:
        _measure(launch, runs, verdict)


def _say(launch: Launch, verdict: Verdict) -> None:
    proposal = arms.proposal_of(launch)
    data = {
        "verdict": launch.pk, "proposal": proposal.pk, "rank": proposal.rank, "title": proposal.title,
        "outcome": verdict.outcome, "sentence": verdict.sentence, "speedup": verdict.speedup,
        "low": verdict.low, "high": verdict.high,
    }  # fmt: skip
    events.append(launch.experiment_id, "launch", "coordinator", run=proposal.plan.run, data=data)


def verdict_of(launch: Launch, runs: list[ArmRun]) -> Verdict:
    """Of the runs that ended so far.  Runs that were cancelled count neither way."""
    predicted = arms.proposal_of(launch).value.predicted
    return judge(_arm(launch, runs, ArmRun.Arm.PROPOSAL), _arm(launch, runs, ArmRun.Arm.CONTROL), predicted.speedup)


def _arm(launch: Launch, runs: list[ArmRun], arm: str) -> Arm:
    timed = [
        Timed(
            tuple(run.report.get("step_times_s") or ()),
            run.report.get("warm_up"),
            (run.told.sentence or run.reason or "It failed.") if run.status == S.FAILED else "",
        )
        for run in runs
        if run.arm == arm and run.status in (S.REPORTED, S.FAILED)
    ]
    return Arm(ArmRun.Arm(arm).label, tuple(timed), _work(launch, arm))


def _work(launch: Launch, arm: str) -> float:
    """Tokens per step and chip, so that arms of different batch or size compare; 1 where batch or length is open."""
    work = {each: _tokens(arms.config_of(launch, each)) for each in (ArmRun.Arm.CONTROL, ArmRun.Arm.PROPOSAL)}
    own = work[ArmRun.Arm(arm)]
    return own if own and all(work.values()) else 1.0


def _tokens(config: ExperimentConfig | None) -> float | None:
    if config is None or not config.training.global_batch or not config.training.seq_len:
        return None
    return config.training.global_batch * config.training.seq_len / config.hardware.chips


def _end(run: ArmRun, status: str, **values: Any) -> None:
    if values.get("reason"):
        values["reason"] = secrets.redact(clean(values["reason"]))[:2000]
    if ArmRun.objects.filter(pk=run.pk).exclude(status__in=DONE).update(status=status, worker="", **values):
        close_if_done(run.launch_id)


def _cause(run: ArmRun, files: list[ReportFile]) -> Failure | None:
    """What the logs of all ranks say, for the configuration of this arm; None where there is no log."""
    with ExitStack() as opened:
        logs: list[tuple[str, BinaryIO]] = [
            (item.name, opened.enter_context(storage.absolute(item.path).open("rb")))
            for item in files
            if item.kind == ReportFile.Kind.LOG
        ]
        if not logs and run.failure:
            logs = [("", BytesIO(run.failure.encode()))]
        config = arms.config_of(run.launch, run.arm)
        return read_failure(logs[: failing.MOST_FILES], config) if logs else None


def _uploaded(run: ArmRun, profiles: list[ReportFile]) -> Experiment | None:
    """The experiment of a run's profile with its configuration; None, and why on the run, where it is refused."""
    text = bundles.of_arm(run.launch, run.arm)["config.yaml"]
    label = f"launch {run.launch_id}, {run.arm} arm"
    name = f"{run.launch.experiment.name[:150]}, {label}"
    with ExitStack() as opened:
        files: list[File[bytes]] = [
            File(opened.enter_context(storage.absolute(item.path).open("rb")), name=item.name) for item in profiles
        ]
        try:
            with transaction.atomic():
                made = uploads.receive(run.launch.team, run.launch.created_by, files, text, name, label=label)
                ArmRun.objects.filter(pk=run.pk, experiment=None).update(experiment=made)
        except uploads.UploadError as error:
            ArmRun.objects.filter(pk=run.pk).update(reason=f"Its profile was rejected: {error}"[:300])
            return None
    return made


def _measure(launch: Launch, runs: list[ArmRun], verdict: Verdict) -> None:
    """Store the verdict as the proposal's measurement; an internal error is logged and leaves the verdict."""
    proposal, user = arms.proposal_of(launch), launch.created_by
    arm = [run for run in runs if run.arm == ArmRun.Arm.PROPOSAL]
    if user is None or measuring.has_result(proposal):
        return
    try:
        if verdict.speedup is not None:
            experiment = next((run.experiment for run in arm if run.experiment is not None), None)
            experiment = experiment or _from_step_time(launch, arm, user)
            if experiment is not None:
                measuring.link(proposal, experiment, user, control=VERDICT.write(verdict))
        elif verdict.outcome == "reject":
            failed = next(run for run in arm if run.status == S.FAILED)
            kind = failed.told.failure or "other"
            measuring.report_failure(proposal, user, kind, failed.reason, analysis=failed.analysis)
    except measuring.MeasureError as error:
        Launch.objects.filter(pk=launch.pk).update(note=clean(str(error)))
    except Exception:
        logger.exception("launch %s could not be measured", launch.pk)
        Launch.objects.filter(pk=launch.pk).update(
            note="Internal error: the measurement was not stored; the verdict is unaffected."
        )


def _from_step_time(launch: Launch, arm: list[ArmRun], user: User) -> Experiment | None:
    """An experiment of the proposal's configuration with the median of what was timed, where no profile came."""
    times = [run.median_step_s for run in arm if run.status == S.REPORTED and run.median_step_s]
    if not times:
        return None
    data = parse_text(bundles.of_arm(launch, ArmRun.Arm.PROPOSAL)["config.yaml"])
    peaks = [run.peak_memory_bytes for run in arm if run.peak_memory_bytes]
    data["measured"] = {"step_time_s": median(times), **({"peak_memory_bytes": max(peaks)} if peaks else {})}
    name = f"{launch.experiment.name[:150]}, launch {launch.pk}"
    return starting.from_step_time(launch.team, user, data, name)[0]
