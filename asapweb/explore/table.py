"""All meshes of a state as a page of a table and as the dots of a plot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from django.core.paginator import Paginator

from asapweb.explore.answer import flat
from asapweb.explore.spaces import MEMORY_RULE, Meshes
from asapweb.explore.state import State
from experiments import bars
from perfmodel import legality
from perfmodel.price import predict_all
from perfmodel.workload import chip_numbers

ROWS = 15
#: Dots of the plot: beyond them only the fastest legal meshes are drawn, and the page says so.
DOTS = 1500


def table(state: State, meshes: Meshes) -> dict[str, Any]:
    """Return a page of meshes and what to say about all of them; `rank` of the state's own, None where it is none.

    A row has seconds and bytes; `slower`: times the fastest legal mesh; `rule`, `why`: it was rejected.
    """
    yours = meshes.space.row_of(state.config.mesh) if state.config is not None else None
    page = Paginator(meshes.order(state.show, state.sort), ROWS).get_page(state.page)
    rows = list(_rows(state, meshes, [int(index) for index in page.object_list], yours))
    ranks = np.flatnonzero(meshes.ranked == (-1 if yours is None else yours))
    return {
        "rows": rows,
        "page": page,
        "scale_s": max((row["time"]["estimate"] for row in rows), default=0.0),
        "rank": int(ranks[0]) + 1 if len(ranks) else None,
        "rejected": meshes.considered - len(meshes.ranked),
        "by_rule": [(rule, legality.IN_A_FEW_WORDS[rule], n) for rule, n in meshes.rejected_by_rule.items()],
    }


def _rows(state: State, meshes: Meshes, indices: list[int], yours: int | None) -> Iterator[dict[str, Any]]:
    configs = [meshes.config(index) for index in indices]
    fastest_s = float(meshes.estimate_s[meshes.ranked[0]]) if len(meshes.ranked) else None
    for index, config, made in zip(indices, configs, predict_all(configs, meshes.evidence), strict=True):
        assert made.step_time_s is not None and made.parts_s is not None  # a space has model and batch
        broken, sizes = int(meshes.broken[index]), meshes.sizes(index)
        yield {
            "sizes": sizes,
            "time": made.step_time_s,
            "slower": made.step_time_s["estimate"] / fastest_s if fastest_s else None,
            "memory_bytes": float(meshes.memory_bytes[index]),
            "terms": bars.step_terms(flat(made.parts_s), config.mesh.axis_roles),
            "rule": legality.IN_A_FEW_WORDS[legality.RULES[broken]] if broken >= 0 else "",
            "why": " ".join(violation.message for violation in made.violations) if broken >= 0 else "",
            "front": bool(meshes.front[index]),
            "yours": index == yours,
            "measured": meshes.evidence.has_step_of(config),
            "query": state.on(sizes).query(),
        }


def plot(state: State, meshes: Meshes) -> dict[str, Any]:
    """Dots of the plot: [GB, ms, sizes, kind] with kind 0 legal, 1 on the front, 2 too large for the memory."""
    large = np.flatnonzero(meshes.broken == MEMORY_RULE)
    large = large[np.argsort(meshes.estimate_s[large], kind="stable")]
    legal = meshes.ranked
    on_front = legal[meshes.front[legal]]
    drawn = np.union1d(legal[:DOTS], on_front)
    room = max(0, DOTS - len(drawn))
    space = meshes.space
    chip = chip_numbers(space.config.hardware, space.config.training.precision)
    capacity = float(chip.hbm_capacity_bytes[0])  # with the site's override
    least = float(meshes.memory_bytes[large].min()) if len(large) else 0.0
    limit = 1.6 * max(capacity, least)  # where nothing fits, what comes nearest
    near = large[meshes.memory_bytes[large] <= limit][: min(room, 300)]

    def dot(i: int) -> list[Any]:
        gigabytes, ms = round(float(meshes.memory_bytes[i]) / 1e9, 3), float(f"{meshes.estimate_s[i] * 1e3:.5g}")
        return [gigabytes, ms, [int(n) for n in space.sizes[i]]]

    yours = space.row_of(state.config.mesh) if state.config is not None else None
    return {
        "axes": list(space.axes),
        "roles": dict(space.config.mesh.axis_roles),
        "query": state.on({}).query(page=1),
        "cap": round(capacity / 1e9, 3),
        "dots": [[*dot(i), int(meshes.front[i])] for i in drawn] + [[*dot(i), 2] for i in near],
        "yours": None if yours is None else dot(yours),
        "legal_drawn": len(drawn),
        "legal": len(legal),
        "too_large": len(large),
        "too_large_drawn": len(near),
    }
