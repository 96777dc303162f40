"""Filters of experiments, and of what belongs to a run."""

from __future__ import annotations

from accounts.filters import Filters, NumberFilter, SearchFilter, SortFilter
from experiments.models import Experiment

ORDERINGS = ("created_at", "updated_at", "name", "step_time_s", "best_speedup")


class ExperimentSearch(Filters):
    q = SearchFilter(
        "name", "model_name", "chip", "label", "bottleneck",
        help_text="Words, each in name, label, model, chip or bottleneck; case-insensitive.",
    )  # fmt: skip

    class Meta:
        model = Experiment
        fields: tuple[str, ...] = ("chip", "bottleneck")


class ExperimentFilters(ExperimentSearch):
    ordering = SortFilter({name: name for name in ORDERINGS})

    class Meta(ExperimentSearch.Meta):
        fields = ("state", "chip", "model_name", "bottleneck", "origin", "team")


class OfRun(Filters):
    experiment = NumberFilter("run__experiment", help_text="Restrict to this experiment.")
