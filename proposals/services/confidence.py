"""How far this team's predictions may be trusted: the shipped fit, moved by what the team itself has measured."""

from __future__ import annotations

from math import log

from perfmodel.confidence import Confidence, OwnPair, shipped, updated
from proposals.models import Measurement

#: Own results that count, the newest.
MOST = 500


def own_pairs(team_id: int) -> list[OwnPair]:
    """Predicted and measured log gain per token of the team's measured proposals; failures have none."""
    measured = Measurement.objects.filter(
        team_id=team_id,
        status=Measurement.Status.MEASURED,
        speedup__gt=0,
        predicted_log_gain__isnull=False,
        predicted_sigma__isnull=False,
    )
    return [
        OwnPair(
            gain=item.predicted_log_gain or 0.0,
            sigma=item.predicted_sigma or 0.0,
            measured=log(item.speedup or 1.0),
        )
        for item in measured.order_by("-measured_at")[:MOST]
    ]


def of_team(team_id: int) -> Confidence:
    """The fit that the team's next proposals are ranked with."""
    return updated(shipped(), own_pairs(team_id))
