"""Approved proposals that wait for their run, and the experiments that look like one.  Nothing is stored here."""

from __future__ import annotations

from itertools import islice

from django.db.models import Exists, Q, QuerySet

from accounts.models import Team
from experiments.models import Experiment
from experiments.services import configuration
from perfmodel.config import ConfigError, ExperimentConfig
from proposals.candidate import candidate
from proposals.matching import Match, match
from proposals.models import Measurement, Proposal

#: Experiments whose mesh is looked at for the run of a proposal; of the same mesh, how many are compared setting by
#: setting; and how many are offered.
MOST_LOOKED_AT, MOST_COMPARED, MOST_OFFERED = 200, 40, 3
#: What is loaded with a proposal.
WITH = ("experiment", "plan__run__profile", "measurement__experiment")


def proposals_of(teams: Team | list[int]) -> QuerySet[Proposal]:
    """Approved proposals that can be measured: keeping the current configuration launches nothing."""
    ids = [teams.pk] if isinstance(teams, Team) else teams
    approved = Proposal.objects.filter(team_id__in=ids, status=Proposal.Status.APPROVED).exclude(kind="keep")
    return approved.select_related(*WITH, "review__author")


def waiting(teams: Team | list[int]) -> QuerySet[Proposal]:
    """Approved proposals without a result, the longest waiting first."""
    done = [Measurement.Status.MEASURED, Measurement.Status.FAILED]
    return proposals_of(teams).exclude(measurement__status__in=done).order_by("review__created_at", "pk")


def before_config(proposal: Proposal) -> ExperimentConfig | None:
    """The configuration that the proposal was priced with; None if it no longer passes its checks."""
    stored = proposal.plan.priced_with
    return configuration.check(stored).config if stored else None


def proposed(proposal: Proposal) -> ExperimentConfig | None:
    """The configuration that the proposal would run; None where that of its experiment is gone or no longer fits."""
    config, value = before_config(proposal), proposal.value
    try:
        return config and candidate(config, value)
    except ConfigError:
        return None


def compared_with(proposal: Proposal, experiment: Experiment) -> Match | None:
    """How an experiment's configuration stands to the proposal's; None where one of them has none."""
    return _compared(proposal, configuration.load(experiment))


def offers(experiment: Experiment) -> list[Proposal]:
    """Approved, unmeasured proposals of the team that an experiment without a measurement looks like a run of.

    The longest waiting first, at most MOST_OFFERED.  Nothing is stored.
    """
    if experiment.config is None:
        return []
    measured = Exists(Measurement.objects.filter(experiment=experiment))
    open_ = waiting([experiment.team_id]).exclude(measured).exclude(experiment=experiment)
    open_ = open_.filter(_unlinked(), experiment__chip=experiment.chip, mesh_key=experiment.placement)
    # What was proposed after it was uploaded is no reason for it.
    open_ = open_.filter(created_at__lte=experiment.created_at)
    # A proposal with its plan and profile is long, and most experiments are the run of none.
    alike = list(open_.values_list("pk", flat=True)[:MOST_COMPARED])
    if not alike:
        return []
    ran, no = configuration.load(experiment), set(dismissed(experiment))
    alike_runs = (item for item in open_.filter(pk__in=alike) if item.pk not in no and _is_run(item, ran))
    return list(islice(alike_runs, MOST_OFFERED))


def candidates(proposal: Proposal) -> list[Experiment]:
    """Experiments of the team that look like a run of this proposal, newest first, at most MOST_OFFERED.

    Nothing is stored.
    """
    wanted = proposed(proposal)
    if wanted is None:
        return []
    ran = Experiment.objects.filter(team_id=proposal.team_id, chip=wanted.hardware.chip, chips=wanted.hardware.chips)
    ran = ran.filter(config__isnull=False, measures=None, created_at__gte=proposal.created_at)
    ran = ran.exclude(pk=proposal.experiment_id)
    # Few meshes are the same: only those experiments are read whole.
    meshes = ran.only("pk", "mesh", "config")[:MOST_LOOKED_AT]
    alike = [item.pk for item in meshes if item.placement == proposal.mesh_key][:MOST_COMPARED]
    alike_runs = (item for item in ran.filter(pk__in=alike) if _is_run(proposal, configuration.load(item)))
    return list(islice((item for item in alike_runs if proposal.pk not in dismissed(item)), MOST_OFFERED))


def _compared(proposal: Proposal, ran: ExperimentConfig | None) -> Match | None:
    wanted = proposed(proposal)
    if wanted is None or ran is None:
        return None
    return match(wanted, ran, proposal.value.changes.keys())


def _is_run(proposal: Proposal, ran: ExperimentConfig | None) -> bool:
    fit = _compared(proposal, ran)
    return fit is not None and fit.is_same_configuration


def dismissed(experiment: Experiment) -> list[int]:
    """Proposals that a person said this experiment is not a run of."""
    said = experiment.events.filter(kind="measurement", data__dismissed__isnull=False)
    return [event.data["dismissed"] for event in said]


def _unlinked() -> Q:
    return Q(measurement=None) | Q(measurement__experiment=None) | Q(measurement__status=Measurement.Status.REFUSED)
