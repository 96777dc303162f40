"""The steps of every core as strips: what the timeline draws, and the table beside it.

A strip lays a core's steps end to end on one scale, each split into its exclusive parts; the parts are in a fixed
order, since the profile tells how long each took within a step, not when.  With many steps each is a column instead,
as high as it is long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import fmean

import formatting
from experiments.step_profile import Timeline

#: Parts of a step: words, colour class, order.
PARTS = {
    "compute": ("Device compute", "compute"),
    "collective": ("Collectives", "ici"),
    "device_to_device": ("Device to device", "ici-2"),
    "input": ("Input", "host"),
    "output": ("Output", "host"),
    "host_transfer": ("Host transfers", "host"),
    "host": ("Host", "host"),
    "launch": ("Launch", "host"),
    "compile": ("Compile", "host"),
    "other": ("Other", "mute"),
    "idle": ("Idle", "idle"),
}
#: Up to so many steps stand end to end; more become columns.
MOST_END_TO_END = 24
#: Cells that carry their own words on hover; beyond that the table has them.
MOST_TITLES = 400
WIDTH, HEIGHT = 1000, 20
#: Columns of the table that are single steps.
MOST_STEP_COLUMNS = 12


@dataclass(frozen=True)
class Cell:
    """One step of one core, drawn: where it stands, and its words."""

    x: float
    width: float
    title: str
    ref: str


@dataclass(frozen=True)
class Strip:
    """One core.  paths: (colour class, SVG path) per part; cells: with words; times in seconds.

    place: of several hosts, the end of this one's name, which tells it from the others.
    """

    core: str
    host: str
    paths: list[tuple[str, str]]
    cells: list[Cell]
    mean_s: float
    least_s: float
    most_s: float
    most_step: int
    parts: list[tuple[str, float]]
    durations: list[tuple[str, float]]
    behind: float
    place: str


@dataclass(frozen=True)
class Strips:
    """The timeline.  parts: (key, words, class) that occur; columns: one per step; scale_s: full width or height."""

    strips: list[Strip]
    parts: list[tuple[str, str, str]]
    steps: list[int]
    columns: bool
    scale_s: float
    cores_total: int
    steps_total: int
    step_columns: list[int]
    many_hosts: bool

    @property
    def shown_all(self) -> bool:
        return self.cores_total <= len(self.strips) and self.steps_total <= len(self.steps)


def strips(timeline: Timeline, collectives: str = "") -> Strips | None:
    """What to draw of `Diagnosis.timeline`; None where no core marks steps.

    collectives: their colour class, where all of them are of one mesh axis.
    """
    durations = timeline.durations_s
    steps = list(timeline.steps)
    if not steps or not durations:
        return None
    parts_s = timeline.parts_s
    order = [key for key in PARTS if key in parts_s] + sorted(key for key in parts_s if key not in PARTS)
    used = [key for key in order if any(value > 0 for row in parts_s[key] for value in row)]
    words = [(key, *PARTS.get(key, (key.replace("_", " ").capitalize(), "mute"))) for key in used]
    if collectives:
        words = [(key, label, collectives if key == "collective" else css) for key, label, css in words]
    columns = len(steps) > MOST_END_TO_END
    scale = max((max(row) if columns else sum(row)) for row in durations) or 1.0
    titles = len(steps) * len(durations) <= MOST_TITLES
    usual = sorted(fmean(row) for row in durations)[len(durations) // 2]
    hosts = timeline.hosts or [""] * len(durations)
    cores = timeline.cores or [str(at) for at in range(len(durations))]
    place_of = places(hosts)
    made = []
    for at, row in enumerate(durations):
        split = {key: parts_s[key][at] for key in used}
        most = max(range(len(row)), key=lambda n: row[n])
        mean = fmean(row)
        made.append(
            Strip(
                cores[at], hosts[at],
                _paths(row, split, words, scale, columns),
                _cells(at, cores[at], row, steps, scale, columns) if titles else [],
                mean, min(row), row[most], steps[most],
                [(words_, fmean(split[key])) for key, words_, _ in words],
                [(f"step-{at}-{n}", row[n]) for n in range(min(len(row), MOST_STEP_COLUMNS))],
                (mean - usual) / usual if usual else 0.0, place_of.get(hosts[at], ""),
            )
        )  # fmt: skip
    total = max(timeline.cores_total, len(durations))
    return Strips(
        made, words, steps, columns, scale, total, max(timeline.steps_total, len(steps)),
        steps[:MOST_STEP_COLUMNS], len(set(hosts)) > 1,
    )  # fmt: skip


def places(hosts: Sequence[str]) -> dict[str, str]:
    """What tells hosts apart, from the last word that they share: `host-0` of `run-7-host-0`; empty for one host."""
    names = {host: host.split("-") for host in hosts}
    if len(names) < 2:
        return {}
    shared = sum(1 for _ in takewhile(lambda words: len(set(words)) == 1, zip(*names.values(), strict=False)))
    return {host: "-".join(words[max(0, shared - 1) :]) for host, words in names.items()}


def _box(x: float, y: float, width: float, height: float) -> str:
    return f"M{x:.1f} {y:.1f}h{width:.1f}v{height:.1f}h-{width:.1f}z"


def _paths(
    row: Sequence[float],
    split: Mapping[str, Sequence[float]],
    words: list[tuple[str, str, str]],
    scale: float,
    columns: bool,
) -> list[tuple[str, str]]:
    """(colour class, SVG path) of the parts of a core's steps: end to end, or each step a column."""
    boxes: dict[str, list[str]] = {}
    start, wide = 0.0, WIDTH / len(row)
    for n, duration in enumerate(row):
        end = start + duration * WIDTH / scale
        # A hairline of surface keeps the steps apart.
        room = HEIGHT if columns else end - start - (1.6 if n + 1 < len(row) else 0.0)
        used = 0.0
        for key, _, css in words:
            size = min(split[key][n] * (HEIGHT if columns else WIDTH) / scale, room - used)
            if size > 0.05:
                column = (n * wide, HEIGHT - used - size, max(wide - 0.6, wide * 0.7), size)
                boxes.setdefault(css, []).append(_box(*column if columns else (start + used, 0, size, HEIGHT)))
                used += size
        start = end
    return [(css, "".join(parts)) for css, parts in boxes.items()]


def _cells(at: int, core: str, row: Sequence[float], steps: list[int], scale: float, columns: bool) -> list[Cell]:
    cells, start = [], 0.0
    for n, duration in enumerate(row):
        width = WIDTH / len(row) if columns else duration * WIDTH / scale
        title = f"{core}, step {steps[n]}: {formatting.seconds(duration, precise=True)}"
        cells.append(Cell(round(start, 1), round(width, 1), title, f"step-{at}-{n}"))
        start += width
    return cells


def step_parts(timeline: Timeline, core: int, step: int) -> tuple[str, float, list[tuple[str, float]]]:
    """(words, duration, parts) of one step of one core.  Raises LookupError."""
    duration = timeline.durations_s[core][step]
    parts = [(PARTS.get(key, (key, ""))[0], rows[core][step]) for key, rows in timeline.parts_s.items()]
    host = timeline.hosts[core]
    where = f"{timeline.cores[core]}{f' on {host}' if host else ''}"
    return f"Step {timeline.steps[step]} on {where}", duration, [part for part in parts if part[1] > 0]
