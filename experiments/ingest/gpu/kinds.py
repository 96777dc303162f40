"""Kinds of op: what occurrences on a device have in common, named by framework op, shapes and kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from experiments.ingest.gpu import kernels
from experiments.ingest.gpu.columns import COPY, FILL, Collected
from experiments.ingest.gpu.contexts import Context, phase_name
from experiments.ingest.gpu.device import Exchange, Kind
from experiments.ingest.values import text

#: Known collectives take this many times as long as known other work on a stream of collectives.
COMMUNICATION_STREAM = 4.0


def read_kinds(
    collected: Collected, placed: list[Context], products: NDArray[np.int64], comms: list[int]
) -> tuple[list[Kind], NDArray[np.int64]]:
    """The kinds of op of a trace, and which each device event is.  comms: index of its collective call, -1 for none."""
    rows, names = collected.device, collected.names.texts
    index: dict[Kind, int] = {}
    known: dict[tuple[object, ...], int] = {}
    kind = np.zeros(len(placed), np.int64)
    columns = (rows["what"].tolist(), rows["name"].tolist(), products.tolist(), comms)
    for row, (context, what, name, product, comm) in enumerate(zip(placed, *columns, strict=True)):
        key = (what, name, context.op, context.phase, context.path, context.source, product, comm)
        place = known.get(key)
        if place is None:
            made = _kind(collected, names[name], what, context, product, comm)
            place = known[key] = index.setdefault(made, len(index))
        kind[row] = place
    return list(index), kind


def with_roles_of_streams(
    kinds: list[Kind], kind: NDArray[np.int64], streams: NDArray[np.int64], durations: NDArray[np.int64]
) -> list[Kind]:
    """The kinds; kernels of unknown kind that run on streams of collectives alone are collectives."""
    talks = np.array([one.exchange is not None for one in kinds], np.bool_)
    unknown = np.array([one.category == kernels.OTHER for one in kinds], np.bool_)
    if not talks.any() or not unknown.any():
        return kinds
    _, stream = np.unique(streams, return_inverse=True)
    talked = np.bincount(stream, durations * talks[kind])
    worked = np.bincount(stream, durations * ~(talks | unknown)[kind])
    communicates = talked > COMMUNICATION_STREAM * worked
    roles = list(kinds)
    for index in np.flatnonzero(unknown).tolist():
        if communicates[stream[kind == index]].all():
            name = f"collective: {kinds[index].name.rpartition(': ')[2]}"
            roles[index] = replace(kinds[index], name=name, category="collective", exchange=Exchange("collective"))
    return roles


def _kind(collected: Collected, kernel: str, what: int, context: Context, product: int, comm: int) -> Kind:
    path = "/".join(part for part in (phase_name(context, collected.trains), *context.path, context.op) if part)
    path, source = text(path, 1000), text(context.source, 500)
    base = text(kernels.base_name(kernel), 160)
    if what == COPY:
        return Kind(_launched(context.op, text(kernel, 80)), kernels.copy_category(kernel), path, source)
    if what == FILL:
        return Kind(_launched(context.op, "Memset"), kernels.MEMSET, path, source)
    stated = collected.comms[comm] if comm >= 0 else None
    talks = kernels.launched_kind(kernel, context.op, is_stated=stated is not None)
    if talks:
        exchange = stated.exchange if stated else Exchange(talks)
        if exchange.kind == "collective":
            exchange = replace(exchange, kind=talks)
        size = f" {_payload(exchange.payload_bytes)}" if exchange.payload_bytes else ""
        group = f" {exchange.group_name}" if exchange.group_name else ""
        return Kind(f"{exchange.kind}{group}{size}: {base}", exchange.kind, path, source, exchange=exchange)
    work = collected.works[product][0] if product >= 0 else None
    op = f"{context.op}[{work.shapes}]" if work else context.op
    dtype = work.dtype if work else ""
    return Kind(_launched(op, base), kernels.category(kernel, context.op), path, source, dtype)


def _launched(op: str, kernel: str) -> str:
    """`aten::mm[8x4, 4x2]: nvjet_…`.  An op of a process group that copies is no collective: its kernel says so."""
    if not op or op == kernel or kernels.stated_kind(op) != "collective":
        return kernel
    return f"{text(op, 200)}: {kernel}"


def _payload(num_bytes: float) -> str:
    """`36.4 MB`.  Part of an op's name, by which profiles are compared: not to be changed with how pages show sizes."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= factor:
            return f"{num_bytes / factor:.1f} {unit}"
    return f"{num_bytes:.0f} bytes"
