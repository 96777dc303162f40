"""Begin a campaign, pause it, go on, cancel it, and try a failed trial again."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from accounts.models import Role, User
from accounts.permissions import check
from accounts.refusals import Refused
from agent.provider.settings import SettingsError
from campaigns.engine.space import key_of, settings_of
from campaigns.models import Campaign, CampaignStatus, Trial, TrialStatus
from campaigns.services import launched, planning, spaces
from campaigns.services.queues import CAMPAIGNS, TRIALS
from diagnosis import services as diagnosis_services
from experiments.models import Experiment
from experiments.services import configuration, events
from jobs.jobs import released
from launches.models import ArmRun
from launches.services.bundles import BundleError
from launches.services.launching import LaunchError
from perfmodel.config import ConfigError, ExperimentConfig, missing_facts
from perfmodel.config_file import config_to_json
from proposals import facts
from proposals.agents import endpoint
from proposals.constraints import Constraints
from proposals.services import compiling

#: Campaigns of an experiment that run or wait at the same time.
MOST_OPEN = 5


class CampaignError(Refused):
    """What is asked of a campaign cannot be done.  field: the one at fault, of the request or (dotted) of the
    configuration; empty where none is."""

    def __init__(self, text: str, field: str = "") -> None:
        super().__init__(text)
        self.field = field


def model_missing() -> str:
    """What to set before a language model can take part, in a sentence; empty where one can."""
    try:
        return endpoint.settings().missing() or ""
    except SettingsError as error:
        return str(error)


def begin(experiment: Experiment, user: User, draft: Campaign) -> Campaign:
    """Begin a campaign as drafted: an unsaved row whose fields its form or serializer has validated.

    Raises CampaignError; Http404 and PermissionDenied below engineer.
    """
    check(user, experiment, Role.ENGINEER)
    for name in ("most_tokens", "tool", "steps"):  # left empty in a form or a request
        setattr(draft, name, getattr(draft, name) or getattr(Campaign(), name))
    config, constraints = _checked(experiment, draft)
    draft.experiment, draft.team_id, draft.created_by = experiment, experiment.team_id, user
    draft.config, draft.constraints = config_to_json(config), constraints.to_json()
    if draft.backend == Campaign.Backend.CLUSTER:
        _launchable(draft, config)
    else:
        draft.tool, draft.steps, draft.server = "", None, ""
    if draft.backend == Campaign.Backend.COMPILED:
        _compilable(config, draft.parallel)
    with transaction.atomic():
        events.lock(experiment.pk)
        open_ones = experiment.campaigns.filter(status__in=(CampaignStatus.RUNNING, CampaignStatus.PAUSED))
        if open_ones.count() >= MOST_OPEN:
            raise CampaignError(
                f"{MOST_OPEN} campaigns of this experiment are open; wait for one to end, or cancel one."
            )
        draft.save()
        try:
            field = spaces.space_of(draft)
        except ConfigError as error:
            raise CampaignError(str(error), error.field) from error
        draft.considered, draft.held_back = field.considered, dict(field.held_back)
        draft.save(update_fields=["considered", "held_back"])
        _create_baseline_trial(draft, field.config)
        events.append(experiment, "campaign", "user", user=user, data={"campaign": draft.pk, "backend": draft.backend})
        CAMPAIGNS.enqueue(draft.pk)
    return draft


def _launchable(draft: Campaign, config: ExperimentConfig) -> None:
    """Raises CampaignError where its first trial could not be launched as the team's settings are."""
    try:
        launched.drafted(draft, config)
    except (LaunchError, BundleError) as error:
        raise CampaignError(str(error)) from error


def _compilable(config: ExperimentConfig, parallel: int) -> None:
    """Raises CampaignError where the compiler is not here, or knows no such topology."""
    if (reason := compiling.missing(config)) is not None:
        raise CampaignError(reason)
    if parallel > compiling.MOST_AT_ONCE:
        raise CampaignError(f"At most {compiling.MOST_AT_ONCE} trials are compiled at a time.")


def _create_baseline_trial(campaign: Campaign, config: ExperimentConfig) -> None:
    """The current configuration, measured like every trial."""
    trial = Trial.objects.create(
        campaign=campaign, number=0, key=key_of(config), mesh=config.mesh.to_json(), training=settings_of(config),
        why="The current configuration, tried in the same way as the others.",
    )  # fmt: skip
    TRIALS.enqueue(trial.pk)


def _checked(experiment: Experiment, draft: Campaign) -> tuple[ExperimentConfig, Constraints]:
    config = configuration.load(experiment)
    if config is None:
        raise CampaignError("The experiment has no valid configuration; open Configuration and save it.")
    if missing := missing_facts(config):
        raise CampaignError(
            f"In the configuration, {facts.not_known(missing)}; a campaign cannot price candidates without that."
        )
    diagnosed = diagnosis_services.newest(experiment)
    if diagnosed is not None and diagnosed.value.not_modelled:
        raise CampaignError(diagnosed.value.not_modelled)
    if draft.use_language_model and (lacking := model_missing()):
        raise CampaignError(lacking)
    if draft.most_dollars is not None and draft.dollars_per_chip_hour is None:
        raise CampaignError("A budget in dollars needs the price of a chip per hour.", "dollars_per_chip_hour")
    try:
        constraints = Constraints.from_json(draft.constraints or {})
        constraints.check(config)
    except ConfigError as error:
        raise CampaignError(str(error).removeprefix("constraints.")) from error
    return config, constraints


#: Runs whose job nobody has seen to run.
NOT_BEGUN = (ArmRun.Status.QUEUED, ArmRun.Status.SUBMITTED)


@dataclass(frozen=True)
class Change:
    """A transition of a campaign from a status of `old` to `new`; its trials in a status of `trials` get `trial`."""

    old: tuple[str, ...]
    new: CampaignStatus
    trials: tuple[str, ...]
    trial: TrialStatus


#: Pausing lets trials that run go on to their end and withdraws what waits in the queue of a cluster; cancelling ends
#: trials that run, on a cluster within seconds.
CHANGES = {
    "pause": Change((CampaignStatus.RUNNING,), CampaignStatus.PAUSED, (TrialStatus.WAITING,), TrialStatus.PAUSED),
    "resume": Change((CampaignStatus.PAUSED,), CampaignStatus.RUNNING, (TrialStatus.PAUSED,), TrialStatus.WAITING),
    "cancel": Change(
        (CampaignStatus.RUNNING, CampaignStatus.PAUSED), CampaignStatus.CANCELLED,
        (TrialStatus.WAITING, TrialStatus.PAUSED, TrialStatus.RUNNING, TrialStatus.LAUNCHED), TrialStatus.CANCELLED,
    ),
}  # fmt: skip


def change(campaign: Campaign, user: User, verb: str) -> None:
    """Pause, resume or cancel: `verb` is one of CHANGES.  Raises CampaignError where its status does not allow it."""
    check(user, campaign, Role.ENGINEER)
    if (to := CHANGES.get(verb)) is None:
        raise CampaignError("A campaign can be paused, resumed or cancelled.")
    with transaction.atomic():
        events.lock(campaign.experiment_id)
        ended = {"finished_at": timezone.now(), "reason": "Cancelled."} if verb == "cancel" else {}
        if not Campaign.objects.filter(pk=campaign.pk, status__in=to.old).update(
            **({"status": to.new, "reason": ""} | ended)
        ):
            campaign.refresh_from_db()
            raise CampaignError(f"The campaign is {campaign.get_status_display().lower()}; there is nothing to {verb}.")
        rows = Trial.objects.filter(campaign=campaign, status__in=to.trials)
        keys = list(rows.values_list("pk", flat=True)) if verb == "resume" else []
        if verb == "cancel":
            _end_runs(campaign)
        rows.update(status=to.trial)
        if verb == "pause":
            launched_trials = Trial.objects.filter(campaign=campaign, status=TrialStatus.LAUNCHED)
            launched_trials.filter(launch__runs__status__in=NOT_BEGUN).update(status=to.trial)
        for pk in keys:
            TRIALS.enqueue(pk)
        data = {"campaign": campaign.pk, "change": verb}
        events.append(campaign.experiment_id, "campaign", "user", user=user, data=data)
        if verb == "resume":
            CAMPAIGNS.enqueue(campaign.pk)


def _end_runs(campaign: Campaign) -> None:
    """Time that runs took until now counts as spent, also of cancelled trials."""
    now = timezone.now()
    running = Trial.objects.filter(campaign=campaign, status__in=(TrialStatus.RUNNING, TrialStatus.LAUNCHED))
    for trial in running.select_related("launch").prefetch_related("launch__runs"):
        running.filter(pk=trial.pk).update(ran_s=F("ran_s") + trial.running_s(now), finished_at=now)


def retry(trial: Trial, user: User) -> None:
    """Try a failed trial again; a campaign that has ended resumes with it."""
    check(user, trial.campaign, Role.ENGINEER)
    with transaction.atomic():
        events.lock(trial.campaign.experiment_id)
        # As it is now: it may have been paused or resumed since somebody looked.
        campaign = Campaign.objects.select_for_update().get(pk=trial.campaign_id)
        again = {"status": TrialStatus.WAITING, "failure": None, **released()}
        if not Trial.objects.filter(pk=trial.pk, status=TrialStatus.FAILED).update(**again):
            raise CampaignError("Only a trial that failed can be tried again.")
        ended = (CampaignStatus.DONE, CampaignStatus.CANCELLED, CampaignStatus.FAILED)
        on = {"status": CampaignStatus.RUNNING, "reason": "", "finished_at": None}
        Campaign.objects.filter(pk=campaign.pk, status__in=ended).update(**on)
        if campaign.status == CampaignStatus.PAUSED:
            Trial.objects.filter(pk=trial.pk).update(status=TrialStatus.PAUSED)
        else:
            TRIALS.enqueue(trial.pk)
        data = {"campaign": campaign.pk, "change": "retry", "trial": trial.number}
        events.append(campaign.experiment_id, "campaign", "user", user=user, data=data)


def plan(pk: int) -> None:
    """Plan a running campaign; where its configuration can no longer be read it ends with a sentence."""
    try:
        planning.plan(pk)
    except ConfigError as error:
        Campaign.objects.filter(pk=pk, status=CampaignStatus.RUNNING).update(
            status=CampaignStatus.FAILED, reason=str(error), finished_at=timezone.now()
        )
