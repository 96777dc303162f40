"""Pages of a comparison: two profiles side by side, their ops, and the evidence of its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.urls import reverse

import formatting
from accounts.models import Role
from accounts.pages import page_or_part
from accounts.permissions import MemberRequest, require
from diagnosis import comparing, views_timeline
from diagnosis.compare.comparison import CollectiveChange, Comparison, KpiChange
from diagnosis.evidence import Panel
from diagnosis.models import DiagnosisRecord, OpRow
from diagnosis.presentation import axis_name, kpi_words
from experiments import bars

#: Up to this many ops on both sides together the table is part of the page; more come after it.
OPS_AT_ONCE = 3000
UNITS = {"step": "s", "token": "s_per_token", "share": "share"}


@require(Role.VIEWER, "GET")
def compare(request: MemberRequest) -> HttpResponse:
    """The chooser, and what differs between the two that were chosen."""
    q = request.GET.get("q", "").strip()
    a, b = (_side(request, key) for key in ("a", "b"))
    offered = comparing.choices(request.membership.team, q)
    context: dict[str, Any] = {"here": "experiments", "q": q, "a": a, "b": b, "choices": _with_chosen(offered, a, b)}
    context["same"] = a is not None and b is not None and a.profile.pk == b.profile.pk
    context["undiagnosed"] = [side for side in (a, b) if side is not None and side.record is None]
    if a and b and a.record and b.record and not context["same"]:
        at_once = a.op_count + b.op_count <= OPS_AT_ONCE
        comparison = comparing.full(a.record, b.record) if at_once else comparing.summary(a.record, b.record)
        context |= _comparison_context(a.record, b.record, comparison)
        if at_once:
            context |= _ops_context(request, a.record, b.record, comparison)
        context["timelines"] = [views_timeline.side(side.profile) for side in (a, b)]
    return render(request, "diagnosis/compare.html", context)


@require(Role.VIEWER, "GET", htmx=True)
def ops(request: MemberRequest) -> HttpResponse:
    """The op-level differences, paged; alone for the page's part, as a page of its own without scripts."""
    before, after = _compared_diagnoses(request)
    comparison = comparing.full(before, after)
    context = {"here": "experiments", "before": before, "after": after, "comparison": comparison, "late": True}
    context |= {
        "basis": comparison.comparability.basis,
        "unit": UNITS[comparison.comparability.basis],
        **_addresses(before, after),
    }
    context |= _ops_context(request, before, after, comparison)
    return page_or_part(request, "diagnosis/compare_ops.html", "diagnosis/_compare_ops.html", context)


@require(Role.VIEWER, "GET", htmx=True)
def evidence(request: MemberRequest, index: int) -> HttpResponse:
    """Evidence of one number of the comparison's sentences."""
    before, after = _compared_diagnoses(request)
    comparison = comparing.summary(before, after)
    if index >= len(comparison.evidence):
        comparison = comparing.full(before, after)
    if index >= len(comparison.evidence):
        raise Http404("No such evidence in this comparison.")
    item = comparison.evidence[index]
    behind = OpRow.objects.defer("data").filter(key__in=item.ops).order_by("rank")
    rows = [(record, list(behind.filter(diagnosis=record)[:50])) for record in (before, after)]
    panel = Panel(item.label, item.value, item.unit, item.origin, item.formula, item.source)
    context = {"here": "experiments", "panel": panel, "rows": rows if item.ops else [], **_addresses(before, after)}
    return page_or_part(request, "diagnosis/compare_evidence.html", "diagnosis/_compare_evidence.html", context)


def _side(request: MemberRequest, key: str) -> comparing.Chosen | None:
    value = request.GET.get(key, "")
    return comparing.chosen(request.user, value) if value else None


def _compared_diagnoses(request: MemberRequest) -> tuple[DiagnosisRecord, DiagnosisRecord]:
    sides = [_side(request, key) for key in ("a", "b")]
    records = [side.record for side in sides if side is not None and side.record is not None]
    if len(records) != 2:
        raise Http404("Two diagnosed profiles are needed.")
    return records[0], records[1]


def _with_chosen(offered: list[comparing.Choice], *sides: comparing.Chosen | None) -> list[comparing.Choice]:
    """The offered profiles, and the chosen ones where they are not among them."""
    known = {choice.pk for choice in offered}
    for side in sides:
        if side is not None and side.profile.pk not in known:
            known.add(side.profile.pk)
            experiment = side.profile.experiment
            offered = [comparing.Choice(side.profile.pk, experiment.name, experiment.pk), *offered]
    return offered


def _addresses(before: DiagnosisRecord, after: DiagnosisRecord) -> dict[str, Any]:
    pair = urlencode({"a": before.run.profile_id, "b": after.run.profile_id})
    return {
        "before": before,
        "after": after,
        "pair": pair,
        "compare_url": f"{reverse('compare')}?{pair}",
        "ops_url": reverse("compare_ops"),
        "ops_href": f"{reverse('compare_ops')}?{pair}",
        "evidence_base": f"{reverse('compare')}evidence/",
        "evidence_query": f"?{pair}",
    }


def _comparison_context(before: DiagnosisRecord, after: DiagnosisRecord, comparison: Comparison) -> dict[str, Any]:
    basis = comparison.comparability.basis
    roles = before.run.experiment.axis_roles
    was = bars.step_terms({term.term: term.before for term in comparison.breakdown}, roles)
    now = bars.step_terms({term.term: term.after for term in comparison.breakdown}, roles)
    shown = {term.key for term in (*was, *now)}
    terms = [(bars.term(row.term, row.after, roles), row) for row in comparison.breakdown if row.term in shown]
    terms.sort(key=lambda item: (item[0].order, item[0].key))
    return {
        **_addresses(before, after),
        "comparison": comparison,
        "configuration": [
            (row, _config_value(row.before, row.field), _config_value(row.after, row.field))
            for row in comparison.configuration
        ],
        "basis": basis,
        "unit": UNITS[basis],
        "kpis": [(kpi_words(row.key), row, _verdict(row)) for row in comparison.kpis],
        "bar_unit": "share" if basis == "share" else "s",
        "was": was,
        "now": now,
        "was_total": sum(term.value for term in was),
        "now_total": sum(term.value for term in now),
        "terms": terms,
        "scale": max(sum(term.value for term in side) for side in (was, now)) if was or now else 0.0,
        "largest_term": max((abs(row.change) for row in comparison.breakdown), default=0.0),
        "collectives": [_collective(row, roles) for row in comparison.collectives],
        "largest_collective": max((abs(row.change) for row in comparison.collectives), default=0.0),
        "sides": [_head(before), _head(after)],
    }


def _config_value(value: Any, key: str) -> str:
    """A value of the configuration as its file has it; an axis that a mesh does not name has size one."""
    if value is None and key.startswith("mesh."):
        return "1"
    if value is None or value == "" or value == []:
        return "not given"
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value)
    return formatting.number(value) if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _collective(row: CollectiveChange, roles: Mapping[str, str] | None) -> dict[str, Any]:
    return {"row": row, "axis": axis_name(row.axis), "css": bars.axis_class(row.axis or "model", roles)}


def _head(record: DiagnosisRecord) -> dict[str, Any]:
    experiment = record.run.experiment
    return {"record": record, "experiment": experiment, "step_time_s": record.value.kpis.get("step_time_s")}


def _verdict(row: KpiChange) -> str:
    """`better` or `worse` where the direction says which, and the change is worth the word."""
    if not row.better or not row.change or row.ratio is None or abs(row.ratio - 1.0) < 0.005:
        return ""
    return "better" if (row.change < 0) == (row.better == "lower") else "worse"


def _ops_context(
    request: MemberRequest, before: DiagnosisRecord, after: DiagnosisRecord, comparison: Comparison
) -> dict[str, Any]:
    shown = request.GET.get("show", "all")
    shown = shown if shown in comparing.SHOWN else "all"
    find = request.GET.get("find", "").strip()
    page, counts = comparing.ops_page(comparison, shown, find, request.GET.get("page", "1"))
    return {
        "page": page,
        "show": shown,
        "find": find,
        "showings": [(name, words, counts[name]) for name, words in _SHOWINGS],
        "largest_change": max((abs(row.change) for row in page), default=0.0),
        "before_ranks": comparing.ranks(before, [key for row in page for key in row.before_ops]),
        "after_ranks": comparing.ranks(after, [key for row in page for key in row.after_ops]),
        "has_ops": True,
    }


_SHOWINGS = (
    ("all", "All"), ("gained", "Time gained"), ("lost", "Time lost"), ("gone", "Only before"), ("new", "Only after"),
)  # fmt: skip
