"""Time of the collectives on given links.  Source: scaling book 3.2, 3.3.

`array_bytes` is the size of the array whole, as one chip of the group holds it after a gather or before a
reduce-scatter; `local_bytes` is what one chip holds.  A group of one chip takes no time.  A message is either
bandwidth-bound or waits for its hops: the time is the larger of both (book 3.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfmodel.topology import Floats, Links

Bytes = npt.ArrayLike


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


def gather_transfer(links: Links, array_bytes: Bytes, calls: npt.ArrayLike = 0.0) -> Transfer:
    """An all-gather or its transpose, a reduce-scatter, of `array_bytes` in all.

    calls: in how many messages; inside the slice or domain each takes at least the latency of its hops.
    """
    moved = np.asarray(array_bytes)
    inside = np.maximum(moved * links.gather_in_s_per_byte, np.asarray(calls) * links.latency_s)
    return Transfer(np.where(links.size > 1, inside, 0.0), moved * links.gather_out_s_per_byte)


def all_to_all_transfer(links: Links, local_bytes: Bytes, between_bytes: Bytes | None = None) -> Transfer:
    """An all-to-all.  between_bytes: what of a chip's bytes is spread over the domains, where it is not all of them."""
    across = local_bytes if between_bytes is None else between_bytes
    return Transfer(
        np.asarray(local_bytes) * links.all_to_all_s_per_byte,
        np.asarray(across) * links.all_to_all_out_s_per_byte,
    )


def permute_transfer(links: Links, local_bytes: Bytes) -> Transfer:
    """One step of a ring: the hop between two domains, where there is one, determines the time."""
    hop = np.where(links.size > 1, np.asarray(local_bytes) * links.permute_s_per_byte, 0.0)
    spans = links.domains > 1
    return Transfer(np.where(spans, 0.0, hop), np.where(spans, hop, 0.0))


def all_gather(links: Links, array_bytes: Bytes) -> Floats:
    """Seconds until every chip holds the whole array, of which each held its share."""
    return _floor(links, gather_transfer(links, array_bytes).time_s)


def reduce_scatter(links: Links, array_bytes: Bytes) -> Floats:
    """Seconds until every chip holds its share of the sum: the transpose of a gather, at the same cost."""
    return all_gather(links, array_bytes)


def all_reduce(links: Links, array_bytes: Bytes) -> Floats:
    """Seconds until every chip holds the whole sum: reduce-scatter, then all-gather."""
    return reduce_scatter(links, array_bytes) + all_gather(links, array_bytes)


def all_to_all(links: Links, local_bytes: Bytes) -> Floats:
    """Seconds until every chip has sent an equal part of its `local_bytes` to each chip of the group."""
    return _floor(links, all_to_all_transfer(links, local_bytes).time_s)


def permute(links: Links, local_bytes: Bytes) -> Floats:
    """Seconds until every chip has sent `local_bytes` to its neighbour: one step of a ring."""
    return permute_transfer(links, local_bytes).time_s


def _floor(links: Links, transfer_s: Floats) -> Floats:
    return np.where(links.size > 1, np.maximum(transfer_s, links.latency_s), 0.0)
