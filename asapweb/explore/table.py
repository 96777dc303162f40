"""All meshes of a state as a page of a table and as the dots of a plot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from django.core.paginator import Paginator

from asapweb.explore.answer import flat
from asapweb.explore.spaces import MEMORY_RULE, Meshes
from asapweb.explore.state import State
from experiments import bars
from experiments.bars import Term
from perfmodel import legality
from perfmodel.price import predict_all
from perfmodel.workload import chip_numbers

ROWS = 15
#: Dots of the plot: beyond them only the fastest legal meshes are drawn, and the page says so.
DOTS = 1500


@dataclass(frozen=True)
class Row:
    """A mesh of the table.  Seconds, bytes; slower: times the fastest legal mesh; rule: why rejected."""

    sizes: Mapping[str, int]
    step_s: float
    low80_s: float
    high80_s: float
    slower: float | None
    memory_bytes: float
    terms: list[Term]
    rule: str
    why: str
    front: bool
    yours: bool
    measured: bool
    query: str


@dataclass(frozen=True)
class Table:
    """A page of meshes and what to say about all of them."""

    rows: list[Row]
    page: Any
    scale_s: float
    rank: int | None
    rejected: int
    by_rule: list[tuple[str, str, int]]


def table(state: State, meshes: Meshes) -> Table:
    yours = meshes.space.row_of(state.config.mesh) if state.config is not None else None
    page = Paginator(meshes.order(state.show, state.sort), ROWS).get_page(state.page)
    rows = _rows(state, meshes, [int(index) for index in page.object_list], yours)
    ranks = np.flatnonzero(meshes.ranked == (-1 if yours is None else yours))
    return Table(
        rows=rows,
        page=page,
        scale_s=max((row.step_s for row in rows), default=0.0),
        rank=int(ranks[0]) + 1 if len(ranks) else None,
        rejected=meshes.considered - len(meshes.ranked),
        by_rule=[(rule, legality.IN_A_FEW_WORDS[rule], n) for rule, n in meshes.rejected_by_rule.items()],
    )


def _rows(state: State, meshes: Meshes, indices: list[int], yours: int | None) -> list[Row]:
    result = []
    configs = [meshes.config(index) for index in indices]
    fastest_s = float(meshes.estimate_s[meshes.ranked[0]]) if len(meshes.ranked) else None
    for index, config, made in zip(indices, configs, predict_all(configs, meshes.evidence), strict=True):
        assert made.step_time_s is not None and made.parts_s is not None  # a space has model and batch
        step, broken = made.step_time_s["estimate"], int(meshes.broken[index])
        sizes = meshes.sizes(index)
        result.append(
            Row(
                sizes=sizes,
                step_s=step,
                low80_s=made.step_time_s["low80"],
                high80_s=made.step_time_s["high80"],
                slower=step / fastest_s if fastest_s else None,
                memory_bytes=float(meshes.memory_bytes[index]),
                terms=bars.step_terms(flat(made.parts_s), config.mesh.axis_roles),
                rule=legality.IN_A_FEW_WORDS[legality.RULES[broken]] if broken >= 0 else "",
                why=" ".join(violation.message for violation in made.violations) if broken >= 0 else "",
                front=bool(meshes.front[index]),
                yours=index == yours,
                measured=meshes.evidence.has_step_of(config),
                query=mesh_query(state, sizes),
            )
        )
    return result


def mesh_query(state: State, sizes: Mapping[str, int]) -> str:
    """The address of the same state on another mesh."""
    mesh = {**state.data.get("mesh", {}), "ici": dict(sizes)}
    return replace(state, data={**state.data, "mesh": mesh}).query()


def plot(state: State, meshes: Meshes) -> dict[str, Any]:
    """Dots of the plot: [GB, ms, sizes, kind] with kind 0 legal, 1 on the front, 2 too large for the memory."""
    large = np.flatnonzero(meshes.broken == MEMORY_RULE)
    large = large[np.argsort(meshes.estimate_s[large], kind="stable")]
    legal = meshes.ranked
    on_front = legal[meshes.front[legal]]
    drawn = np.union1d(legal[:DOTS], on_front)
    room = max(0, DOTS - len(drawn))
    capacity = _capacity(meshes)
    least = float(meshes.memory_bytes[large].min()) if len(large) else 0.0
    limit = 1.6 * max(capacity, least)  # where nothing fits, what comes nearest
    near = large[meshes.memory_bytes[large] <= limit][: min(room, 300)]
    kinds = [(drawn, lambda i: 1 if meshes.front[i] else 0), (near, lambda i: 2)]
    dots = [
        [
            round(float(meshes.memory_bytes[i]) / 1e9, 3),
            float(f"{meshes.estimate_s[i] * 1e3:.5g}"),
            [int(n) for n in meshes.space.sizes[i]],
            kind(i),
        ]
        for rows, kind in kinds
        for i in rows
    ]
    yours = meshes.space.row_of(state.config.mesh) if state.config is not None else None
    return {
        "axes": list(meshes.space.axes),
        "roles": dict(meshes.space.config.mesh.axis_roles),
        "query": _query_without_mesh(state),
        "cap": round(capacity / 1e9, 3),
        "dots": dots,
        "yours": None
        if yours is None
        else [
            round(float(meshes.memory_bytes[yours]) / 1e9, 3),
            float(f"{meshes.estimate_s[yours] * 1e3:.5g}"),
            [int(n) for n in meshes.space.sizes[yours]],
        ],
        "legal_drawn": len(drawn),
        "legal": len(legal),
        "too_large": len(large),
        "too_large_drawn": len(near),
    }


def _capacity(meshes: Meshes) -> float:
    """Bytes of HBM a chip has, with the site's override."""
    config = meshes.space.config
    return float(chip_numbers(config.hardware, config.training.precision).hbm_capacity_bytes[0])


def _query_without_mesh(state: State) -> str:
    mesh = {**state.data.get("mesh", {}), "ici": {}}
    return replace(state, data={**state.data, "mesh": mesh}).query(page=1)
