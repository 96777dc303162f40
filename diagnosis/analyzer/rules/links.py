"""What links carry: bandwidths and intensities that rules speak of, and what an axis loses on its links."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import permutations

from diagnosis.analyzer.facts import Facts, OpFacts, keys, total_exposed
from diagnosis.analyzer.links import ideal_time_s, mesh_links, wire_bytes
from diagnosis.analyzer.quantity import OPS, evidence, share_of
from diagnosis.analyzer.rules.base import (
    WORTH_SAYING,
    Claim,
    claim,
    costliest_axis_of,
    exposed,
    exposed_of,
    lines,
)
from diagnosis.report import SourcedValue
from experiments.sentences import join, say
from perfmodel.config import Mesh

ACHIEVED, POSSIBLE = "achieved bandwidth per chip", "link bandwidth per chip"
#: Below this a message is latency-bound on any of the chips (book 3.2: about a microsecond a
#: hop, 45 GB/s and more per link).
SMALL_BYTES = 1e6
#: The costliest collectives decide where the axes should lie; ops come by descending time.
MOST_OPS = 300
HALF = 0.5
#: Collectives of one axis without wraparound are named from this share of the step on.
NOTABLE = 0.10
_RINGS = ("all-gather", "reduce-scatter", "all-reduce")


def bandwidth(ops: Iterable[OpFacts]) -> tuple[SourcedValue, SourcedValue] | None:
    """(achieved, possible) bytes/s per chip over the synchronous collectives whose bytes and links are known."""
    timed = [op for op in ops if _use(op) is not None]
    sent = time = least = 0.0
    for op in timed:
        collective = op.collective
        if collective is None or not collective.payload_bytes or not collective.participants:
            continue
        moved = wire_bytes(collective.kind, collective.payload_bytes, collective.participants) * op.op.occurrences
        sent += moved
        time += op.op.self_time_s
        least += moved / (collective.possible_bytes_per_s or 1.0)
    if time <= 0 or least <= 0:
        return None
    shown = keys(timed)
    achieved = evidence(
        ACHIEVED, sent / time, "bytes_per_s", "computed", "Σ bytes a chip must send ÷ Σ self time",
        "op profile and shapes", shown,
    )  # fmt: skip
    possible = evidence(
        POSSIBLE, sent / least, "bytes_per_s", "computed", "Σ bytes a chip must send ÷ Σ least time on these links",
        "chips.toml and topology", shown,
    )  # fmt: skip
    return achieved, possible


def bandwidth_text(ops: Iterable[OpFacts]) -> str:
    """`` They reach 25 GB/s of 45 GB/s link bandwidth.``; empty where unknown."""
    sent = bandwidth(ops)
    return say(" They reach {} of {} link bandwidth.", *sent) if sent else ""


def gather_intensity(facts: Facts, axes: tuple[str, ...]) -> float | None:
    """Tokens per chip whose matmuls take as long as gathering the weights over these axes (book 5.1, C ÷ W).

    W is what the links of these axes carry under this mesh: rings closed or not, several dimensions together.
    """
    if facts.chip is None or facts.config is None or not axes:
        return None
    mapped = mesh_links(facts.config.hardware, facts.config.mesh, axes)
    if mapped is None or mapped.links.gather_s_per_byte[0] <= 0:
        return None
    return facts.chip.peak(facts.config.training.precision) * float(mapped.links.gather_s_per_byte[0])


def largest_width(facts: Facts) -> float | None:
    """Chips per tensor axis at which its collectives take as long as the MLP's matmuls (book 5.2)."""
    chip, model = facts.chip, facts.config.model if facts.config else None
    if chip is None or facts.config is None or model is None or not chip.ici_link_bytes_per_s:
        return None
    # FLOPs a chip can do per byte it sends over one torus axis, both ways (book 5.1).
    intensity = chip.peak(facts.config.training.precision) / (2.0 * chip.ici_link_bytes_per_s)
    is_mixture = model.experts and model.d_ff_expert
    return (model.d_ff_expert * model.experts_per_token if is_mixture else model.d_ff) / intensity


def tokens_per_chip(facts: Facts) -> float | None:
    """Tokens per step and chip."""
    if facts.config is None or facts.config.training.global_batch_tokens is None:
        return None
    return facts.config.training.global_batch_tokens / facts.config.hardware.chips


def _use(op: OpFacts) -> float | None:
    """Achieved over possible bandwidth of a collective; None where one of them is unknown."""
    collective = op.collective
    if collective is None or not collective.achieved_bytes_per_s or not collective.possible_bytes_per_s:
        return None
    return collective.achieved_bytes_per_s / collective.possible_bytes_per_s


def low_link_bandwidth(facts: Facts) -> Iterator[Claim]:
    """Synchronous collectives below half of the link bandwidth: small ones are latency-bound, large ones wait for
    others."""
    slow = facts.where(lambda op: (use := _use(op)) is not None and use < HALF)
    small = tuple(op for op in slow if op.collective and (op.collective.payload_bytes or 0.0) < SMALL_BYTES)
    large = tuple(op for op in slow if op not in small)
    for ops in (large, small):
        lost = sum(op.exposed_share * (1.0 - (_use(op) or 0.0)) for op in ops)
        if lost >= WORTH_SAYING:
            yield _claim(facts, ops, lost, are_small=ops is small)


def _claim(facts: Facts, ops: tuple[OpFacts, ...], lost: float, are_small: bool) -> Claim:
    words = "small collectives" if are_small else "collectives"
    cost = exposed_of(f"{words} below half of link bandwidth", ops)
    used = 1.0 - lost / total_exposed(ops)
    reached = share_of("of link bandwidth", used, "Σ time × achieved ÷ possible ÷ Σ time", ops)
    text = say(
        "{} that expose {} {} reach {} of link bandwidth{}", words.capitalize(), cost, facts.base, reached, lines(ops)
    )
    steps, cores = len(facts.profile.steps), facts.profile.device.measured_cores
    if steps and cores:
        count = sum(op.op.occurrences for op in ops) / (steps * cores)
        often = evidence(
            "of these per step and core", count, "count", "computed", "Σ occurrences ÷ (steps × cores)", OPS, keys(ops)
        )
        text += say("; there are {} per step", often)
    if are_small:
        text += ". Messages this small are latency-bound: hops, not bandwidth, set their time."
        action = "Combine small collectives of the same kind, or fuse those within a layer."
    else:
        text += (
            ". They are large enough to be bandwidth-bound, so they are waiting for a straggler or for another axis "
            "on the same links."
        )
        action = (
            "Compare when each core enters these collectives: a late core is a straggler. If all enter together, "
            "look for a concurrent collective on the same links, or an axis mapped to shared links or links without "
            "wraparound."
        )
    return claim(
        facts, "low_link_bandwidth",
        "Latency-bound small collectives" if are_small else "Low link-bandwidth utilisation", text, action, lost,
        ops=ops, axis=costliest_axis_of(ops),
    )  # fmt: skip


def slow_links(facts: Facts) -> Iterator[Claim]:
    """An order of the mesh axes under which the same collectives would run on better links (book 2.2, 3.2)."""
    config = facts.configured
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
    mesh = config.mesh
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
    wires = mesh_links(config.hardware, mesh, costly.axes)
    cost = exposed_of("collectives with known links", ops)
    after = share_of(
        "the same with the better axis order", best_share,
        "Σ exposed time × least time on the new links ÷ least time on the current links", source="topology",
    )  # fmt: skip
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
        gain, ops=ops, axis=costly.axes[0],
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
    for first in ops[:1]:
        on = " and ".join(first.axes) or "several axes"
        kind = first.collective.kind if first.collective else "collective"
        constraint = "partition spec (with_sharding_constraint at that line)" if facts.of_xla else "sharding"
        yield from exposed(
            facts, "resharding", "Tensor resharded between ops", ops,
            f"{first.op.name} ({kind} on {on}) and similar collectives",
            f"Give producer and consumer the same {constraint}, or reshard where the tensor is smallest.",
            label="resharding collectives", axis=costliest_axis_of([first]),
            more=": no parallelism in this mesh needs them, so a tensor is sharded over one axis where it is produced "
            "and over another where it is consumed.",
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


def open_rings(facts: Facts) -> Iterator[Claim]:
    """One axis on a torus dimension without wraparound: a line has one link where a ring has two (book 2.2, 3.2)."""
    config, chip = facts.configured, facts.chip
    if chip is None or chip.kind != "tpu":
        return
    by_axis: dict[str, list[OpFacts]] = {}
    for op in facts.collectives:
        if len(op.axes) == 1 and not op.over_dcn and op.collective and op.collective.kind in _RINGS:
            by_axis.setdefault(op.axes[0], []).append(op)
    for axis, ops in by_axis.items():
        share = total_exposed(ops)
        mapped = mesh_links(config.hardware, config.mesh, (axis,))
        if share < NOTABLE or mapped is None or mapped.wraps or mapped.kind != "torus":
            continue
        size = float(mapped.links.size[0])
        # Bytes that a chip sends, as achieved and possible bandwidth are stated: all but its own share of the array.
        sends = (size - 1.0) / size
        now = sends / float(mapped.links.gather_s_per_byte[0])
        ring = sends * 2.0 * chip.ici_link_bytes_per_s
        if now >= 0.9 * ring:
            continue
        cost = exposed_of(f"collectives on axis {axis}", ops)
        gives = evidence(
            f"link bandwidth per chip of axis {axis}", now, "bytes_per_s", "computed", "its links on this topology",
            "chips.toml",
        )  # fmt: skip
        could = evidence(
            "of a ring with wraparound", ring, "bytes_per_s", "computed", "2 × link bytes/s × (n − 1) ÷ n", "chips.toml"
        )
        closes = any(chip.wraps(config.hardware.topology))
        action = (
            f"Order the axes of the mesh so that `{axis}` has the whole dimension of its size."
            if closes and size in config.hardware.topology
            else f"No dimension of this slice has the size of `{axis}`: give it fewer chips, or "
            "send fewer bytes over it."
            if closes
            else "No dimension of this slice has wraparound; larger slices do (full dimensions on v5e and v6e, "
            "whole cubes on v4 and v5p)."
        )
        yield claim(
            facts, "open_rings", f"Axis `{axis}` without wraparound links",
            say(
                "Axis `{}` spans part of a torus dimension, or one without wraparound: its links carry {}, a ring"
                " with wraparound {}. Its collectives take {} {}{}.", axis, gives, could, cost, facts.base, lines(ops)),
            action, share * (1.0 - now / ring), ops=ops, axis=axis,
        )  # fmt: skip
