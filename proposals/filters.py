"""Filters of what belongs to a proposal, and of approved proposals."""

from __future__ import annotations

from accounts.filters import Filters, NumberFilter, SearchFilter, TextFilter
from proposals.models import Measurement


class OfProposal(Filters):
    experiment = NumberFilter("proposal__experiment", help_text="Restrict to this experiment.")


class MeasurementFilters(OfProposal):
    class Meta:
        model = Measurement
        fields = ("status",)


class ApprovedFilters(Filters):
    q = SearchFilter(
        "title", "experiment__name", "review__comment",
        help_text="Words, each in title, experiment or comment; case-insensitive.",
    )  # fmt: skip
    chip = TextFilter("experiment__chip")
    model = TextFilter("experiment__model_name")
    bottleneck = TextFilter("experiment__bottleneck")
