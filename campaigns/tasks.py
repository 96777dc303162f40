"""What the workers do."""

from __future__ import annotations

from celery import shared_task

from campaigns.services import campaigns, launched, planning, running


@planning.CAMPAIGNS.implementation()
def plan_campaign(campaign_pk: int) -> None:
    """Fill a campaign's free places with trials, or end it."""
    campaigns.plan(campaign_pk)


@planning.TRIALS.implementation()
def run_trial(trial_pk: int) -> None:
    """Run a trial and plan what follows."""
    running.run(trial_pk)


@shared_task(name="campaigns.tasks.follow", ignore_result=True, expires=60)
def follow() -> None:
    """Take what ended on the cluster."""
    launched.follow()
