"""Mapping of mesh axes to links: torus dimensions, rings or lines, NVLink domain or network.

A mesh is laid row-major on the topology (first axis major).  An axis then occupies an extent of each physical
dimension: all of it, the minor part (neighbouring chips), or the major part (chips some stride apart, whose
interleaved rings share the links).  Arrays run over candidates in the first dimension.

Source: scaling book 2.2 (wraparound), 3.2 and 3.3 (bandwidth adds over dimensions; without wraparound half of it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfmodel.arrays import Floats
from perfmodel.chips import Chip

Ints = npt.NDArray[np.int64]

#: Time of one hop between neighbouring chips (book 3.2: about a microsecond).
ICI_HOP_S = 1.0e-6
#: Software and switch latency of one message over NVLink, over a network card, over the data-centre network.
NVLINK_HOP_S = 3.0e-6
NIC_HOP_S = 8.0e-6
DCN_HOP_S = 5.0e-5


@dataclass(frozen=True)
class Links:
    """Link bandwidth available to a collective on one axis or group of axes.  Arrays over candidates.

    size: chips that take part.  gather_in_s_per_byte: time to gather one byte of the *gathered* array everywhere, over
    torus links or NVLink; gather_out_s_per_byte: over the network between NVLink domains, at the same time.
    all_to_all_s_per_byte: time per byte that a chip holds and spreads over the group; all_to_all_out_s_per_byte: the
    same between NVLink domains, of which there are `domains`.  permute_s_per_byte: time per byte a chip sends to its
    neighbour.  latency_s: of the hops of one gather.  All are 0 where size is 1.
    """

    size: Floats
    gather_in_s_per_byte: Floats
    gather_out_s_per_byte: Floats
    all_to_all_s_per_byte: Floats
    all_to_all_out_s_per_byte: Floats
    domains: Floats
    permute_s_per_byte: Floats
    latency_s: Floats

    @classmethod
    def none(cls) -> Links:
        """A group of one chip: nothing to send."""
        zero = np.zeros(1)
        return cls(np.ones(1), zero, zero, zero, zero, np.ones(1), zero, zero)

    @property
    def gather_s_per_byte(self) -> Floats:
        """Time to gather one byte of the gathered array: the slower of both kinds of links decides."""
        return np.maximum(self.gather_in_s_per_byte, self.gather_out_s_per_byte)


@dataclass(frozen=True)
class Layout:
    """Extents of every axis on every physical dimension.

    sizes: (candidates, axes).  extents: (candidates, axes, dimensions); start: the same shape, the stride inside the
    dimension at which the extent begins.  regular: (candidates,) whether every axis covers whole dimensions or divides
    them evenly, as a torus needs.
    """

    dims: tuple[int, ...]
    sizes: Ints
    extents: Ints
    start: Ints
    regular: npt.NDArray[np.bool_]


def physical_dims(chip: Chip, topology: Sequence[int]) -> tuple[int, ...]:
    """Physical dimensions, major to minor.  A GPU topology [GPUs per domain, domains] has its domains major."""
    if chip.kind == "tpu":
        return tuple(topology)
    per_domain, domains = (*topology, 1, 1)[:2]
    rest = int(np.prod(topology[2:])) if len(topology) > 2 else 1
    return (domains * rest, per_domain)


def lay_out(sizes: Ints, dims: Sequence[int]) -> Layout:
    """Lay meshes row-major on `dims`.  sizes: (candidates, axes), major to minor, product = product of dims.

    Sizes that do not divide along the dimensions are kept (the extents are then rounded up) and marked not regular.
    """
    sizes = np.asarray(sizes, dtype=np.int64)
    shape = np.asarray(dims, dtype=np.int64)
    axis_stride = np.cumprod(sizes[:, ::-1], axis=1)[:, ::-1] // sizes
    dim_stride = (np.cumprod(shape[::-1])[::-1] // shape)[None, None, :]
    low = np.maximum(axis_stride[:, :, None], dim_stride)
    high = np.minimum((axis_stride * sizes)[:, :, None], dim_stride * shape[None, None, :])
    inside = high > low
    extents = np.where(inside, -(-high // low), 1)
    start = np.where(inside, low // dim_stride, 1)
    a, d = axis_stride[:, :, None], dim_stride
    divides = (a % d == 0) | (d % a == 0)
    whole = np.all(divides, axis=(1, 2)) & (np.prod(sizes, axis=1) == int(np.prod(shape)))
    return Layout(tuple(int(n) for n in dims), sizes, extents, start, whole)


def group_links(
    chip: Chip, layout: Layout, members: Sequence[int], wraps: Sequence[bool], nic_bytes_per_s: float | None = None
) -> Links:
    """Links of the chips that differ only along the axes `members` (indices into the mesh's axes).

    wraps: per physical dimension of a torus, whether it closes to a ring.  nic_bytes_per_s: network of one GPU, the
    chip's own share of its host's by default.  Empty `members` is a group of one.
    """
    index = list(members)
    if not index:
        return Links.none()
    extent = np.prod(layout.extents[:, index, :], axis=1).astype(np.float64)
    start = np.min(np.where(layout.extents[:, index, :] > 1, layout.start[:, index, :], np.iinfo(np.int64).max), axis=1)
    start = np.where(extent > 1, start, 1).astype(np.float64)
    size = np.prod(layout.sizes[:, index], axis=1).astype(np.float64)
    if chip.kind == "tpu":
        return _torus(chip, layout.dims, size, extent, start, wraps)
    nic = chip.dcn_bytes_per_s_per_chip if nic_bytes_per_s is None else nic_bytes_per_s
    return _switched(chip, size, extent, nic)


def _torus(
    chip: Chip, dims: tuple[int, ...], size: Floats, extent: Floats, start: Floats, wraps: Sequence[bool]
) -> Links:
    link = chip.ici_link_bytes_per_s
    # The major part of a ring is itself a ring of neighbours `start` chips apart; as many rings share the links.
    reaches_end = start * extent == np.asarray(dims, dtype=np.float64)[None, :]
    ring = np.asarray(wraps, dtype=bool)[None, :] & reaches_end & (extent > 1)
    per_link = link / start
    used = extent > 1
    # Seconds per byte if the group lay on this dimension alone: half-way round a ring both ways (book 3.2), or end to
    # end of a line with every hop the size of a shard.
    steps = np.where(ring, np.floor(extent / 2.0), extent - 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.where(used, extent * per_link / np.maximum(steps, 1.0), 0.0)
    total = rate.sum(axis=1)
    gather = np.where(total > 0, 1.0 / np.maximum(total, 1.0), 0.0)
    # Whatever the schedule, every chip takes in all but its own share; at the corner of dimensions without wraparound
    # it has one link for each of them, not two.
    ingress = np.where(used, per_link * np.where(ring, 2.0, 1.0), 0.0).sum(axis=1)
    gather = np.maximum(gather, np.where(size > 1, (1.0 - 1.0 / size) / np.maximum(ingress, 1.0), 0.0))
    # Of what a chip spreads, the busiest link of a dimension carries n/8 shares on a ring, n/4 on a line (book 3.3.1).
    spread = np.where(used, np.where(ring, extent / 8.0, extent / 4.0) / per_link, 0.0).max(axis=1)
    neighbour = np.where(used, 1.0 / per_link, np.inf).min(axis=1)
    neighbour = np.where(size > 1, neighbour, 0.0)
    latency = ICI_HOP_S * np.where(used, steps * start, 0.0).sum(axis=1)
    nothing = np.zeros_like(size)
    return Links(size, gather, nothing, spread, nothing, np.ones_like(size), neighbour, latency)


def _switched(chip: Chip, size: Floats, extent: Floats, nic_bytes_per_s: float) -> Links:
    nodes, inside = extent[:, 0], extent[:, 1]
    nvlink = chip.nvlink_bytes_per_s
    # Inside a domain every GPU takes in all but its own share; across domains the group's GPUs share the work, each
    # with its own network card.  Both run at once, the slower decides.
    gather_in = np.where(inside > 1, (size - 1.0) / size / nvlink, 0.0)
    gather_out = np.where(nodes > 1, (nodes - 1.0) / nodes / (inside * nic_bytes_per_s), 0.0)
    spread_in = np.where(inside > 1, (size - 1.0) / size / nvlink, 0.0)
    spread_out = np.where(nodes > 1, (nodes - 1.0) / nodes / nic_bytes_per_s, 0.0)
    neighbour = np.where(nodes > 1, 1.0 / nic_bytes_per_s, np.where(inside > 1, 1.0 / nvlink, 0.0))
    latency = np.where(inside > 1, NVLINK_HOP_S, 0.0) + np.where(nodes > 1, NIC_HOP_S * np.log2(nodes), 0.0)
    return Links(size, gather_in, gather_out, spread_in, spread_out, nodes, neighbour, latency)


def network_links(size: npt.ArrayLike, bytes_per_s_per_chip: float) -> Links:
    """Links of a group that spans slices over the data-centre network, one chip of it in each slice."""
    n = np.atleast_1d(np.asarray(size, dtype=np.float64))
    share = (n - 1.0) / n / bytes_per_s_per_chip
    one = np.where(n > 1, 1.0 / bytes_per_s_per_chip, 0.0)
    nothing = np.zeros_like(n)
    return Links(n, share, nothing, share, nothing, np.ones_like(n), one, np.where(n > 1, DCN_HOP_S, 0.0))


@dataclass(frozen=True)
class Transfer:
    """Seconds at full bandwidth on both kinds of links, which work at the same time.

    inside_s: torus links of a slice, NVLink of a domain.  between_s: network between NVLink domains.
    """

    inside_s: Floats
    between_s: Floats

    @property
    def time_s(self) -> Floats:
        return np.maximum(self.inside_s, self.between_s)


def moved(amount: npt.ArrayLike, each: Floats) -> Floats:
    """Return the product, of shape (1,) where `each` is 0 for all candidates: what none of them sends takes no time to
    compute."""
    return np.asarray(amount) * each if np.any(each) else np.zeros(1)


def gather_transfer(links: Links, array_bytes: npt.ArrayLike, calls: npt.ArrayLike = 0.0) -> Transfer:
    """An all-gather or its transpose, a reduce-scatter, of `array_bytes` in all.

    calls: in how many messages; inside the slice or domain each takes at least the latency of its hops.
    """
    inside = np.maximum(moved(array_bytes, links.gather_in_s_per_byte), moved(calls, links.latency_s))
    return Transfer(np.where(links.size > 1, inside, 0.0), moved(array_bytes, links.gather_out_s_per_byte))


def all_to_all_transfer(
    links: Links, local_bytes: npt.ArrayLike, between_bytes: npt.ArrayLike | None = None
) -> Transfer:
    """An all-to-all.  between_bytes: what of a chip's bytes is spread over the domains, where it is not all of them."""
    across = local_bytes if between_bytes is None else between_bytes
    return Transfer(moved(local_bytes, links.all_to_all_s_per_byte), moved(across, links.all_to_all_out_s_per_byte))


def permute_transfer(links: Links, local_bytes: npt.ArrayLike) -> Transfer:
    """One step of a ring: the hop between two domains, where there is one, determines the time."""
    hop = np.where(links.size > 1, moved(local_bytes, links.permute_s_per_byte), 0.0)
    spans = links.domains > 1
    return Transfer(np.where(spans, 0.0, hop), np.where(spans, hop, 0.0))


def collective_s(kind: str, links: Links, payload_bytes: npt.ArrayLike) -> Floats:
    """Return the seconds of one collective (`all-gather`, `all-reduce`, …), at least the latency of its hops.

    payload_bytes: of the whole array of an all-gather, reduce-scatter or all-reduce; of what one chip sends in an
    all-to-all or, in any other kind, to its neighbour.  A group of one chip takes no time.
    """
    if kind == "all-reduce":  # a reduce-scatter, then an all-gather
        return 2.0 * collective_s("all-gather", links, payload_bytes)
    if kind in ("all-gather", "reduce-scatter"):
        transfer_s = gather_transfer(links, payload_bytes).time_s
    elif kind == "all-to-all":
        transfer_s = all_to_all_transfer(links, payload_bytes).time_s
    else:
        return permute_transfer(links, payload_bytes).time_s
    return np.where(links.size > 1, np.maximum(transfer_s, links.latency_s), 0.0)
