"""What the performance model predicts of what the compiler reports: memory of a chip, bytes sent per mesh axis."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.codec import Json
from perfmodel import memory
from perfmodel.config import ConfigError, ExperimentConfig
from perfmodel.terms import step_terms
from perfmodel.workload import GROUPS, from_config
from proposals.compiling import collectives
from proposals.compiling.result import CHECK, CollectiveUse, CompileCheck


@dataclass(frozen=True)
class AxisBytes:
    """Bytes that a chip sends per step over a group of axes; None where one of both does not know the group.

    kinds: what the compiler runs there, the most bytes first.
    """

    axes: tuple[str, ...]
    compiled: float | None
    predicted: float | None
    kinds: tuple[str, ...] = ()


def memory_bytes(config: ExperimentConfig) -> float | None:
    """Bytes per chip; None where model, batch or length is missing."""
    try:
        return float(memory.per_chip(from_config(config)).total.max())
    except ConfigError:
        return None


def sent_bytes(config: ExperimentConfig) -> dict[tuple[str, ...], float]:
    """By mesh axes, major to minor, inside a slice; axes of size 1 left out."""
    try:
        traffic = step_terms(from_config(config)).traffic
    except ConfigError:
        return {}
    sent_by_axes: dict[tuple[str, ...], float] = {}
    for name, item in traffic.items():
        roles = GROUPS.get(item.group, (name,))
        axes = tuple(axis for axis, size in config.mesh.ici if size > 1 and config.mesh.role(axis) in roles)
        sent = float(item.sent_bytes.max())
        if axes and sent:
            sent_by_axes[axes] = sent_by_axes.get(axes, 0.0) + sent
    return sent_by_axes


def by_axis(config: ExperimentConfig, checked: CompileCheck) -> list[AxisBytes]:
    """Compiled beside predicted, the largest first."""
    compiled, predicted = collectives.by_axis(checked.collectives), sent_bytes(config)
    rows = [
        AxisBytes(axes, compiled.get(axes), predicted.get(axes), _kinds(checked.collectives, axes))
        for axes in {**compiled, **predicted}
    ]
    return sorted(rows, key=lambda row: -max(row.compiled or 0.0, row.predicted or 0.0))


def _kinds(uses: tuple[CollectiveUse, ...], axes: tuple[str, ...]) -> tuple[str, ...]:
    sums: dict[str, float] = {}
    for use in uses:
        if use.axes == axes:
            sums[use.kind] = sums.get(use.kind, 0.0) + use.sent_bytes
    return tuple(sorted(sums, key=lambda kind: -sums[kind]))


def to_json(config: ExperimentConfig, checked: CompileCheck, most: int = 10) -> Json:
    """What `asap compile --json` and the API print.  most: collectives listed, the largest ones."""
    check = CHECK.plain(checked)
    return check | {
        "predicted_bytes": memory_bytes(config),
        "axes": [
            {"axes": list(row.axes), "kinds": list(row.kinds), "sent_bytes": row.compiled,
             "predicted_sent_bytes": row.predicted}
            for row in by_axis(config, checked)
        ] if checked.outcome == "fits" else [],
        "collectives": check["collectives"][:most],
        "versions": checked.versions or {},
    }  # fmt: skip
