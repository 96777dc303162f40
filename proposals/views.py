"""Pages of proposals: the three side by side, and the decision on one."""

from __future__ import annotations

from django.contrib import messages
from django.db.models.fields.json import KeyTextTransform
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render

from accounts.models import Role
from accounts.pages import page_or_part, refusals_as_messages
from accounts.permissions import MemberRequest, get_for, require
from diagnosis.models import DiagnosisRecord
from experiments.pages import ExperimentPage, experiment_page
from experiments.views import progress_context
from formatting.numbers import whole_number
from proposals import constraint_form, facts, presentation, views_compile
from proposals.models import FAILURE_WORDS, Decision, PlanRecord, Proposal
from proposals.proposer.words import MODEL_UNKNOWN
from proposals.services import consulting, plans, regenerating, reviews
from proposals.views_again import asked_context

#: What a card shows beside the proposal.
_SHOWN = ("review__author", "experiment", "plan__run__profile", "measurement__experiment", "measurement__run__profile")


@require(Role.VIEWER, "GET")
def proposals(request: MemberRequest, pk: int) -> HttpResponse:
    """One plan's proposals beside the baseline, the newest unless another is asked for."""
    page = experiment_page(request, pk)
    context = page.context("proposals", **progress_context(page))
    author = KeyTextTransform("author", "data")
    known = list(regenerating.of_experiment(page.experiment).annotate(author=author).defer("data"))
    plan = _chosen_plan(request, page)
    if plan is not None:
        cards = list(plan.proposals.select_related(*_SHOWN).order_by("rank"))
        record = DiagnosisRecord.objects.filter(run_id=plan.run_id).first()
        value = plan.value
        context |= {
            "plan": plan,
            "plans": list(enumerate(known, start=1)),
            "plan_number": next(number for number, item in enumerate(known, start=1) if item.pk == plan.pk),
            "newest_plan": known[-1],
            "chips": constraint_form.chips(plan.asked),
            "axis_rules": constraint_form.axes(page.experiment.mesh or {}, plan.asked),
            "rules": constraint_form.AXIS_RULES,
            "constraint_form": constraint_form.filled(plan.asked),
            "not_modelled": value.not_modelled,
            "notes": [note for note in value.notes if not note.startswith(MODEL_UNKNOWN)],
            "model_unknown": next((note for note in value.notes if note.startswith(MODEL_UNKNOWN)), ""),
            "is_older": page.run is not None and plan.run_id != page.run.pk,
            **asked_context(regenerating.newest(page.experiment)),
            **views_compile.context(plan),
            "ladder": presentation.ladder(plan, cards, plan.priced_with, record),
            "argued": consulting.model_lines(plan),
            "findings": {item.rule: item.title for item in (record.value.findings if record else ())},
            "missing": facts.in_words(value.missing),
            "missing_count": len(value.missing),
            "memory_unknown": presentation.is_memory_unknown(plan, record),
            "considered": value.considered,
            "priced": value.priced,
            "model_error": value.model_error,
            "rejected_count": len(value.rejected),
            "failures": FAILURE_WORDS,
            "may_decide": page.membership.may(Role.REVIEWER),
        }
    return render(request, "proposals/proposals.html", context)


def _chosen_plan(request: MemberRequest, page: ExperimentPage) -> PlanRecord | None:
    """`?plan=`, else the newest.  Raises Http404 for one that is not of this experiment."""
    given = request.GET.get("plan", "")
    if not given:
        return plans.newest(page.experiment)
    if (pk := whole_number(given)) is None:
        raise Http404("No such plan.")
    return get_object_or_404(regenerating.of_experiment(page.experiment).select_related("run"), pk=pk)


@require(Role.VIEWER, "GET", htmx=True)
def rejected(request: MemberRequest, pk: int) -> HttpResponse:
    """Candidates that were not legal, by the rule they broke."""
    page = experiment_page(request, pk)
    plan = _chosen_plan(request, page)
    if plan is None:
        raise Http404("This experiment has no proposals yet.")
    context = page.context("proposals", plan=plan, rules=presentation.rejected_by_rule(plan))
    return page_or_part(request, "proposals/rejected.html", "proposals/_rejected.html", context)


@require(Role.VIEWER, "POST")
def decide(request: MemberRequest, pk: int) -> HttpResponse:
    """Approve or reject a proposal, once."""
    proposal = get_for(request.user, Proposal.objects.select_related("plan__run"), Role.REVIEWER, pk=pk)
    with refusals_as_messages(request):
        review = reviews.decide(
            proposal,
            request.user,
            request.POST.get("decision", ""),
            request.POST.get("comment", ""),
        )
        kept = " Its measurement will be added to the history." if review.decision == Decision.APPROVED else ""
        messages.success(request, f"{review.get_decision_display()}.{kept}")
    return redirect(proposal)
