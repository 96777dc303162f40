"""Pages of proposals: the three side by side, the decision on one, the history of what was approved."""

from __future__ import annotations

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST
from django.views.decorators.vary import vary_on_headers

from accounts.models import Role
from accounts.permissions import get_for, require
from diagnosis import services as diagnoses
from diagnosis.models import DiagnosisRecord
from experiments.pages import experiment_page
from experiments.views import progress_context
from proposals import presentation
from proposals.models import FAILURE_WORDS, Decision, Proposal
from proposals.services import history as approved_history
from proposals.services import plans, reviews

RECORDS_ON_PAGE = 12
#: What a card shows beside the proposal.
_SHOWN = ("review__author", "experiment", "plan__run__profile", "measurement__experiment", "measurement__run")


@require(Role.VIEWER)
@require_GET
def proposals(request: HttpRequest, pk: int) -> HttpResponse:
    """The newest plan's proposals beside the baseline."""
    page = experiment_page(request, pk)
    context = page.context("proposals", **progress_context(page))
    plan = plans.newest(page.experiment)
    if plan is not None:
        found = list(plan.proposals.select_related(*_SHOWN).order_by("rank"))
        record = DiagnosisRecord.objects.filter(run_id=plan.run_id).first()
        rejected = plan.data.get("rejected") or []
        context |= {
            "plan": plan,
            "is_older": page.run is not None and plan.run_id != page.run.pk,
            "ladder": presentation.ladder(plan, found, page.experiment.config or {}, record),
            "findings": {f["rule"]: f["title"] for f in (record.data.get("findings", ()) if record else ())},
            "missing": presentation.missing_facts(plan.data.get("missing") or ()),
            "considered": plan.data.get("considered", 0),
            "rejected_count": len(rejected),
            "failures": FAILURE_WORDS,
            "may_decide": page.membership.may(Role.REVIEWER),
        }
    return render(request, "proposals/proposals.html", context)


@require(Role.VIEWER)
@require_GET
@vary_on_headers("HX-Request")
def rejected(request: HttpRequest, pk: int) -> HttpResponse:
    """Candidates that were not legal, by the rule they broke."""
    page = experiment_page(request, pk)
    plan = plans.newest(page.experiment)
    if plan is None:
        raise Http404("This experiment has no proposals yet.")
    context = page.context("proposals", plan=plan, rules=presentation.rejected_by_rule(plan))
    part = "proposals/_rejected.html" if request.htmx else "proposals/rejected.html"  # type: ignore[attr-defined]
    return render(request, part, context)


@require(Role.VIEWER)
@require_POST
def decide(request: HttpRequest, pk: int) -> HttpResponse:
    """Approve or reject a proposal, once."""
    proposal = get_for(request.user, Proposal.objects.select_related("plan__run"), Role.REVIEWER, pk=pk)
    try:
        review = reviews.decide(
            proposal,
            request.user,  # type: ignore[arg-type]
            request.POST.get("decision", ""),
            request.POST.get("comment", ""),
        )
    except reviews.ReviewError as error:
        messages.error(request, str(error))
    else:
        kept = " It is in the history now." if review.decision == Decision.APPROVED else ""
        messages.success(request, f"{review.get_decision_display()}.{kept}")
    return redirect(reverse("proposals", args=[proposal.experiment_id]) + f"#proposal-{proposal.rank}")


@require(Role.VIEWER)
@require_GET
@vary_on_headers("HX-Request")
def history(request: HttpRequest) -> HttpResponse:
    """Approved proposals of the team, searched and narrowed, one of them with both sides."""
    team = request.membership.team  # type: ignore[attr-defined]
    q = request.GET.get("q", "")
    facets = {name: request.GET.get(name, "") for name in approved_history.FACETS}
    found = approved_history.approved(team, q, **facets)
    records = Paginator(found, RECORDS_ON_PAGE).get_page(request.GET.get("page"))
    chosen = request.GET.get("record", "")
    record = found.filter(pk=int(chosen)).first() if chosen.isdigit() else None
    record = record or (records.object_list[0] if records.object_list else None)
    context = {
        "here": "history",
        "records": records,
        "total": records.paginator.count,
        "q": q,
        "facets": [(name, value, approved_history.facet(team, name)) for name, value in facets.items()],
        "filtered": bool(q or any(facets.values())),
        "empty": not approved_history.approved(team).exists(),
        "record": record,
    }
    if record is not None:
        diagnosis = DiagnosisRecord.objects.filter(run_id=record.plan.run_id).first()
        context["ladder"] = presentation.ladder(record.plan, [record], record.experiment.config or {}, diagnosis)
        context["diagnosis"] = diagnosis or diagnoses.newest(record.experiment)
    part = "proposals/_history.html" if request.htmx else "proposals/history.html"  # type: ignore[attr-defined]
    return render(request, part, context)
