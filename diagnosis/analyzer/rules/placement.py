"""Axes on slow links, and data that changes its sharding in the middle of the step."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from diagnosis.analyzer.facts import Facts, OpFacts, total_exposed
from diagnosis.analyzer.links import ideal_time_s, mesh_links
from diagnosis.analyzer.quantity import evidence
from diagnosis.analyzer.rules.base import EXPOSED, WORTH_SAYING, Claim, claim, costliest_axis_of, exposed_of, lines
from experiments.sentences import join, say
from perfmodel.config import Mesh

#: The costliest collectives decide where the axes should lie; ops come by descending time.
MOST_OPS = 300


def slow_links(facts: Facts) -> Iterator[Claim]:
    """An order of the mesh axes under which the same collectives would run on better links (book 2.2, 3.2)."""
    if facts.config is None:
        return
    ops = facts.where(
        lambda op: (
            bool(op.axes)
            and not op.over_dcn
            and op.collective is not None
            and bool(op.collective.payload_bytes)
            and bool(op.collective.possible_bytes_per_s)
        )
    )
    ops = ops[:MOST_OPS]
    total = total_exposed(ops)
    if total < WORTH_SAYING:
        return
    mesh = facts.config.mesh
    used = [axis for axis in mesh.ici if axis[1] > 1]
    if not 2 <= len(used) <= 6:
        return
    now = {id(op): _least(facts, mesh, op) for op in ops}
    best_mesh, best_share = mesh, total
    for order in permutations(used):
        other = Mesh(tuple(order), mesh.dcn, mesh.axis_roles)
        share = 0.0
        for op in ops:
            before, then = now[id(op)], _least(facts, other, op)
            share += op.exposed_share * (then / before if before and then is not None else 1.0)
        if share < best_share * 0.999:
            best_mesh, best_share = other, share
    gain = total - best_share
    if gain < max(WORTH_SAYING, 0.1 * total):
        return
    costly = max(
        ops, key=lambda op: op.exposed_share * (1.0 - (_least(facts, best_mesh, op) or 0.0) / (now[id(op)] or 1.0))
    )
    wires = mesh_links(facts.config.hardware, mesh, costly.axes)
    cost = exposed_of("collectives with known links", ops)
    after = evidence(
        "the same with the better axis order",
        best_share,
        "share",
        "computed",
        "Σ exposed time × least time on the new links ÷ least time on the current links",
        "topology",
    )
    names = " and ".join(costly.axes)
    text = f"Axis `{names}` is mapped to slow links by the order {_order(mesh)}"
    if wires and wires.kind == "torus":
        shared = evidence(
            f"groups that share a link of {names}", float(wires.stride), "count", "computed", "", "topology"
        )
        reasons: list[str] = [] if wires.wraps else ["its rings have no wraparound"]
        if wires.stride > 1:
            reasons.append(say("{} groups share each link", shared))
        text += say(" ({})", join(" and ", reasons)) if reasons else ""
    elif wires:
        text += " (it crosses NVLink domains)" if wires.kind == "network" else ""
    text += say(
        ": its collectives and those of the other axes take {} {}, and would take {} with the order {}.",
        cost,
        facts.base,
        after,
        _order(best_mesh),
    )
    yield claim(
        facts, "axis_on_slow_links", f"Axis `{names}` mapped to slow links", text,
        f"Order the mesh axes as {_order(best_mesh)} (major to minor), with the same sizes.",
        gain, ops=ops, part=EXPOSED, axis=costly.axes[0],
    )  # fmt: skip


def _order(mesh: Mesh) -> str:
    return ", ".join(axis for axis, size in mesh.ici if size > 1)


def _least(facts: Facts, mesh: Mesh, op: OpFacts) -> float | None:
    if facts.config is None or op.collective is None or not op.collective.payload_bytes:
        return None
    wires = mesh_links(facts.config.hardware, mesh, op.axes)
    return ideal_time_s(op.collective.kind, op.collective.payload_bytes, wires.links) if wires else None


def resharding(facts: Facts) -> Iterator[Claim]:
    """Exchanges that no parallelism scheme asks for: a tensor changes axes between two ops."""
    ops = facts.where(lambda op: op.collective is not None and _reshards(facts, op))
    share = total_exposed(ops)
    if share < WORTH_SAYING:
        return
    first = max(ops, key=lambda op: op.share)
    cost = exposed_of("resharding collectives", ops)
    axes = " and ".join(first.axes) or "several axes"
    kind = first.collective.kind if first.collective else "collective"
    text = say(
        "{} ({} on {}{}) and similar collectives take {} {}: no parallelism in this mesh needs them, so a"
        " tensor is sharded over one axis where it is produced and over another where it is consumed.",
        first.op.name,
        kind,
        axes,
        lines(ops),
        cost,
        facts.base,
    )
    yield claim(
        facts, "resharding", "Tensor resharded between ops", text,
        f"Give producer and consumer the same {'partition spec' if facts.of_xla else 'sharding'}"
        f"{' (with_sharding_constraint at that line)' if facts.of_xla else ''}, or reshard where the tensor is "
            "smallest.",
        share, ops=ops, part=EXPOSED, axis=costliest_axis_of([first]),
    )  # fmt: skip


def _reshards(facts: Facts, op: OpFacts) -> bool:
    collective, roles = op.collective, facts.roles(op)
    if collective is None or not roles or "dot_general" in op.path or "shard_map" in op.path:
        return False
    if "sharding_constraint" in op.path or "reshard" in op.path:
        return True
    if collective.kind == "all-to-all":
        # Between heads and sequence (Ulysses) an all-to-all on the sequence axis is the scheme itself.
        return (
            "expert" not in roles
            and facts.recording.program != "recommender"
            and not (roles == {"seq"} and op.module in ("attention", ""))
            and op.module != "experts"
        )
    if collective.kind == "collective-permute":
        return not roles & {"seq", "pipeline", "expert"} and not (
            roles == {"model"} and op.module in ("MLP", "attention")
        )
    return False
