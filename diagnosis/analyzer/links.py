"""What the links of a mesh axis carry at best: time of one collective, bandwidth per chip.

The physics is `perfmodel.topology`; this asks them for single collectives of a profile.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from perfmodel.chips import Chip, get_chip
from perfmodel.config import ExperimentConfig, Hardware, Mesh
from perfmodel.topology import Links, collective_s, group_links, lay_out, physical_dims


@dataclass(frozen=True)
class AxisLinks:
    """The links under one axis or several.  wraps: every torus dimension it touches closes to a ring.

    stride: distance of neighbours in a dimension, the number of groups that share a link.  kind: `torus`, `nvlink`
    (inside one NVLink domain) or `network`.
    """

    links: Links
    wraps: bool
    stride: int
    kind: str


def chip_named(name: str | None) -> Chip | None:
    """The chip of this name; None where it is unknown."""
    try:
        return get_chip(name) if name else None
    except KeyError:
        return None


def chip_of(config: ExperimentConfig | None) -> Chip | None:
    return chip_named(config.hardware.chip) if config else None


def most_bytes_per_s(chip: Chip) -> float:
    """What all links of a chip together carry, one-way, bytes/s: no collective inside a slice sends faster."""
    return 2.0 * chip.ici_axes * chip.ici_link_bytes_per_s if chip.kind == "tpu" else chip.nvlink_bytes_per_s


def dcn_bytes_per_s(config: ExperimentConfig | None) -> float | None:
    """One chip's share of its host's network, one-way."""
    chip = chip_of(config)
    if chip is None or config is None:
        return None
    per_host = config.hardware.overrides.get("dcn_bytes_per_s", chip.dcn_bytes_per_s_per_host)
    return per_host / chip.chips_per_host


@lru_cache(maxsize=4096)
def _links(
    chip_name: str, topology: tuple[int, ...], ici: tuple[tuple[str, int], ...], axes: tuple[str, ...], nic: float
) -> AxisLinks | None:
    chip = get_chip(chip_name)
    members = [index for index, (name, size) in enumerate(ici) if name in axes and size > 1]
    if not members:
        return None
    dims = physical_dims(chip, topology)
    layout = lay_out(np.array([[size for _, size in ici]]), dims)
    wraps = chip.wraps(dims) if chip.kind == "tpu" else (False,) * len(dims)
    links = group_links(chip, layout, members, wraps, nic)
    extents = layout.extents[0, members, :].prod(axis=0)
    starts = [
        int(min(layout.start[0, m, d] for m in members if layout.extents[0, m, d] > 1)) if extents[d] > 1 else 1
        for d in range(len(dims))
    ]
    touched = [d for d in range(len(dims)) if extents[d] > 1]
    closes = all(wraps[d] and extents[d] * starts[d] == dims[d] for d in touched)
    kind = ("nvlink" if extents[0] == 1 else "network") if chip.kind == "gpu" else "torus"
    return AxisLinks(links, closes, max(starts), kind)


def mesh_links(hardware: Hardware, mesh: Mesh, axes: tuple[str, ...]) -> AxisLinks | None:
    """The links of these ICI axes if `mesh` ran on `hardware`; None where the chip is unknown or nothing is sent."""
    chip = chip_named(hardware.chip)
    if chip is None:
        return None
    nic = hardware.overrides.get("dcn_bytes_per_s", chip.dcn_bytes_per_s_per_host) / chip.chips_per_host
    return _links(chip.name, hardware.topology, mesh.ici, axes, nic)


def wire_bytes(kind: str, payload_bytes: float, participants: int) -> float:
    """Bytes one chip has to send at least.  payload: see `ideal_time_s`.  Source: scaling book 3.2, 3.3."""
    if participants < 2:
        return 0.0
    part = (participants - 1) / participants
    match kind:
        case "all-reduce":
            return 2.0 * part * payload_bytes
        case "all-gather" | "reduce-scatter" | "all-to-all":
            return part * payload_bytes
        case _:
            return payload_bytes


def ideal_time_s(kind: str, payload_bytes: float, links: Links) -> float:
    """Least time of one collective, s.

    payload: the whole array as one group holds it (all-gather, reduce-scatter, all-reduce), or what one chip holds
    (all-to-all, permute, send).
    """
    return float(collective_s(kind, links, payload_bytes)[0])
