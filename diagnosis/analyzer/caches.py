"""What the readers of text remember while one profile is read."""

from __future__ import annotations

from diagnosis.analyzer import collectives, names
from experiments.hlo import groups
from experiments.hlo import text as hlo
from experiments.passes import pass_of


def forget() -> None:
    """Drop everything remembered of a profile's text."""
    for remembered in (
        hlo.parse,
        groups.parse_notation,
        collectives.identify,
        collectives.dashed,
        names.module,
        names.phase,
        pass_of,
        names.family,
        names.segment_module,
        names.normal_category,
    ):
        remembered.cache_clear()
