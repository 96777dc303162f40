"""Plain SVG plots of the accuracy report: no library, readable in light and dark, a title for screen readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10
from xml.sax.saxutils import escape

from evaluation.accuracy_numbers import ErrorScores, Point

COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#97266d", "#6b46c1", "#b7791f", "#285e61", "#9b2c2c", "#4a5568")
SIZE, MARGIN = 520, 60


def svg(width: float, height: float, title: str, body: Sequence[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img"'
            f' font-family="system-ui, sans-serif" font-size="12">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>',
            f'<text x="{width / 2:g}" y="22" text-anchor="middle" font-size="15" fill="#1a202c">{escape(title)}</text>',
            *body,
            "</svg>",
            "",
        ]
    )


def label(x: float, y: float, words: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#2d3748">{escape(words)}</text>'


def scatter(points: Sequence[Point], title: str) -> str:
    """Measured against estimated step time in seconds on logarithmic axes, one colour per chip; mixtures are hollow."""
    values = [value for p in points for value in (p.measured_s, p.estimate_s)]
    low, high = floor(log10(min(values)) * 4) / 4, ceil(log10(max(values)) * 4) / 4
    span = SIZE - 2 * MARGIN

    def at(value: float) -> float:
        return (log10(value) - low) / (high - low) * span

    body = [f'<path d="M{MARGIN} {SIZE - MARGIN}L{SIZE - MARGIN} {MARGIN}" stroke="#a0aec0" fill="none"/>']
    for power in range(ceil(low), floor(high) + 1):
        offset = at(10.0**power)
        x, y = MARGIN + offset, SIZE - MARGIN - offset
        body += [
            f'<path d="M{x:.1f} {MARGIN}V{SIZE - MARGIN}M{MARGIN} {y:.1f}H{SIZE - MARGIN}" stroke="#e2e8f0"/>',
            label(x, SIZE - MARGIN + 18, f"{10.0**power:g}"),
            label(MARGIN - 8, y + 4, f"{10.0**power:g}", "end"),
        ]
    chips = sorted({p.chip for p in points})
    for p in points:
        colour = COLOURS[chips.index(p.chip) % len(COLOURS)]
        x, y = MARGIN + at(p.measured_s), SIZE - MARGIN - at(p.estimate_s)
        fill = "#ffffff" if p.mixture else colour
        error = p.estimate_s / p.measured_s - 1
        body += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{fill}" stroke="{colour}">'
            f"<title>{escape(p.id)} {escape(p.model)} on {escape(p.chip)}: {error:+.0%}</title></circle>",
        ]
    for i, chip in enumerate(chips):
        y = MARGIN + 14 + 16 * i
        body += [
            f'<circle cx="{MARGIN + 14}" cy="{y - 4}" r="4" fill="{COLOURS[i % len(COLOURS)]}"/>',
            label(MARGIN + 24, y, chip, "start"),
        ]
    body += [
        label(SIZE / 2, SIZE - 18, "measured step time, s (hollow: mixture of experts)"),
        f'<text transform="translate(16 {SIZE / 2}) rotate(-90)" text-anchor="middle" fill="#2d3748">estimate, s'
        "</text>",
    ]
    return svg(SIZE, SIZE, title, body)


def bars(rows: Mapping[str, ErrorScores], title: str) -> str:
    """Median absolute error per row beside the naive model's, in percent."""
    height = 70 + 34 * len(rows)
    largest = max(max(row.median, row.naive_median) for row in rows.values())
    scale = (SIZE - 190) / largest
    body = []
    for i, (name, row) in enumerate(rows.items()):
        y = 44 + 34 * i
        body.append(label(100, y + 16, f"{name} ({row.rows})", "end"))
        for offset, error, colour in ((0, row.median, COLOURS[0]), (13, row.naive_median, "#a0aec0")):
            body += [
                f'<rect x="108" y="{y + offset}" width="{error * scale:.1f}" height="11" fill="{colour}"/>',
                label(113 + error * scale, y + offset + 10, f"{100 * error:.1f} %", "start"),
            ]
    body.append(label(SIZE / 2, height - 12, "blue: this model; grey: constant share of peak"))
    return svg(SIZE, height, title, body)


def reliability(series: Mapping[str, Sequence[Mapping[str, float]]], title: str) -> str:
    """Share that came true against stated probability, one colour per series, from 0.4 to 1; the area of a dot is the
    weight behind it.  Rows: stated, right, weight, pairs."""
    low, high, span = 0.4, 1.0, SIZE - 2 * MARGIN
    heaviest = max(row["weight"] for rows in series.values() for row in rows)

    def at(value: float) -> float:
        return (min(max(value, low), high) - low) / (high - low) * span

    body = [f'<path d="M{MARGIN} {SIZE - MARGIN}L{SIZE - MARGIN} {MARGIN}" stroke="#a0aec0" fill="none"/>']
    for percent in range(40, 101, 10):
        offset = at(percent / 100)
        x, y = MARGIN + offset, SIZE - MARGIN - offset
        body += [
            f'<path d="M{x:.1f} {MARGIN}V{SIZE - MARGIN}M{MARGIN} {y:.1f}H{SIZE - MARGIN}" stroke="#e2e8f0"/>',
            label(x, SIZE - MARGIN + 18, f"{percent} %"),
            label(MARGIN - 8, y + 4, f"{percent} %", "end"),
        ]
    for i, (name, rows) in enumerate(series.items()):
        colour = COLOURS[i % len(COLOURS)]
        dots = [(MARGIN + at(row["stated"]), SIZE - MARGIN - at(row["right"]), row) for row in rows]
        line = "L".join(f"{x:.1f} {y:.1f}" for x, y, _ in dots)
        body.append(f'<path d="M{line}" stroke="{colour}" stroke-opacity="0.5" fill="none"/>')
        body += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{3 + 7 * (row["weight"] / heaviest) ** 0.5:.1f}" fill="{colour}"'
            f' fill-opacity="0.8"><title>{escape(name)}: stated {row["stated"]:.0%}, came true {row["right"]:.0%}, '
            f"{row['pairs']:.0f} pairs</title></circle>"
            for x, y, row in dots
        ]
        y = MARGIN + 14 + 16 * i
        body += [
            f'<circle cx="{MARGIN + 14}" cy="{y - 4}" r="4" fill="{colour}"/>',
            label(MARGIN + 24, y, name, "start"),
        ]
    body += [
        label(SIZE / 2, SIZE - 18, "stated confidence (area of a dot: weight of its pairs)"),
        f'<text transform="translate(14 {SIZE / 2}) rotate(-90)" text-anchor="middle" fill="#2d3748">came true</text>',
    ]
    return svg(SIZE, SIZE, title, body)
