"""What the pages of one experiment share: the experiment with its newest run, found with permission."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest
from django.urls import reverse

from accounts.models import Membership, Role
from accounts.permissions import check
from experiments.models import Experiment, ReviewState, Run


@dataclass(frozen=True)
class ExperimentPage:
    """An experiment as one member sees it.  run: the newest, None only between two statements of an upload."""

    experiment: Experiment
    membership: Membership
    run: Run | None

    def context(self, tab: str, **more: Any) -> dict[str, Any]:
        """The template context of a page: what the head and the tabs show, and the page's own."""
        experiment = self.experiment
        made = list(experiment.proposals.order_by("-plan_id", "rank").values_list("plan_id", "status", "kind"))
        newest = [status for plan, status, _ in made if plan == made[0][0]]
        approved = any(status == "approved" for _, status, _ in made)
        return {
            "experiment": experiment,
            "membership": self.membership,
            "run": self.run,
            "tab": tab,
            "here": "experiments",
            "proposal_count": len(newest),
            "trial_count": sum(plan == made[0][0] and kind != "keep" for plan, _, kind in made),
            "event_count": experiment.events.count(),
            "approved": approved,
            "open_review": experiment.review == ReviewState.OPEN and not experiment.sample,
            "evidence_base": reverse("experiment", args=[experiment.pk]) + "evidence/",
            **more,
        }


def experiment_page(request: HttpRequest, pk: int, role: Role | str = Role.VIEWER) -> ExperimentPage:
    """The experiment for a member with at least `role` in its team; raises Http404 or PermissionDenied."""
    experiment = Experiment.objects.select_related("created_by").filter(pk=pk).first()
    if experiment is None:
        raise Http404
    membership = check(request.user, experiment, role)
    run = experiment.runs.select_related("profile").order_by("-pk").first()
    return ExperimentPage(experiment, membership, run)
