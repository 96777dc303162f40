"""The next trials of a campaign: an iteration of the engine on the current pool, stored all or nothing.

Whoever plans holds the campaign's row, so that workers that finish at the same moment plan one after the other and
none sees a pool without the other's result.  A plan can be repeated at any time: it only fills what is free.

Where a language model takes part, a plan that has places to fill lets the row go, asks (`advising`), and begins anew.
"""

from __future__ import annotations

from math import ceil

import numpy as np
from django.db import transaction
from django.db.models import Count, Max, Q, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone
from pydantic import TypeAdapter

from campaigns.agents.tuner import MOST_WISHES
from campaigns.agents.view import Question
from campaigns.engine.acquisition import look
from campaigns.engine.candidates import TrialCandidates
from campaigns.engine.loop import LEAST_GAIN, Iteration, ScoredCandidate, iterate
from campaigns.engine.pool import Pool
from campaigns.engine.space import Space, key_of, settings_of
from campaigns.models import Campaign, CampaignStatus, Trial, TrialStatus
from campaigns.services import advising, spaces
from campaigns.services.advising import ADVICE, Advised, Asking
from campaigns.services.queues import CAMPAIGNS, TRIALS
from experiments.sentences import Sentence, Text
from formatting import dollars, duration

__all__ = ["AHEAD", "CAMPAIGNS", "SENTENCE", "TRIALS", "cost_of", "plan", "wanted"]

#: Of so many trials one more is planned ahead, so that long campaigns do not read their whole pool for each trial.
AHEAD = 20
SENTENCE: TypeAdapter[str] = TypeAdapter(Text)
#: Backends whose trials take no device and no compiler.
_CHEAP = (Campaign.Backend.MODELLED,)
OPEN = Q(status__in=[TrialStatus.WAITING, TrialStatus.RUNNING, TrialStatus.LAUNCHED])


def wanted(open_trials: int, ended: int, parallel: int) -> int:
    """How many trials to plan.  None while enough wait; then as many as the workers, and more in a long campaign."""
    if open_trials >= parallel:
        return 0
    return max(parallel, ceil(ended / AHEAD)) - open_trials


def plan(pk: int) -> int:
    """Store the trials that are worth running now, or end the campaign; returns how many were stored."""
    while isinstance(step := _step(pk), Asking):
        if not advising.ask(step):
            return 0  # whoever has it plans, or nobody is to
    return step


def _step(pk: int) -> int | Asking:
    """A plan as far as it goes without the language model, or the question that it is to be asked first."""
    with transaction.atomic():
        campaign = Campaign.objects.select_for_update().select_related("experiment").get(pk=pk)
        if campaign.status != CampaignStatus.RUNNING:
            return 0
        CAMPAIGNS.row_of_worker(pk, "").update(heartbeat_at=timezone.now())
        open_trials = campaign.trials.filter(OPEN).count()
        if open_trials >= campaign.parallel:
            return 0  # before the whole campaign is counted
        counts = campaign.trials.aggregate(begun=Count("pk", filter=Q(number__gt=0)), last=Coalesce(Max("number"), 0))
        spent = _spent(campaign)
        if spent is not None:
            return _stop(campaign, open_trials, spent)
        left = campaign.most_trials - counts["begun"]
        # What waits is begun at once: where it takes the machine or the cluster, only as much as was asked for.
        ended = counts["begun"] if campaign.backend in _CHEAP else 0
        count = min(wanted(open_trials, ended, campaign.parallel), left)
        if left <= 0:
            return _stop(campaign, open_trials, f"The budget of {campaign.most_trials:,} trials is spent.")
        if count <= 0:
            return 0
        field = spaces.space_of(campaign)
        candidates, pool = spaces.pool_of(campaign, field)
        if campaign.on_other_devices:
            if not pool.done and pool.open:
                return 0  # the first trial says how fast they are
            if pool.done:
                first = pool.done[0]
                candidates = candidates.in_units_of(first.candidate, first.step_time_s or 1.0)
        least_gain = -1.0 if campaign.to_budget else LEAST_GAIN
        advice = advising.stored(campaign) if campaign.use_language_model else None
        requested = list(advising.wishes(advice, field.by_key))
        step = iterate(candidates, pool, count, least_gain=least_gain, requested=requested)
        if step.choices and campaign.use_language_model and advice is None:
            question = _question(campaign, field, candidates, pool, min(count, MOST_WISHES), left)
            return advising.claim(campaign, question) or 0
        _store(campaign, candidates, step, counts["last"] + 1, advice)
        if not step.choices:
            return _stop(campaign, open_trials, step.ended or Sentence("No candidate is left."))
        return len(step.choices)


def _spent(campaign: Campaign) -> str | None:
    """Which budget of time or money is spent, in a sentence."""
    if campaign.most_s is None and campaign.most_dollars is None:
        return None
    seconds = _ran_s(campaign)
    if campaign.most_s is not None and seconds >= campaign.most_s:
        return f"The budget of {duration(campaign.most_s)} of trials is spent."
    if campaign.most_dollars is not None and cost_of(campaign, seconds) >= campaign.most_dollars:
        return f"The budget of {dollars(campaign.most_dollars)} is spent."
    return None


def _ran_s(campaign: Campaign) -> float:
    """Seconds of every run of all trials: those that have ended, and what the others have taken so far."""
    ended = campaign.trials.aggregate(ran_s=Coalesce(Sum("ran_s"), 0.0))["ran_s"]
    run = campaign.trials.filter(status__in=(TrialStatus.RUNNING, TrialStatus.LAUNCHED))
    run = run.select_related("launch").prefetch_related("launch__runs")
    now = timezone.now()
    return float(ended + sum(trial.running_s(now) for trial in run))


def cost_of(campaign: Campaign, seconds: float) -> float:
    """Dollars of all chips of the campaign for so long."""
    hardware = campaign.config["hardware"]
    chips = float(np.prod(hardware["topology"])) * hardware.get("slices", 1)
    return (campaign.dollars_per_chip_hour or 0.0) * chips * seconds / 3600.0


def _stop(campaign: Campaign, open_trials: int, reason: str) -> int:
    """End the campaign once nothing of it runs."""
    if not open_trials:
        Campaign.objects.filter(pk=campaign.pk, status=CampaignStatus.RUNNING).update(
            status=CampaignStatus.DONE, reason=str(reason), finished_at=timezone.now()
        )
    return 0


def _question(
    campaign: Campaign, field: Space, c: TrialCandidates, pool: Pool, most: int, trials_left: int
) -> Question:
    left: dict[str, float] = {"trials": trials_left}
    if campaign.most_s is not None:
        left["time_s"] = max(0.0, campaign.most_s - _ran_s(campaign))
    if campaign.most_dollars is not None:
        left["dollars"] = max(0.0, campaign.most_dollars - cost_of(campaign, _ran_s(campaign)))
    return Question(
        acquisition=look(c, pool),
        space=field,
        numbers=list(campaign.trials.order_by("number").values_list("number", flat=True)),
        most=most,
        left=left,
        modelled=campaign.backend in (Campaign.Backend.MODELLED, Campaign.Backend.COMPILED),
    )


def _store(campaign: Campaign, c: TrialCandidates, step: Iteration, number: int, advice: Advised | None) -> None:
    keys = [key_of(c.configs[choice.candidate]) for choice in step.choices]
    # A failure whose cause is not known may come again: the same trial, run once more.
    failed = {trial.key: trial for trial in campaign.trials.filter(status=TrialStatus.FAILED, key__in=keys)}
    again = [failed[key] for key in keys if key in failed]
    for trial in again:
        trial.status, trial.worker, trial.heartbeat_at = TrialStatus.WAITING, "", None
    Trial.objects.bulk_update(again, ["status", "worker", "heartbeat_at"])
    new = [choice for choice, key in zip(step.choices, keys, strict=True) if key not in failed]
    planned = sum(choice.requested for choice in step.choices)
    made = Trial.objects.bulk_create(
        [_trial(campaign, c, choice, number + n, advice, planned) for n, choice in enumerate(new)], batch_size=500
    )
    analysis: dict[str, object] = {"held_back": dict(step.held_back)}
    if advice is not None:
        analysis["advice"] = ADVICE.write(advice) | {"wishes": len(advice.wishes), "planned": planned}
    Campaign.objects.filter(pk=campaign.pk).update(analysis=analysis, advice=None)
    for trial in (*made, *again):
        TRIALS.enqueue(trial.pk)


def _trial(
    campaign: Campaign, c: TrialCandidates, choice: ScoredCandidate, number: int, advice: Advised | None, planned: int
) -> Trial:
    config = c.configs[choice.candidate]
    why = advising.why(choice, key_of(config), advice, planned)
    return Trial(
        campaign=campaign,
        number=number,
        key=key_of(config),
        mesh=config.mesh.to_json(),
        training=settings_of(config),
        why=SENTENCE.dump_python(why, mode="json"),
        chosen_by=Trial.Author.MODEL if choice.requested else Trial.Author.BUILT_IN,
        predicted_step_time_s=choice.step_time_s,
        predicted_low_s=choice.low_s,
        predicted_high_s=choice.high_s,
        gain=choice.gain,
        faster=choice.faster,
        runs_probability=choice.runs,
    )
