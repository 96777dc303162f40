"""Addresses of what values are of: a proposal, a finding, an op, a key figure, a passage, a record."""

from __future__ import annotations

from collections.abc import Callable

from django.urls import NoReverseMatch, reverse

from diagnosis import services as diagnosis_services
from experiments.models import Experiment


def link_of(experiment: Experiment) -> Callable[[str], str]:
    """Return the function from `Value.href` to an address; "" for what no page shows."""
    ranks: dict[str, int] = {}

    def op_rank(key: str) -> int | None:
        if not ranks:
            record = diagnosis_services.newest(experiment)
            if record is not None:
                ranks.update(record.ops.values_list("key", "rank"))
        return ranks.get(key)

    def link(target: str) -> str:
        kind, _, name = target.partition(":")
        try:
            if kind == "proposal":
                return f"{reverse('proposals', args=[experiment.pk])}#proposal-{int(name)}"
            if kind == "finding":
                return f"{reverse('experiment', args=[experiment.pk])}#f-{int(name)}"
            if kind == "kpi":
                return reverse("evidence", args=[experiment.pk, f"kpi-{name}"])
            if kind == "op" and (rank := op_rank(name)) is not None:
                return reverse("op", args=[experiment.pk, rank])
            if kind == "passage":
                return reverse("knowledge-passage", args=[name])
            if kind == "record":
                return reverse("history-cited", args=[name])
            if kind == "experiment":
                return reverse("experiment", args=[int(name)])
        except (NoReverseMatch, ValueError):
            return ""
        return target if target.startswith("/") and not target.startswith("//") else ""

    return link
