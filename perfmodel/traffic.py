"""The communication of one kind of parallelism in a step: seconds at peak, bytes and calls, per chip."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.collectives import gather_transfer
from perfmodel.topology import Floats, Links


@dataclass(frozen=True)
class Traffic:
    """One kind of communication: seconds at full bandwidth, and calls per step.

    group: the links it runs on (key of MeshNumbers.links), overlap: which overlap efficiency applies to it.  ici_s: on
    the links inside a slice or an NVLink domain; network_s: between NVLink domains, at the same time; dcn_s: across
    slices.  calls: on the critical path of the group; ranks: chips of the group, domains: NVLink domains it spans.
    reduced: 1 where it is one all-reduce of unsharded gradients per step, whatever the micro-batches; sharded: 1 where
    gradients and weights of a sharded optimizer move once per step.  sent_bytes: by a chip inside the slice, per step.
    """

    group: str
    overlap: str
    ici_s: Floats
    network_s: Floats
    dcn_s: Floats
    calls: Floats
    ranks: Floats
    domains: Floats
    reduced: Floats
    sharded: Floats
    sent_bytes: Floats


def distinct(bins: Floats, draws: Floats) -> Floats:
    """Expected number of distinct bins that `draws` uniform draws hit."""
    return bins * (1.0 - (1.0 - 1.0 / bins) ** draws)


def gather(
    group: str,
    overlap: str,
    inside: Links,
    across: Links,
    array_bytes: Floats,
    calls: Floats,
    reduced: np.ndarray | bool = False,
    sharded: np.ndarray | bool = False,
) -> Traffic:
    """Gathers or scatters of `array_bytes` in all; across slices each chip moves what it holds of them."""
    moved = gather_transfer(inside, array_bytes, calls)
    return Traffic(
        group=group,
        overlap=overlap,
        ici_s=moved.inside_s,
        network_s=moved.between_s,
        dcn_s=gather_transfer(across, array_bytes).time_s / inside.size,
        calls=np.where((inside.size > 1) | (across.size > 1), calls, 0.0),
        ranks=inside.size,
        domains=inside.domains,
        reduced=np.asarray(reduced, dtype=np.float64),
        sharded=np.asarray(sharded, dtype=np.float64),
        sent_bytes=array_bytes * others(inside),
    )


def others(links: Links) -> Floats:
    """Of an array that a group shares, the part that a chip does not hold itself."""
    return np.asarray(1.0 - 1.0 / links.size)
