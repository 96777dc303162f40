"""The jobs of campaigns: a trial in the hands of a worker, and the plan of a campaign."""

from __future__ import annotations

from django.db.models import Q

from campaigns.models import Campaign, CampaignStatus, Trial, TrialStatus
from jobs.jobs import Jobs

TRIALS = Jobs(
    Trial, (TrialStatus.WAITING, TrialStatus.RUNNING), TrialStatus.RUNNING,
    team="campaign__team", ready=Q(campaign__status=CampaignStatus.RUNNING),
)  # fmt: skip
#: Sends the plan again where a worker died between a result and the plan, or while it asked a language model; the
#: column stays.
CAMPAIGNS = Jobs(Campaign, (CampaignStatus.RUNNING,))
