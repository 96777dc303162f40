"""Launch both arms of an approved proposal, or one configuration; follow their jobs, cancel them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts import tokens
from accounts.models import Role, User
from accounts.permissions import check, membership_in
from accounts.refusals import Refused
from experiments.models import Experiment
from experiments.services import events, secrets
from formatting import counted
from formatting.text import clean
from launches import backends
from launches.backends import BackendError, JobSpec, JobState
from launches.models import ArmRun, Launch
from launches.services import arms, bundles, choices, collecting, queue, remaining
from perfmodel.config import ExperimentConfig
from perfmodel.config_file import config_to_json
from proposals.models import Proposal
from proposals.services import measuring

logger = logging.getLogger(__name__)

S = ArmRun.Status
#: A job that ended well without a report is given so long, as its spool may still be sending; one that failed, so long.
REPORT_WITHIN, FAILED_REPORT_WITHIN = timedelta(minutes=15), timedelta(seconds=45)
#: Ranks that are late behind the first one.
RANKS_WITHIN = timedelta(minutes=15)
_RETRY_S = 30.0
#: Of a proposal, in the order in which they are submitted.
COMPARED = (ArmRun.Arm.PROPOSAL, ArmRun.Arm.CONTROL)


class LaunchError(Refused):
    """It cannot be launched so."""


def launch(proposal: Proposal, user: User, *, tool: str, repeats: int, steps: int, server: str) -> Launch:
    """A wave of `repeats` runs of each arm, queued.  server: the address the browser uses.

    Raises LaunchError, MeasureError where it awaits no result; Http404 and PermissionDenied below engineer.
    """
    check(user, proposal, Role.ENGINEER)
    measuring.must_await_result(proposal)
    made = _drafted(
        Launch(experiment=proposal.experiment, proposal=proposal, created_by=user),
        tool=tool, repeats=repeats, steps=steps, server=server,
    )  # fmt: skip
    try:
        for arm in COMPARED:
            bundles.of_arm(made, arm)
    except bundles.BundleError as error:
        raise LaunchError(str(error)) from error
    try:
        with transaction.atomic():
            events.lock(proposal.experiment_id)
            start(made, COMPARED)
            _say(made, user, {"launched": made.pk, "tool": tool, "backend": made.backend, "repeats": repeats})
    except IntegrityError as error:
        raise LaunchError("This proposal is already running; wait until it ends, or cancel it.") from error
    return made


def drafted(
    experiment: Experiment, user: User | None, config: ExperimentConfig, *, tool: str, steps: int, server: str
) -> Launch:
    """One run of a configuration as the team's settings have it now, not stored; `start` begins it.

    user: in whose name it reports.  Raises LaunchError where the team's settings do not allow it, BundleError where the
    tool cannot run the configuration.
    """
    made = _drafted(
        Launch(experiment=experiment, config=config_to_json(config), created_by=user),
        tool=tool, repeats=1, steps=steps, server=server,
    )  # fmt: skip
    if made.backend == backends.MANUAL:
        raise LaunchError("The team's launches are run by hand; choose a cluster under Settings, Launching.")
    bundles.of_arm(made, ArmRun.Arm.TRIAL)
    return made


def start(made: Launch, compared: Sequence[str] = (ArmRun.Arm.TRIAL,)) -> None:
    """Store a launch and hand its runs to the workers once the transaction has committed."""
    made.save()
    for repeat in range(1, made.repeats + 1):
        for arm in compared:
            run = ArmRun.objects.create(launch=made, arm=arm, repeat=repeat)
            if made.backend == backends.MANUAL:
                ArmRun.objects.filter(pk=run.pk).update(status=S.SUBMITTED, released=True)
            else:
                queue.RUNS.enqueue(run.pk)


def _drafted(made: Launch, *, tool: str, repeats: int, steps: int, server: str) -> Launch:
    """With the team's settings of now.  Raises LaunchError."""
    if tool not in choices.TOOLS:
        raise LaunchError(f"Choose the training program: {', '.join(choices.TOOLS.values())}.")
    if not (1 <= repeats <= choices.MOST_REPEATS and 1 <= steps <= choices.MOST_STEPS):
        raise LaunchError(f"Give 1 to {choices.MOST_REPEATS} repeats and 1 to {choices.MOST_STEPS:,} steps.")
    made.team_id = made.experiment.team_id
    chosen = choices.of_team(made.team_id)
    made.tool, made.repeats, made.steps = tool, repeats, steps
    made.backend, made.values = chosen.backend, chosen.values
    made.server = (chosen.values.get("server") or server).rstrip("/")
    try:
        made.values = choices.allowed_values(made.backend, made.team, chosen.values)
    except (choices.ChoiceError, BackendError) as error:
        raise LaunchError(str(error)) from error
    return made


def cancel(launch: Launch, user: User) -> None:
    """End unfinished runs, keep reported results, and decide by them.  Raises LaunchError where it has ended."""
    check(user, launch, Role.ENGINEER)
    if not launch.is_open:
        raise LaunchError("This launch has ended.")
    with transaction.atomic():
        events.lock(launch.experiment_id)
        _cancel(launch, f"Cancelled by {user.get_username()}.")
        if launch.proposal is not None:
            _say(launch, user, {"cancelled": launch.pk})
    collecting.close_if_done(launch.pk)


def withdraw(launch: Launch, reason: str) -> None:
    """End what has not ended of a launch whose result nobody waits for any more."""
    _cancel(launch, reason)
    collecting.close_if_done(launch.pk)


def _cancel(launch: Launch, reason: str) -> None:
    """The sweep over what is left ends the jobs at their backend; of one that it cannot end, the run says so."""
    runs = ArmRun.objects.filter(launch=launch, status__in=queue.REPORTING)
    for run in runs.exclude(job=""):
        runs.filter(pk=run.pk).update(status=S.CANCELLED, reason=f"{reason}{_runs_on(run)}")
    runs.update(status=S.CANCELLED, reason=reason)


def _runs_on(run: ArmRun) -> str:
    """The sentence, after a blank, that nobody here can end the job of a run; empty where its backend can."""
    backend = run.launch.backend
    try:
        if choices.backend(backend, run.launch.team).can_cancel:
            return ""
    except BackendError:  # it may be back when the sweep asks, and ends the job then
        return ""
    return f" {backend} has no cancel command: end job {run.job_shown} there if it still runs."


def new_token(launch: Launch, user: User) -> str:
    """A token that reports to this launch only, for whoever runs a bundle by hand; shown once."""
    check(user, launch, Role.ENGINEER)
    if not launch.is_open:
        raise LaunchError("This launch has ended and accepts no more reports.")
    return _token(launch, user)


def advance(pk: int) -> None:
    """What a worker does with a run: submit it, or read what it reported.  Returns at once where nothing is to do."""
    about = "launch__experiment", "launch__proposal", "launch__created_by", "launch__team"
    run = queue.RUNS.take(pk, collecting.fail, *about)
    if run is None:
        return
    with queue.RUNS.beating(pk, run.worker):
        if run.status == S.QUEUED:
            _submit(run)
        else:
            collecting.collect(run)


def follow() -> None:
    """Ask every backend how its jobs are doing; whatever is left of runs that ended is removed there."""
    open_ = ArmRun.objects.filter(status__in=[S.SUBMITTED, S.RUNNING]) | ArmRun.objects.filter(released=False)
    submitted = open_.exclude(status__in=[S.QUEUED, S.COLLECTING]).exclude(job="", released=False)
    for run in submitted.select_related("launch__experiment", "launch__proposal", "launch__team").order_by(
        "launch_id", "pk"
    ):
        try:
            _follow(run)
        except BackendError as error:
            if run.status in (S.SUBMITTED, S.RUNNING):
                ArmRun.objects.filter(pk=run.pk, status=run.status).update(reason=_words(str(error)))
            else:
                remaining.not_cancelled(run, _words(str(error)))
        except Exception:
            logger.exception("run %s of launch %s could not be followed", run.pk, run.launch_id)


def _submit(run: ArmRun) -> None:
    launch = run.launch
    try:
        job = choices.backend(launch.backend, launch.team).submit(_spec(run))
    except (BackendError, bundles.BundleError, LaunchError) as error:
        if isinstance(error, BackendError) and error.passing and run.attempts < queue.RUNS.most_attempts:
            queue.RUNS.row_of_worker(run.pk, run.worker).update(worker="", reason=_words(str(error)))
            queue.RUNS.send(run.pk, after_s=_RETRY_S)
            return
        collecting.fail(run, _words(str(error)))
        return
    values = {"job": job[:200], "submitted_at": timezone.now()}
    if not queue.RUNS.row_of_worker(run.pk, run.worker).update(status=S.SUBMITTED, reason="", **values):
        # It reported, or was cancelled, while it was submitted: the sweep over what is left ends it.
        if not ArmRun.objects.filter(pk=run.pk).update(**values):
            choices.backend(launch.backend, launch.team).cancel(job)  # its experiment was deleted meanwhile
            return
        run.refresh_from_db()
        if run.status == S.CANCELLED:
            ArmRun.objects.filter(pk=run.pk).update(reason=f"{run.reason}{_runs_on(run)}")


def _spec(run: ArmRun) -> JobSpec:
    """Raises BundleError, and LaunchError where who launched it may no longer."""
    launch = run.launch
    files = bundles.of_arm(launch, run.arm)
    config = arms.config_of(launch, run.arm)
    assert config is not None  # of_arm says so in a sentence
    hosts, chips = bundles.hosts(config) if launch.tool != "trial" else (1, 1)
    values = choices.read(launch.values)
    choices.enabled().check_names(launch.backend, launch.team.name, launch.values)
    return JobSpec(
        name=run.name, files=files, environment=bundles.environment(launch, run),
        secret={"ASAP_TOKEN": _token(launch, launch.created_by)}, hosts=hosts, chips_per_host=chips,
        time_limit_min=values.time_limit_min, values=values.model_dump(),
    )  # fmt: skip


def _token(launch: Launch, user: User | None) -> str:
    membership = membership_in(user, launch.team_id) if user is not None else None
    if membership is None or not membership.may(Role.ENGINEER):
        raise LaunchError(
            "The user who launched it is no longer an engineer of this team; cancel it and launch it yourself."
        )
    label = f"reports to launch {launch.pk} only"
    return tokens.create_scoped(membership, launch.scope, label, _token_lasts(launch))[1]


def _token_lasts(launch: Launch) -> timedelta:
    return timedelta(days=choices.read(launch.values).token_days)


def _follow(run: ArmRun) -> None:
    launch, now = run.launch, timezone.now()
    if run.status not in (S.SUBMITTED, S.RUNNING):
        if remaining.is_due(run):
            _release(run)
        return
    if run.reported_at is not None and now - run.reported_at > RANKS_WITHIN:
        queue.begin_collecting(run.pk)
        return
    if launch.backend == backends.MANUAL:
        return
    backend = choices.backend(launch.backend, launch.team)
    job_status = backend.status(run.job)
    unchanged = ArmRun.objects.filter(pk=run.pk, status=run.status)
    if job_status.state == JobState.RUNNING and run.status == S.SUBMITTED:
        unchanged.update(status=S.RUNNING, reason="", began_at=now)
    elif job_status.silent and run.submitted_at is not None and now - run.submitted_at > _token_lasts(launch):
        collecting.fail(run, _silent(run))
    elif not job_status.ended:
        unchanged.update(reason=_words(job_status.reason))
    elif run.ended_at is None:
        unchanged.update(ended_at=now)
    elif now - run.ended_at > (REPORT_WITHIN if job_status.state == JobState.SUCCEEDED else FAILED_REPORT_WITHIN):
        _ended(run, job_status.reason or "The job ended without a report.", backend.log(run.job))


def _release(run: ArmRun) -> None:
    """End the job of a run that has ended here, and remove what it left.  Raises BackendError where it may run on."""
    backend = choices.backend(run.launch.backend, run.launch.team)
    try:
        backend.cancel(run.job)
    except BackendError:
        if not backend.status(run.job).ended:  # a command may refuse to cancel what is over
            raise
    ArmRun.objects.filter(pk=run.pk).update(released=True)


def _silent(run: ArmRun) -> str:
    """Why a run has failed that can no longer report, because its token has expired."""
    days, backend = _token_lasts(run.launch).days, run.launch.backend
    said = f"No report arrived while its token was valid ({counted(days, 'day')}), and {backend} has no status command."
    return f"{said}{_runs_on(run) or f' Its job {run.job_shown} is being cancelled.'}"


def _words(of_backend: str) -> str:
    """A sentence of a backend, which may quote what its programs printed."""
    return secrets.redact(clean(of_backend))[:300]


def _ended(run: ArmRun, reason: str, log: bytes) -> None:
    """The job is over and nothing was reported: what its processes wrote is read in place of a report."""
    if run.reported_at is None:
        collecting.fail(run, _words(reason), log)
    else:
        queue.begin_collecting(run.pk)


def _say(launch: Launch, user: User, data: dict[str, Any]) -> None:
    proposal = arms.proposal_of(launch)
    about = {"proposal": proposal.pk, "rank": proposal.rank, "title": proposal.title}
    events.append(launch.experiment_id, "launch", "user", user=user, data={**data, **about})
