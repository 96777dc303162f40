"""The jobs of campaigns: a trial in the hands of a worker, and the plan of a campaign."""

from __future__ import annotations

from campaigns.models import Campaign, CampaignStatus, Trial, TrialStatus
from jobs.jobs import Jobs

TRIALS = Jobs(Trial, (TrialStatus.WAITING, TrialStatus.RUNNING), TrialStatus.RUNNING)
#: Sends the plan again where a worker died between a result and the plan, or while it asked a language model; the
#: column stays.
CAMPAIGNS = Jobs(Campaign, (CampaignStatus.RUNNING,))
