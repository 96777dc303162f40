"""What a language model asks for before trials are planned.

A plan that wants advice claims the campaign while it holds its row, lets the row go, and asks; what came of it is
stored on the campaign, where the next plan takes it up under the same rules as its own choices.  So no lock is held
while the model thinks, one worker at a time asks, and who dies in between is replaced by the sweep: what was asked for
and stored is not asked for again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import InterfaceError, OperationalError
from django.db.models import F, FloatField, Value
from django.db.models.functions import Coalesce

from agent.control import Cancel
from agent.events import ModelResponse, Retry, RunEvent, Stopped, TextDelta, drive
from agent.provider.base import Provider
from campaigns.agents import tuner
from campaigns.agents.tuner import Advised
from campaigns.agents.view import Question
from campaigns.engine.loop import ScoredCandidate
from campaigns.models import Campaign
from campaigns.services.queues import CAMPAIGNS
from experiments.codec import Codec
from experiments.sentences import Sentence
from formatting.text import clean_json
from jobs import workers
from jobs.jobs import released
from proposals.agents import endpoint
from proposals.services import recording

logger = logging.getLogger(__name__)

#: While the model is waited for: how often it is looked whether the campaign still runs and is ours.
LOOK_EVERY_S = 0.5
OUTDATED = "What the language model requested could no longer be tried when trials were planned."


ADVICE = Codec(Advised)


@dataclass(frozen=True)
class Asking:
    """A question that this worker has claimed to ask."""

    campaign: Campaign
    worker: str
    question: Question


def stored(campaign: Campaign) -> Advised | None:
    """The advice that is not planned yet; what is used instead where the model cannot be asked; None where it can."""
    if campaign.advice is not None:
        return ADVICE.read(campaign.advice)
    if endpoint.provider(tuner.AGENT) is None:
        return Advised(sentence="The language model is no longer configured.")
    if campaign.most_tokens - campaign.tokens < tuner.LEAST_TOKENS:
        text = f"The campaign's limit of {campaign.most_tokens:,} tokens of the language model is spent."
        return Advised(sentence=text)
    return None


def claim(campaign: Campaign, question: Question) -> Asking | None:
    """Take the question for this worker; None where another asks.  The caller holds the campaign's row."""
    worker = workers.this_thread()
    if not CAMPAIGNS.claim(campaign.pk, worker):
        return None
    campaign.refresh_from_db(fields=["attempts"])
    return Asking(campaign, worker, question)


def ask(asking: Asking) -> bool:
    """Ask, and store what came of it; False where the campaign was paused or cancelled, or another worker has it.

    Our own faults are stored as no advice, and raised again.
    """
    campaign, worker = asking.campaign, asking.worker
    provider = endpoint.provider(tuner.AGENT)
    if campaign.attempts > CAMPAIGNS.most_attempts:
        return _keep(asking, Advised(sentence=f"{CAMPAIGNS.gave_up} to ask the language model."))
    if provider is None:
        return _keep(asking, Advised(sentence="The language model is no longer configured."))
    cancel = Cancel()

    def look() -> None:
        if not CAMPAIGNS.row_of_worker(campaign.pk, worker).exists():
            cancel.set()

    try:
        with CAMPAIGNS.beating(campaign.pk, worker, (LOOK_EVERY_S, look)):
            advice = _drive(asking, provider, cancel)
    except (OperationalError, InterfaceError):
        raise  # the database is away: the sweep sends the plan again
    except Exception as error:
        logger.exception("the language model could not be asked for trials of campaign %s", campaign.pk)
        _keep(asking, Advised(sentence=f"Internal error ({type(error).__name__}) while it was asked."))
        raise
    return _release(asking) if advice is None else _keep(asking, advice)


def _drive(asking: Asking, provider: Provider, cancel: Cancel) -> Advised | None:
    """Let the Tuner work, each step an Event, its tokens counted as they are spent."""
    campaign = asking.campaign
    limits = tuner.bounds(endpoint.limits(), campaign.most_tokens - campaign.tokens)
    steps = tuner.advise(asking.question, provider, limits, cancel)

    def store(event: RunEvent) -> None:
        if not isinstance(event, TextDelta):
            recording.store(campaign.experiment_id, event, tuner.AGENT, campaign=campaign.pk)
            _count(campaign.pk, event)

    return drive(steps, store)


def _count(pk: int, event: RunEvent) -> None:
    values: dict[str, Any] = {}
    if isinstance(event, ModelResponse):
        values["tokens"] = F("tokens") + event.usage.tokens
        if event.cost_usd is not None:
            spent = Coalesce(F("cost_usd"), Value(0.0), output_field=FloatField())
            values["cost_usd"] = spent + event.cost_usd
    elif isinstance(event, Retry | Stopped) and event.fault is not None and event.fault.usage is not None:
        values["tokens"] = F("tokens") + event.fault.usage.tokens
    if values:
        Campaign.objects.filter(pk=pk).update(**values)


def _keep(asking: Asking, advice: Advised) -> bool:
    """Store the advice and let the campaign go; False where it is not ours any more, or does not run."""
    row = CAMPAIGNS.row_of_worker(asking.campaign.pk, asking.worker)
    if row.update(advice=clean_json(ADVICE.write(advice)), **released(sent=True)):
        return True
    return _release(asking)


def _release(asking: Asking) -> bool:
    Campaign.objects.filter(pk=asking.campaign.pk, worker=asking.worker).update(worker="", attempts=0)
    return False


def wishes(advice: Advised | None, by_key: Mapping[str, int]) -> Iterator[int]:
    """The candidates that stored advice asks for."""
    for wish in advice.wishes if advice is not None else ():
        if wish.key in by_key:
            yield by_key[wish.key]


def why(choice: ScoredCandidate, key: str, advice: Advised | None, planned: int) -> Sentence:
    """Who chose a trial and why: the model's sentence beside what the built-in acquisition predicts, or why the model's
    choice is not used.  Without advice the built-in reason alone.

    planned: how many trials of the model's are planned with it.
    """
    if advice is None:
        return choice.why
    wish = next((each for each in advice.wishes if each.key == key), None)
    if wish is not None and choice.requested:
        return tuner.requested(choice, advice.model, wish.reason)
    return tuner.instead(choice, advice.sentence or (OUTDATED if planned < len(advice.wishes) else ""))
