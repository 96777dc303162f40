"""Exposed tensor-parallel communication."""

from __future__ import annotations

from collections.abc import Iterator

from diagnosis.analyzer.facts import Facts, OpFacts, keys, total_exposed
from diagnosis.analyzer.quantity import evidence
from diagnosis.analyzer.rules.base import (
    EXPOSED,
    OPS,
    SMALLER_AXIS,
    SMALLER_TENSOR_AXIS,
    WORTH_SAYING,
    Claim,
    claim,
    exposed_of,
    lines,
    seconds_of,
)
from diagnosis.analyzer.rules.flags import advise
from diagnosis.analyzer.rules.links import bandwidth, largest_width
from diagnosis.report import SourcedValue
from experiments.sentences import say


def tensor_parallel(facts: Facts) -> Iterator[Claim]:
    """Collectives on a tensor axis, which move activations in every layer and direction (book 5.2).

    What also crosses slices waits for DCN, on whatever axes it runs inside a slice.
    """
    if facts.config is None:
        return
    ops = facts.where(lambda op: bool(op.collective) and not op.over_dcn and "model" in facts.roles(op))
    share = total_exposed(ops)
    if share < WORTH_SAYING:
        return
    axes = [axis for axis, size in facts.config.mesh.ici if facts.role_of(axis) == "model" and size > 1]
    name = axes[0] if axes else "model"
    size = facts.axis_size("model")
    chips = evidence(f"size of axis {name}", float(size), "count", "measured", source="configuration")
    cost = exposed_of(f"exposed collectives on axis {name}", ops)
    per_step = seconds_of(facts, f"exposed time per step on axis {name}", share, ops)
    text = say("Collectives over the {} chips of axis `{}` expose {} {}", chips, name, cost, facts.base)
    text += say(" ({} per step)", per_step) if per_step else ""
    sent = bandwidth(ops)
    if sent:
        achieved, possible = sent
        text += say(", at {} of {} link bandwidth", achieved, possible)
    text += f"{lines(ops)}."
    limit = _useful_width(facts)
    if limit is not None and size > (limit.value or 0.0):
        text += say(
            " Tensor parallelism this wide is bound by link bandwidth: on this chip, the links "
            "support at most about {} chips per axis.",
            limit,
        )
    smaller = evidence("half of it", size / 2, "count", "computed", "size ÷ 2", "configuration")
    flags = advise(facts, ("collective_matmul",))
    yield claim(
        facts, "tensor_parallel_communication", f"Exposed communication on `{name}`", text,
        say(
            "Reduce `{}` to {} in favour of a batch axis, if weights and activations still fit; otherwise map"
            " it to the fastest torus dimension with wraparound and overlap its collectives with the adjacent"
            " matmuls (collective matmul).{}", name, smaller, flags.after),
        share, ops=ops, part=EXPOSED, axis=name, more=_counts(facts, ops), advice=(SMALLER_AXIS, SMALLER_TENSOR_AXIS),
        flags=flags.flags,
        flags_source=flags.source,
    )  # fmt: skip


def _counts(facts: Facts, ops: tuple[OpFacts, ...]) -> list[SourcedValue]:
    steps, cores = len(facts.profile.steps), facts.profile.device.measured_cores
    if not steps or not cores:
        return []
    count = sum(op.op.occurrences for op in ops) / (steps * cores)
    return [
        evidence(
            "collectives per step and core",
            count,
            "count",
            "computed",
            "Σ occurrences ÷ (steps × cores)",
            OPS,
            keys(ops),
        )
    ]


def _useful_width(facts: Facts) -> SourcedValue | None:
    """Tensor parallelism is bound by the links where Y > F × W_ici ÷ C (book 5.2), per torus axis."""
    width = largest_width(facts)
    if width is None or width < 1:
        return None
    return evidence(
        "largest tensor axis that the links support",
        width,
        "",
        "computed",
        "d_ff × W_ici ÷ peak FLOP/s, one torus axis",
        "scaling book 5.2",
    )
