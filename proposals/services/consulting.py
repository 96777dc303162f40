"""When the language model reads a run: asked for at ready or by an engineer, held by one worker, taken over, ended.

What the built-in rules said stands from the beginning and stays; nothing waits for a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from accounts.models import Role, User
from accounts.permissions import check
from accounts.refusals import Refused
from experiments.models import Experiment, Run, RunStatus
from experiments.services import events, runs
from formatting.text import clean
from jobs.declared import DIALOGUE_QUEUE
from jobs.jobs import Jobs
from proposals.agents import analyzer_agent, endpoint, proposal_agent
from proposals.models import Consultation, PlanRecord

#: Runs read at a time: the workers are those of the dialogue, whose answers a person waits for.
MOST_AT_ONCE = 6
OPEN = (Consultation.Status.QUEUED, Consultation.Status.WORKING)
CONSULTATIONS = Jobs(
    Consultation, OPEN, Consultation.Status.WORKING, queue=DIALOGUE_QUEUE, team="team", max_at_once=MOST_AT_ONCE
)


class ConsultingError(Refused):
    """The model cannot be asked."""


def models() -> tuple[str, ...]:
    """The models of Analyzer and Proposal agent; empty where none is configured."""
    providers = (endpoint.provider(agent) for agent in (analyzer_agent.AGENT, proposal_agent.AGENT))
    return tuple(dict.fromkeys(provider.model for provider in providers if provider is not None))


def on_ready(run: Run) -> Consultation | None:
    """Ask the model to read a run that is ready, once; None where none is configured, or it is not to be asked so.

    A sample that ships with the product is read only when somebody asks: its user did not bring it, and would pay.
    """
    if not settings.LLM_AUTO or run.experiment.sample or not models():
        return None
    with transaction.atomic():
        events.lock(run.experiment_id)
        if Consultation.objects.filter(run=run).exists():
            return None
        return _queue(run, None)


def request(experiment: Experiment, user: User) -> Consultation:
    """Ask the model to read the experiment's newest run.

    Raises ConsultingError where it cannot be asked now; Http404 and PermissionDenied below engineer.
    """
    check(user, experiment, Role.ENGINEER)
    if not models():
        raise ConsultingError("No language model is configured; the built-in rules were used.")
    run = runs.newest(experiment)
    if run is None or run.status != RunStatus.READY:
        raise ConsultingError("The analysis of this experiment is not ready; the model starts once it is.")
    with transaction.atomic():
        events.lock(experiment.pk)
        if Consultation.objects.filter(run=run, status__in=OPEN).exists():
            raise ConsultingError("The model is already analysing this run; wait until it is done.")
        return _queue(run, user)


def _queue(run: Run, user: User | None) -> Consultation:
    made = Consultation.objects.create(
        team_id=run.team_id, run=run, model=" and ".join(models())[:120], created_by=user
    )
    text = f"{made.model} was asked to analyse the run"
    said = {"stage": str(run.status), "text": text, "fraction": None, "consultation": made.pk}
    events.append(run.experiment_id, "progress", "coordinator", run=run, user=user, data=said)
    CONSULTATIONS.enqueue(made.pk)
    return made


def newest(experiment: Experiment) -> Consultation | None:
    """Of the experiment's newest run that the model was asked to read."""
    # Most have none, so what hangs on one is loaded where it is read.
    return Consultation.objects.filter(run__experiment=experiment).order_by("-run_id", "-pk").first()


def of_plan(plan: PlanRecord) -> Consultation | None:
    """The one that a plan was made in."""
    return Consultation.objects.filter(plan=plan).first()


def report_of(run: Run) -> Consultation | None:
    """The newest one of the run whose report is the model's."""
    return Consultation.objects.filter(run=run, report__source="model").order_by("-pk").first()


def is_wanted(made: Consultation) -> bool:
    """Whether its worker still has it, and no newer analysis has made it pointless."""
    return CONSULTATIONS.row_of_worker(made.pk, made.worker).exists() and not is_overtaken(made)


def is_overtaken(made: Consultation) -> bool:
    return Run.objects.filter(experiment_id=made.run.experiment_id, pk__gt=made.run_id).exists()


def keep(made: Consultation, **values: Any) -> bool:
    """Store what an agent came to; False where another worker has it."""
    return CONSULTATIONS.beat(made.pk, made.worker, **values)


def end(made: Consultation, status: Consultation.Status, note: str = "") -> bool:
    """It has ended, with an Event where it came to nothing; False where another worker has it."""
    with transaction.atomic():
        events.lock(made.run.experiment_id)
        if not CONSULTATIONS.row_of_worker(made.pk, made.worker).update(
            status=status, note=clean(note), finished_at=timezone.now()
        ):
            return False
        if note:
            _say(made, "error" if status == Consultation.Status.FAILED else "progress", {"text": note, "reason": note})
    return True


def _say(made: Consultation, kind: str, data: Mapping[str, Any]) -> None:
    said = {"stage": str(made.run.status), "fraction": None, "consultation": made.pk, **data}
    events.append(made.run.experiment_id, kind, "coordinator", run=made.run, data=said)


def model_lines(plan: PlanRecord) -> dict[str, dict[str, Sequence[int]]]:
    """Of a plan that the model wrote, per rank the Events behind each sentence."""
    if not plan.value.author:
        return {}
    made = of_plan(plan)
    lines = (made.proposals.get("lines") or {}) if made is not None else {}
    return {rank: {line["text"]: line.get("events") or () for line in of_rank} for rank, of_rank in lines.items()}
