"""Plots of the campaigns' report: regret by trial, and the share of workloads ahead or level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10

import numpy as np
import numpy.typing as npt

from evaluation.accuracy_plots import COLOURS, MARGIN, SIZE, label, svg

Floats = npt.NDArray[np.float64]

HEIGHT = 360
#: The least regret that is drawn.
LEAST = 1e-3


def trajectories_plot(curves: Mapping[str, Floats]) -> str:
    """Regret on a logarithmic axis; what is below `LEAST` lies on the axis."""
    high = max(float(curve.max()) for curve in curves.values())
    span = log10(high / LEAST)

    def at(value: float) -> float:
        return log10(max(value, LEAST) / LEAST) / span

    marks = {value: f"{100 * value:g} %" for value in (0.001, 0.01, 0.02, 0.1, 1.0) if value <= high}
    lines = {name: [at(float(value)) for value in curve] for name, curve in curves.items()}
    return _plot(lines, {at(value): text for value, text in marks.items()}, "Time of the best so far over the fastest")


def ahead_plot(shares: Mapping[str, Sequence[float]]) -> str:
    marks = {share: f"{100 * share:.0f} %" for share in (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)}
    return _plot(shares, marks, "Workloads on which the campaign is ahead or level")


def _plot(lines: Mapping[str, Sequence[float]], marks: Mapping[float, str], title: str) -> str:
    """Lines of values 0 to 1 by trial."""
    wide, tall = SIZE - 2 * MARGIN, HEIGHT - 2 * MARGIN
    count = max(len(values) for values in lines.values())

    def x(trial: int) -> float:
        return MARGIN + wide * (trial - 1) / max(1, count - 1)

    body = []
    for value, text in marks.items():
        y = HEIGHT - MARGIN - tall * value
        body += [
            f'<path d="M{MARGIN} {y:.1f}H{SIZE - MARGIN}" stroke="#e2e8f0"/>',
            label(MARGIN - 8, y + 4, text, "end"),
        ]
    body += [label(x(trial), HEIGHT - MARGIN + 18, str(trial)) for trial in (1, 3, 5, 8, 12, 16, 20) if trial <= count]
    for i, (name, values) in enumerate(lines.items()):
        points = "L".join(f"{x(n):.1f} {HEIGHT - MARGIN - tall * value:.1f}" for n, value in enumerate(values, start=1))
        colour = COLOURS[i % len(COLOURS)]
        top = HEIGHT - 16
        left = MARGIN + i * (wide + MARGIN) / len(lines)
        body += [
            f'<path d="M{points}" stroke="{colour}" stroke-width="2" fill="none"/>',
            f'<circle cx="{left:.1f}" cy="{top - 4}" r="4" fill="{colour}"/>',
            label(left + 8, top, name, "start"),
        ]
    body.append(label(SIZE / 2, HEIGHT - MARGIN + 32, "trial"))
    return svg(SIZE, HEIGHT, title, body)
