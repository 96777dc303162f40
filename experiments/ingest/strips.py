"""Steps by cores, small enough for a page."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.ingest.timeline import CoreTimeline
from experiments.step_profile import Timeline

MOST_CORES = 32
MOST_CELLS = 1024


def strips(cores: Sequence[CoreTimeline]) -> Timeline:
    """The steps that every marked core has, for as many cores as a page shows; empty where no core marks steps.

    Of more cores: the slowest and the fastest by work of their own, the rest evenly in their order.
    """
    marked = [core for core in cores if core.numbers]
    if not marked:
        return Timeline(cores_total=len(cores))
    common = set(marked[0].numbers).intersection(*(core.numbers for core in marked[1:]))
    steps = [number for number in marked[0].numbers if number in common]
    rows = _chosen(marked)
    columns = _evenly(len(steps), MOST_CELLS // len(rows))
    shown = [steps[i] for i in columns]
    parts = list(dict.fromkeys(part for core in rows for part in core.parts_s))
    durations: list[tuple[float, ...]] = []
    table: dict[str, list[tuple[float, ...]]] = {part: [] for part in parts}
    for core in rows:
        at = {number: i for i, number in enumerate(core.numbers)}
        index = [at[number] for number in shown]
        durations.append(tuple(round(core.durations_s[i], 9) for i in index))
        for part in parts:
            values = core.parts_s.get(part)
            table[part].append(tuple(round(max(values[i], 0.0), 9) if values else 0.0 for i in index))
    return Timeline(
        cores=tuple(core.name for core in rows),
        hosts=tuple(core.host for core in rows),
        steps=tuple(shown),
        durations_s=tuple(durations),
        parts_s={part: tuple(values) for part, values in table.items()},
        cores_total=len(cores),
        steps_total=len(steps),
    )


def _chosen(cores: Sequence[CoreTimeline]) -> list[CoreTimeline]:
    if len(cores) <= MOST_CORES:
        return list(cores)
    work = [core.busy_s - core.exposed_s for core in cores]
    ends = {int(np.argmax(work)), int(np.argmin(work))}
    kept = ends | set(_evenly(len(cores), MOST_CORES - len(ends)))
    return [cores[i] for i in sorted(kept)]


def _evenly(count: int, most: int) -> list[int]:
    return sorted({int(i) for i in np.linspace(0, count - 1, min(count, max(1, most)))}) if count else []
