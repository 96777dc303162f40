"""Approved proposals that wait for their run, and the experiments that look like one.  Nothing is stored here."""

from __future__ import annotations

from django.db.models import Exists, Q, QuerySet

from accounts.models import Team
from experiments.models import Experiment
from experiments.services import configuration
from perfmodel.config import ConfigError, ExperimentConfig
from proposals.candidate import candidate
from proposals.constraints import mesh_key
from proposals.matching import Match, match
from proposals.models import Measurement, Proposal

#: Experiments that are looked through for the run of a proposal, and proposals for that of an experiment.
MOST_LOOKED_AT = 200
#: What is loaded with a proposal.
WITH = ("experiment", "plan__run__profile", "measurement__experiment")


def proposals_of(teams: Team | list[int]) -> QuerySet[Proposal]:
    """The approved proposals that something can be measured of: keeping what runs launches nothing."""
    ids = [teams.pk] if isinstance(teams, Team) else teams
    found = Proposal.objects.filter(team_id__in=ids, status=Proposal.Status.APPROVED).exclude(kind="keep")
    return found.select_related(*WITH, "review__author")


def waiting(teams: Team | list[int]) -> QuerySet[Proposal]:
    """Approved proposals without a result, the longest waiting first."""
    done = [Measurement.Status.MEASURED, Measurement.Status.FAILED]
    return proposals_of(teams).exclude(measurement__status__in=done).order_by("review__created_at", "pk")


def before_config(proposal: Proposal) -> ExperimentConfig | None:
    """What ran when the proposal was made, and what it was priced with; None where that passes its checks no more."""
    stored = proposal.plan.priced_with
    return configuration.check(stored).config if stored else None


def proposed(proposal: Proposal) -> ExperimentConfig | None:
    """The configuration that the proposal would run; None where that of its experiment is gone or no longer fits."""
    config, value = before_config(proposal), proposal.value
    try:
        return config and candidate(config, value.mesh, value.changes)
    except ConfigError:
        return None


def compared_with(proposal: Proposal, experiment: Experiment) -> Match | None:
    """How an experiment's configuration stands to the proposal's; None where one of them has none."""
    wanted, ran = proposed(proposal), configuration.load(experiment)
    if wanted is None or ran is None:
        return None
    return match(wanted, ran, proposal.value.changes.keys())


def offers(experiment: Experiment) -> list[Proposal]:
    """Approved, unmeasured proposals of the team that this experiment looks like a run of; nothing is stored."""
    if experiment.config is None:
        return []
    measured = Exists(Measurement.objects.filter(experiment=experiment))
    open_ = waiting([experiment.team_id]).filter(
        _unlinked(), experiment__chip=experiment.chip, mesh_key=mesh_key(experiment.mesh or {})
    )
    open_ = open_.exclude(experiment=experiment).exclude(measured)
    # A proposal with its plan and profile is long, and most experiments are the run of none.
    alike = list(open_.values_list("pk", flat=True)[:MOST_LOOKED_AT])
    found = [item for item in open_.filter(pk__in=alike) if _is_run(item, experiment)] if alike else []
    no = set(dismissed(experiment)) if found else set()
    return [item for item in found if item.pk not in no]


def candidates(proposal: Proposal) -> list[Experiment]:
    """Experiments of the team that look like a run of this proposal, newest first; nothing is stored."""
    wanted = proposed(proposal)
    if wanted is None:
        return []
    ran = Experiment.objects.filter(team_id=proposal.team_id, chip=wanted.hardware.chip, chips=wanted.hardware.chips)
    ran = ran.filter(config__isnull=False, measures=None).exclude(pk=proposal.experiment_id)
    # Few meshes are the same: only those experiments are read whole.
    meshes = ran.values_list("pk", "mesh")[:MOST_LOOKED_AT]
    alike = [pk for pk, mesh in meshes if mesh_key(mesh or {}) == proposal.mesh_key]
    found = [item for item in ran.filter(pk__in=alike) if _is_run(proposal, item)]
    return [item for item in found if proposal.pk not in dismissed(item)]


def _is_run(proposal: Proposal, experiment: Experiment) -> bool:
    fit = compared_with(proposal, experiment)
    return fit is not None and fit.same


def dismissed(experiment: Experiment) -> list[int]:
    """Proposals that a person said this experiment is no run of."""
    said = experiment.events.filter(kind="measurement", data__dismissed__isnull=False)
    return [event.data["dismissed"] for event in said]


def _unlinked() -> Q:
    return Q(measurement=None) | Q(measurement__experiment=None) | Q(measurement__status=Measurement.Status.REFUSED)
