"""Time of the collectives on given links.  Source: scaling book 3.2, 3.3.

`array_bytes` is the size of the array whole, as one chip of the group holds it after a gather or before a
reduce-scatter; `local_bytes` is what one chip holds.  A group of one chip takes no time.  A message is either
bandwidth-bound or waits for its hops: the time is the larger of both (book 3.2).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from perfmodel.topology import Floats, Links

Bytes = npt.ArrayLike


def all_gather(links: Links, array_bytes: Bytes) -> Floats:
    """Seconds until every chip holds the whole array, of which each held its share."""
    return _floor(links, np.asarray(array_bytes) * links.gather_s_per_byte)


def reduce_scatter(links: Links, array_bytes: Bytes) -> Floats:
    """Seconds until every chip holds its share of the sum: the transpose of a gather, at the same cost."""
    return all_gather(links, array_bytes)


def all_reduce(links: Links, array_bytes: Bytes) -> Floats:
    """Seconds until every chip holds the whole sum: reduce-scatter, then all-gather."""
    return reduce_scatter(links, array_bytes) + all_gather(links, array_bytes)


def all_to_all(links: Links, local_bytes: Bytes) -> Floats:
    """Seconds until every chip has sent an equal part of its `local_bytes` to each chip of the group."""
    worst = np.maximum(links.all_to_all_s_per_byte, links.all_to_all_out_s_per_byte)
    return _floor(links, np.asarray(local_bytes) * worst)


def permute(links: Links, local_bytes: Bytes) -> Floats:
    """Seconds until every chip has sent `local_bytes` to its neighbour: one step of a ring."""
    return np.where(links.size > 1, np.asarray(local_bytes) * links.permute_s_per_byte, 0.0)


def point_to_point(link_bytes_per_s: npt.ArrayLike, hops: npt.ArrayLike, message_bytes: Bytes, hop_s: float) -> Floats:
    """Seconds for one message over `hops` links, streamed: the first byte waits for the hops, the rest for the link."""
    first = np.asarray(hops, dtype=np.float64) * hop_s
    return np.where(np.asarray(hops) > 0, np.maximum(first, np.asarray(message_bytes) / link_bytes_per_s), 0.0)


def _floor(links: Links, transfer_s: Floats) -> Floats:
    return np.where(links.size > 1, np.maximum(transfer_s, links.latency_s), 0.0)
