"""Axes without wraparound."""

from __future__ import annotations

from collections.abc import Iterator

from diagnosis.analyzer.facts import Facts, OpFacts, total_exposed
from diagnosis.analyzer.links import mesh_links
from diagnosis.analyzer.quantity import evidence
from diagnosis.analyzer.rules.base import EXPOSED, Claim, claim, exposed_of, lines
from experiments.sentences import say

NOTABLE = 0.10
_RINGS = ("all-gather", "reduce-scatter", "all-reduce")


def open_rings(facts: Facts) -> Iterator[Claim]:
    """One axis on a torus dimension without wraparound: a line has one link where a ring has two (book 2.2, 3.2)."""
    if facts.config is None or facts.chip is None or facts.chip.kind != "tpu":
        return
    by_axis: dict[str, list[OpFacts]] = {}
    for op in facts.collectives:
        if len(op.axes) == 1 and not op.over_dcn and op.collective and op.collective.kind in _RINGS:
            by_axis.setdefault(op.axes[0], []).append(op)
    for axis, ops in by_axis.items():
        share = total_exposed(ops)
        mapped = mesh_links(facts.config.hardware, facts.config.mesh, (axis,))
        if share < NOTABLE or mapped is None or mapped.wraps or mapped.kind != "torus":
            continue
        size = float(mapped.links.size[0])
        # Bytes that a chip sends, as achieved and possible bandwidth are stated: all but its own share of the array.
        sends = (size - 1.0) / size
        now = sends / float(mapped.links.gather_s_per_byte[0])
        ring = sends * 2.0 * facts.chip.ici_link_bytes_per_s
        if now >= 0.9 * ring:
            continue
        cost = exposed_of(f"collectives on axis {axis}", ops)
        gives = evidence(
            f"link bandwidth per chip of axis {axis}",
            now,
            "bytes_per_s",
            "computed",
            "its links on this topology",
            "chips.toml",
        )
        could = evidence(
            "of a ring with wraparound", ring, "bytes_per_s", "computed", "2 × link bytes/s × (n − 1) ÷ n", "chips.toml"
        )
        closes = any(facts.chip.wraps(facts.config.hardware.topology))
        yield claim(
            facts,
            "open_rings",
            f"Axis `{axis}` without wraparound links",
            say(
                "Axis `{}` spans part of a torus dimension, or one without wraparound: its links carry {}, a ring"
                " with wraparound {}. Its collectives take {} {}{}.",
                axis,
                gives,
                could,
                cost,
                facts.base,
                lines(ops),
            ),
            (
                f"Order the axes of the mesh so that `{axis}` has the whole dimension of its size."
                if closes and size in facts.config.hardware.topology
                else f"No dimension of this slice has the size of `{axis}`: give it fewer chips, or send "
                "fewer bytes over it."
                if closes
                else "No dimension of this slice has wraparound; larger slices do (full dimensions on v5e and v6e, "
                "whole cubes on v4 and v5p)."
            ),
            share * (1.0 - now / ring),
            ops=ops,
            part=EXPOSED,
            axis=axis,
        )
