"""What was approved, for the API; what was measured of it is in the optimization database (`history`)."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from accounts.models import Team
from experiments.services.text import clean
from proposals.models import Proposal

#: What the history may be narrowed to: a column of the experiment, by its name in the address.
FACETS = {"chip": "experiment__chip", "model": "experiment__model_name", "bottleneck": "experiment__bottleneck"}


def approved(
    team: Team | list[int], q: str = "", *, chip: str = "", model: str = "", bottleneck: str = ""
) -> QuerySet[Proposal]:
    """The team's approved proposals, newest decision first, with experiment, review and author loaded.

    q: found in the proposal's title, the experiment's name, or the review's comment, case-insensitive.
    """
    teams = [team.pk] if isinstance(team, Team) else team
    found = (
        Proposal.objects.filter(team_id__in=teams, status=Proposal.Status.APPROVED)
        .select_related("experiment", "plan", "review", "review__author")
        .order_by("-review__created_at", "-pk")
    )
    for column, value in (
        (FACETS["chip"], chip),
        (FACETS["model"], model),
        (FACETS["bottleneck"], bottleneck),
    ):
        if value:
            found = found.filter(**{column: clean(value)})
    if q.strip():
        text = clean(q.strip())
        found = found.filter(
            Q(title__icontains=text) | Q(experiment__name__icontains=text) | Q(review__comment__icontains=text)
        )
    return found
