"""Filters of what belongs to a proposal."""

from __future__ import annotations

from accounts.filters import Filters, NumberFilter
from proposals.models import Measurement


class OfProposal(Filters):
    experiment = NumberFilter("proposal__experiment", help_text="Restrict to this experiment.")


class MeasurementFilters(OfProposal):
    class Meta:
        model = Measurement
        fields = ("status",)
