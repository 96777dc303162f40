"""Approved proposals that wait for their run, and the experiments that look like one.  Nothing is stored here."""

from __future__ import annotations

from itertools import islice

from django.db.models import QuerySet

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


def waiting(teams: Team | list[int]) -> QuerySet[Proposal]:
    """Approved proposals without a result, the longest waiting first; to keep the configuration launches nothing."""
    ids = [teams.pk] if isinstance(teams, Team) else teams
    approved = Proposal.objects.filter(team_id__in=ids, status=Proposal.Status.APPROVED).exclude(kind="keep")
    due = approved.exclude(measurement__status__in=[Measurement.Status.MEASURED, Measurement.Status.FAILED])
    return due.select_related(*WITH, "review__author").order_by("review__created_at", "pk")


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
    wanted, ran = proposed(proposal), configuration.load(experiment)
    return match(wanted, ran, proposal.value.changes.keys()) if wanted is not None and ran is not None else None


def candidates(proposal: Proposal) -> list[Experiment]:
    """Experiments of the team that look like a run of this proposal, newest first, at most MOST_OFFERED."""
    wanted = proposed(proposal)
    if wanted is None:
        return []
    ran = Experiment.objects.filter(team_id=proposal.team_id, chip=wanted.hardware.chip, chips=wanted.hardware.chips)
    ran = ran.filter(config__isnull=False, measures=None, created_at__gte=proposal.created_at)
    ran = ran.exclude(pk=proposal.experiment_id)
    # Under earlier versions people could say that an experiment is no run of it.
    ran = ran.exclude(events__kind="measurement", events__data__dismissed=proposal.pk)
    # Few meshes are the same: only those experiments are read whole.
    meshes = ran.only("pk", "mesh", "config")[:MOST_LOOKED_AT]
    alike = [item.pk for item in meshes if item.placement == proposal.mesh_key][:MOST_COMPARED]
    fits = ((item, compared_with(proposal, item)) for item in ran.filter(pk__in=alike))
    return list(islice((item for item, fit in fits if fit and fit.is_same_configuration), MOST_OFFERED))
