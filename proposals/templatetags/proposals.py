"""Parts that show what became of proposals: on the page of the run that measures one, and prediction as a bar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import template
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

import formatting
from diagnosis.models import DiagnosisRecord
from experiments import bars
from experiments.models import Experiment
from history.record import outcome_of
from proposals import presentation
from proposals.measured import Row
from proposals.models import Measurement
from proposals.plan import Citation
from proposals.services import plans

register = template.Library()

#: Where a source opens one of its entries by key.
_CITED = {"history": "history-cited", "book": "knowledge-passage", "knowledge": "knowledge-passage"}


@register.inclusion_tag("proposals/_run_of.html", takes_context=True)
def run_of(context: dict[str, Any]) -> dict[str, Any]:
    """Which proposal this experiment is the run of."""
    made = Measurement.objects.filter(experiment=context["experiment"]).select_related("proposal__experiment")
    return {"measured": made.order_by("-pk")[:3]}


@register.simple_tag
def first_proposal(experiment: Experiment, diagnosis: DiagnosisRecord) -> presentation.Ladder | None:
    """The run beside the first proposal of this diagnosis; None where nothing else than keeping it is proposed."""
    plan = plans.newest_of_run(diagnosis.run)
    item = plan.proposals.order_by("rank").first() if plan is not None else None
    if plan is None or item is None or item.kind == "keep":
        return None
    return presentation.ladder(plan, [item], plan.priced_with, diagnosis)


@register.filter
def after(ladder: presentation.Ladder | None, key: str) -> presentation.TermChange | None:
    """The change of one term of the step by the first proposal; None where that is not known."""
    rows = ladder.cards[0].terms if ladder else ()
    return next((row for row in rows if row.term.key == key), None)


@register.filter
def only_after(ladder: presentation.Ladder | None, terms: Sequence[bars.Term]) -> list[presentation.TermChange]:
    """Terms that the first proposal brings and the run does not have."""
    known = {term.key for term in terms}
    return [row for row in (ladder.cards[0].terms if ladder else ()) if row.term.key not in known]


@register.simple_tag
def cited_at(cite: Citation, team_id: int) -> str:
    """The address at which a citation of a team opens in place; empty where it only has its own statement."""
    place = _CITED.get(cite.source) if cite.key else None
    try:
        address = reverse(place, args=[cite.key]) if place else ""
    except NoReverseMatch:
        return ""
    return f"{address}?team={team_id}" if place == "history-cited" else address


@register.simple_tag
def speedup_bar(row: Row, scale: float) -> SafeString:
    """Predicted speed-up as a tick within its 80 % interval, measured as a dot, 1× dashed; from 0 to `scale`."""
    parts = SafeString("")
    if row.low is not None and row.high is not None:
        low = bars.percent(row.low, scale)
        parts += format_html(
            '<rect class="range" x="{}" width="{}" height="100%"/>', low, bars.percent(row.high - row.low, scale)
        )
    parts += format_html('<line class="dash" x1="{0}" x2="{0}" y1="-4" y2="14"/>', bars.percent(1.0, scale))
    words = []
    if (predicted := row.made.predicted_speedup) is not None:
        at = bars.percent(predicted, scale)
        parts += format_html('<line class="mark" x1="{0}" x2="{0}" y1="-2" y2="12"/>', at)
        words.append(f"predicted {formatting.quantity(predicted, 'speedup')}")
    if (measured := row.made.speedup) is not None:
        css = "f-loss" if outcome_of(measured) == "slower" else "f-measured"
        parts += format_html('<circle class="{}" cx="{}" cy="5" r="5"/>', css, bars.percent(measured, scale))
        words.append(f"measured {formatting.quantity(measured, 'speedup')}")
    return format_html(
        '<svg class="bar bar--s" role="img" aria-label="{}"><rect class="track" width="100%" height="100%"/>{}</svg>',
        ", ".join(words), parts,
    )  # fmt: skip
