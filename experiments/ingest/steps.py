"""Steps and cores of a session as StepProfile holds them, and small enough for a page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any, TypedDict

import numpy as np

from experiments.ingest.cut_steps import cut_note
from experiments.ingest.op_classes import PARTS
from experiments.ingest.timeline import CoreTimeline
from experiments.ingest.values import gviz_rows, number
from experiments.step_profile import Core, Note, Step, Timeline
from formatting import first as listing

#: Clocks of hosts differ by less.
CLOCKS_NS = 10**9
#: Earlier times count from the start of a recording, not in Unix time.
_YEAR_2001_NS = 10**18
#: Columns of XProf's step table for GPUs, and the part each belongs to.
GPU_COLUMNS = {
    "deviceComputeTimeMs": "compute",
    "deviceToDeviceTimeMs": "device_to_device",
    "deviceCollectivesTimeMs": "collective",
    "hostComputeTimeMs": "host",
    "kernelLaunchTimeMs": "launch",
    "infeedTimeMs": "input",
    "outfeedTimeMs": "output",
    "compileTimeMs": "compile",
    "otherTimeMs": "other",
}
#: The same for TPUs, where compute includes collectives.
TPU_COLUMNS = {
    "tcComputeTimeMs": "compute",
    "noninfeedTimeMs": "compute",
    "tcInfeedTimeMs": "input",
    "tcOutfeedTimeMs": "output",
    "tcIdleTimeMs": "idle",
    "hostTransferTimeMs": "host",
}


def timeline_steps(cores: Sequence[CoreTimeline]) -> list[Step]:
    """Each step that every core with steps has marked, averaged over them; parts that no core has are absent."""
    marked = [core for core in cores if core.numbers]
    if not marked:
        return []
    common = set(marked[0].numbers).intersection(*(core.numbers for core in marked[1:]))
    numbers = [step for step in marked[0].numbers if step in common]
    parts = [part for part in (*PARTS, "launch", "idle") if any(part in c.parts_s for c in marked)]
    times = np.zeros(len(numbers))
    sums = {part: np.zeros(len(numbers)) for part in parts}
    for core in marked:
        index = [i for i, step in enumerate(core.numbers) if step in common]
        times += np.array(core.durations_s)[index]
        for part in parts:
            if part in core.parts_s:
                sums[part] += np.array(core.parts_s[part])[index]
    count = len(marked)
    return [
        Step(step, float(times[i] / count), {part: max(float(sums[part][i] / count), 0.0) for part in parts})
        for i, step in enumerate(numbers)
    ]


def unix_span(begin_ns: int, end_ns: int) -> tuple[int, int] | None:
    """The times of a recording's first and last event; None where they are not in Unix time."""
    return (begin_ns, end_ns) if begin_ns > _YEAR_2001_NS else None


def latest_run(spans: Sequence[tuple[int, int] | None], apart_ns: int) -> list[bool]:
    """Return which files are of the latest run: those of one overlap in time, but for what clocks of hosts differ."""
    known = sorted(span for span in spans if span is not None)
    if len(known) < len(spans):
        return [True] * len(spans)
    first, until = known[0]
    for begin, end in known[1:]:
        first = begin if begin > until + apart_ns else first
        until = max(until, end)
    return [span is not None and span[0] >= first for span in spans]


def earlier_runs(names: Sequence[str]) -> list[Note]:
    """Return the note on files of earlier runs, which are not used."""
    if not names:
        return []
    apart = "was recorded earlier and is another run" if len(names) == 1 else "were recorded earlier and are other runs"
    return [Note("warning", f"{listing(names, 3)} {apart}: not used. Upload each run by itself.")]


class StepTimes(TypedDict):
    """Mean, extremes and spread of the steps' times, by their fields of StepProfile; None where there are none."""

    step_time_s: float | None
    step_time_min_s: float | None
    step_time_max_s: float | None
    step_time_stdev_s: float | None


def step_times(times: Sequence[float]) -> StepTimes:
    return {
        "step_time_s": fmean(times) if times else None,
        "step_time_min_s": min(times, default=None),
        "step_time_max_s": max(times, default=None),
        "step_time_stdev_s": pstdev(times) if len(times) > 1 else None,
    }


def cut_notes(cores: Sequence[CoreTimeline]) -> list[Note]:
    """One note per step that the recording cut off on any core."""
    times: dict[tuple[int, bool], list[float]] = {}
    for core in cores:
        for step, time_s, first in core.cut:
            times.setdefault((step, first), []).append(time_s)
    return [
        cut_note(step, sum(seconds) / len(seconds), first=first) for (step, first), seconds in sorted(times.items())
    ]


def executed_program(cores: Sequence[CoreTimeline]) -> str:
    """The program whose executions stand for steps, empty where steps were marked or there are none."""
    return next((core.program for core in cores if core.program and core.numbers), "")


def gpu_steps(overview: Sequence[Any]) -> list[Step]:
    """Steps as XProf splits them on a GPU: it follows kernels to the host's step markers, which intervals cannot."""
    table = gviz_rows(overview[1] if len(overview) > 1 else None)
    return [step for position, row in enumerate(table) if (step := gpu_step(row, position)) is not None]


def gpu_step(row: Mapping[str, Any], position: int) -> Step | None:
    """A step from a row of XProf's step table, of a GPU or a TPU; None where it took no time."""
    parts: dict[str, float] = {}
    for column, part in (*GPU_COLUMNS.items(), *TPU_COLUMNS.items()):
        value = number(row.get(column))
        if value is not None:
            parts[part] = parts.get(part, 0.0) + value / 1e3
    stated = number(row.get("stepTimeMs"))
    time_s = stated / 1e3 if stated is not None else sum(parts.values())
    if time_s <= 0:
        return None
    digits = re.search(r"(\d{1,15})$", str(row.get("stepnum", "")).strip())
    return Step(int(digits.group(1)) if digits else position, time_s, parts)


def core_values(cores: Sequence[CoreTimeline]) -> list[Core]:
    """Each core's mean step; without steps, no time per step can be given."""
    result: list[Core] = []
    for core in cores:
        steps = len(core.numbers)
        result.append(
            Core(
                name=core.name,
                host=core.host,
                breakdown_s={part: sum(values) / steps for part, values in core.parts_s.items()} if steps else {},
                busy_s=core.busy_s / steps if steps else None,
                collective_s=core.collective_s / steps if steps else None,
                exposed_s=core.exposed_s / steps if steps else None,
                host_transfer_s=core.host_transfer_s / steps if steps else None,
            )
        )
    return result


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
