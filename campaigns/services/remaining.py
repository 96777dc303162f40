"""Trials on the cluster that would keep running unmonitored if their experiment were deleted."""

from __future__ import annotations

from typing import Any

from django.db.models import Q

from campaigns.models import Campaign, CampaignStatus, Trial, TrialStatus
from experiments.models import Experiment
from experiments.services.deleting import DeletionBlocker, asked
from launches.services import remaining


def holds(experiment: Experiment, **_: Any) -> list[DeletionBlocker]:
    """Campaigns on the cluster that have not ended, and cancelled trials whose jobs have not.

    Campaigns of other backends stop by themselves once their row is gone.
    """
    launched = Trial.objects.filter(status=TrialStatus.LAUNCHED, campaign__experiment=experiment)
    may_launch = Q(status=CampaignStatus.RUNNING, backend=Campaign.Backend.CLUSTER)
    going = Campaign.objects.filter(may_launch | Q(pk__in=launched.values("campaign")), experiment=experiment)
    found = [_open(campaign) for campaign in going.order_by("pk")]
    left = remaining.runs(experiment).filter(launch__proposal=None)
    return found + [remaining.ending(run) for run in left.exclude(launch__trial__status=TrialStatus.LAUNCHED)]


def _open(campaign: Campaign) -> DeletionBlocker:
    if not campaign.open:
        return DeletionBlocker(f"A trial of campaign {campaign.pk} is still on the cluster; wait until it has ended.")
    return DeletionBlocker(
        f"Campaign {campaign.pk} has not ended; its trials on the cluster would continue unmonitored.",
        campaign.get_absolute_url(),
        f"/api/campaigns/{campaign.pk}/change/ with change=cancel",
    )


asked.connect(holds, dispatch_uid="campaigns")
