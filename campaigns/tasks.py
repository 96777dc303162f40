"""What the workers do."""

from __future__ import annotations

from campaigns.services import campaigns, planning, running


@planning.CAMPAIGNS.implementation()
def plan_campaign(campaign_pk: int) -> None:
    """Fill a campaign's free places with trials, or end it."""
    campaigns.plan(campaign_pk)


@planning.TRIALS.implementation()
def run_trial(trial_pk: int) -> None:
    """Run a trial and plan what follows."""
    running.run(trial_pk)
