"""Store a plan with its three proposals, and print it as the contract's JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.db import transaction

from accounts.models import User
from diagnosis import services as diagnosis_services
from diagnosis.models import DiagnosisRecord
from experiments.models import Experiment, ReviewState, Run
from experiments.services import events
from formatting.text import clean_json
from perfmodel.config import placement_text
from proposals.models import PlanRecord, Proposal
from proposals.plan import PLAN, PROPOSAL, Plan, ProposalPlan


def store(
    run: Run,
    plan: Plan,
    *,
    constraints: dict[str, Any] | None = None,
    precedents: Sequence[str] = (),
    again: bool = False,
    user: User | None = None,
    said_of: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
) -> PlanRecord:
    """Store the run's plan with what it was made under.

    again: somebody asked for it, and earlier ones stay.  Otherwise it is the Coordinator's, which may come here twice:
    the one that the run already has from it is replaced, unless it was reviewed.  precedents: keys of history records.
    said_of: further facts of its Event.  config: JSON of what the plan was priced with; default the experiment's.
    """
    data = clean_json(PLAN.write(replace(plan, proposals=())))
    del data["proposals"]
    with transaction.atomic():
        events.lock(run.experiment_id)
        if not again:
            first = PlanRecord.objects.filter(run=run, requests=None)
            first.exclude(proposals__review__isnull=False).delete()
        record = PlanRecord.objects.create(
            team_id=run.team_id,
            run=run,
            data=data,
            config=config or Experiment.objects.values_list("config", flat=True).get(pk=run.experiment_id),
            constraints=clean_json(constraints or {}),
            precedents=list(precedents),
            created_by=user,
        )
        rows = [row(run, record, item) for item in plan.proposals]
        Proposal.objects.bulk_create(rows)
        Experiment.objects.filter(pk=run.experiment_id).update(best_speedup=_best_speedup(rows))
        undecided = Experiment.objects.filter(pk=run.experiment_id).exclude(review=ReviewState.APPROVED)
        undecided.update(review=ReviewState.OPEN)
        events.append(
            run.experiment_id,
            "proposal",
            "proposer",
            run=run,
            user=user,
            data={
                "plan": record.pk,
                **({"constraints": record.constraints} if record.constraints else {}),
                **({"precedents": record.precedents} if record.precedents else {}),
                "considered": plan.considered,
                "rejected": len(plan.rejected),
                "proposals": [event_summary(item) for item in plan.proposals],
                **({"author": plan.author} if plan.author else {}),
                **(said_of or {}),
            },
        )
    return record


def _best_speedup(proposals: Sequence[Proposal]) -> float | None:
    """The predicted gain of the recommendation; None if that is to keep the current configuration."""
    return proposals[0].predicted_speedup if proposals and proposals[0].kind != "keep" else None


def event_summary(item: ProposalPlan) -> dict[str, Any]:
    """What the Event says of a proposal."""
    return clean_json(
        {
            "rank": item.rank,
            "kind": item.kind,
            "title": item.title,
            "mesh": item.mesh,
            "speedup": item.predicted.speedup,
        }
    )


def row(run: Run, record: PlanRecord, item: ProposalPlan) -> Proposal:
    """The proposal's row, not saved."""
    data = stored(item)
    item = PROPOSAL.read(data)
    step_time = item.predicted.step_time_s
    return Proposal(
        team_id=run.team_id,
        experiment_id=run.experiment_id,
        plan=record,
        rank=item.rank,
        kind=item.kind,
        title=item.title[:200],
        predicted_step_time_s=step_time.estimate if step_time else None,
        predicted_speedup=item.predicted.speedup,
        confidence=item.confidence,
        data=data,
        mesh_key=placement_text(item.mesh, run.experiment.axis_roles),
    )


def stored(item: ProposalPlan) -> dict[str, Any]:
    """A proposal as its row holds it: text that PostgreSQL takes, and its sentences apart."""
    written: dict[str, Any] = clean_json(PROPOSAL.write(item))
    return written


def newest(experiment: Experiment) -> PlanRecord | None:
    """The plan of the newest run that has one."""
    return PlanRecord.objects.filter(run__experiment=experiment).select_related("run").order_by("-pk").first()


def newest_of_run(run: Run) -> PlanRecord | None:
    return PlanRecord.objects.filter(run=run).order_by("-pk").first()


def contract(record: PlanRecord) -> dict[str, Any]:
    """The object of `asap propose`: diagnosis, proposals, rejected, and what is beside."""
    record_of_run = DiagnosisRecord.objects.filter(run_id=record.run_id).first()
    plan = replace(record.value, proposals=tuple(item.value for item in record.proposals.order_by("rank")))
    return {
        "diagnosis": diagnosis_services.contract(record_of_run) if record_of_run is not None else None,
        **plan.to_json(),
    }
