"""What a proposal changes in numbers, what it costs, and what makes its prediction more or less sure, as sentences."""

from __future__ import annotations

from collections.abc import Iterator

from diagnosis.analyzer.quantity import format_bytes, format_share, format_time
from experiments.step_profile import MODEL, PROFILE
from proposals.candidate import chips_ratio
from proposals.constraints import RULE
from proposals.facts import not_known
from proposals.plan import Predicted
from proposals.proposer.changes import RECOMPUTES
from proposals.proposer.from_step_time import NOTES
from proposals.proposer.precedents import sizes_by_role
from proposals.proposer.wording import PRICED_KEYS, ROLE_NAMES, Case


def expected_impact(case: Case) -> Iterator[str]:
    predicted, before = case.predicted, case.baseline
    if not case.moved and not case.changes:
        if before.step_time_s:
            yield f"Step time stays at {format_time(before.step_time_s['estimate'])}."
        return
    if predicted.speedup is None:
        return
    if predicted.step_time_s and before.step_time_s:
        chips = chips_ratio(case.config, case.changes)
        each = f"; {predicted.speedup / chips:.2f}× per token and chip" if chips < 1 else ""
        how = "predicted" if case.observed.basis == MODEL else "measured"
        low, high = predicted.speedup_low80 or predicted.speedup, predicted.speedup_high80 or predicted.speedup
        yield (
            f"Step time {format_time(predicted.step_time_s['estimate'])} against "
            f"{format_time(before.step_time_s['estimate'])} {how}: {predicted.speedup:.2f}× per token, "
            f"between {low:.2f}× and {high:.2f}× in four of five such cases{each}."
        )
    else:
        yield f"The device's work would go {predicted.speedup:.2f}× as fast; the step itself was not measured."
    changed = _changes(case)
    if changed:
        yield "Most of the change: " + "; ".join(changed) + "."
    memory, old = predicted.hbm_per_chip_bytes, before.hbm_per_chip_bytes
    if memory and memory.get("total") is not None:
        now, capacity = format_bytes(memory["total"]), format_bytes(memory["capacity"])
        before_text = format_bytes(old["total"]) if old and old.get("total") is not None else ""
        if now == before_text:
            yield f"Memory per chip stays at {now} of {capacity}."
        else:
            was = f", {before_text} before" if before_text else ""
            yield f"Memory per chip {now} of {capacity}{was}."
    elif case.moved.get("model", 0.0) > 0:
        yield "Memory per chip falls, as each chip holds a smaller part of the model; how far needs the model's shape."
    elif case.moved.get("model", 0.0) < 0:
        yield "Memory per chip rises where weights are not fully sharded; how far needs the model's shape."


def _changes(case: Case) -> list[str]:
    """The three parts of the step that change most, collectives by what they move."""
    before, after = _by_kind(case, case.baseline), _by_kind(case, case.predicted)
    rows = [(abs(after.get(p, 0.0) - before.get(p, 0.0)), p) for p in {*before, *after}]
    total = sum(before.values()) or 1.0
    return [
        f"{part} {_time_or_none(before.get(part, 0.0))} → {_time_or_none(after.get(part, 0.0))}"
        for change, part in sorted(rows, reverse=True)[:3]
        if change > 0.002 * total
    ]


def _time_or_none(seconds: float) -> str:
    return format_time(seconds) if seconds > 0 else "none"


def _by_kind(case: Case, predicted: Predicted) -> dict[str, float]:
    found: dict[str, float] = {}
    for part, seconds in predicted.breakdown_s.items():
        found[_part_name(case, part)] = found.get(_part_name(case, part), 0.0) + seconds
    return found


def _part_name(case: Case, part: str) -> str:
    if part.startswith("ici:"):
        roles = {case.config.mesh.role(axis) for axis in part.removeprefix("ici:").split("+")}
        if roles & {"data", "fsdp", "replica"}:
            return "communication of weights and gradients"
        for role, name in (("model", "tensor parallelism"), ("seq", "attention"), ("expert", "experts")):
            if role in roles:
                return f"communication of {name}"
    return {"hbm": "HBM", "dcn": "communication across slices", "ici": "communication"}.get(part, part)


def trade_offs(case: Case) -> Iterator[str]:
    moved, config = case.moved, case.config
    if moved.get("model", 0.0) < 0:
        yield "Each chip holds a larger part of every layer's weights and gradients while it computes."
    if moved.get("model", 0.0) > 0:
        yield "Activations are gathered and scattered over the model axis in every layer, on the critical path."
        yield "Shards of heads and of the MLP get narrower; below the matrix unit's width products lose efficiency."
    if moved.get("seq", 0.0) < 0:
        yield "Each chip keeps longer pieces of every sequence; attention's activations per sequence grow."
    if moved.get("seq", 0.0) > 0:
        yield "Attention must exchange keys and values between more chips."
    if moved.get("data", 0.0) > 0:
        batch = case.changes.get("global_batch", config.training.global_batch)
        if batch:
            shards = case.mesh.size("replica", "data", "fsdp", "expert")
            each = f"{batch / shards:g} sequence" + ("" if batch == shards else "s")
            yield f"Each batch shard keeps {each} of the global batch of {batch}."
    if moved.get("data", 0.0) < 0:
        yield "Fewer batch shards: each group of chips handles more sequences at once."
    if case.split and moved:
        yield "An axis takes part of a torus dimension: split physical axes must be allowed when the mesh is made."
    yield from _costs_of_changes(case)
    for item in case.broken:
        if item.rule.startswith(RULE) and case.kind != "own":
            yield f"It breaks what you asked for, and stands here because it is what runs. {item.reason}"
        elif item.rule.startswith(RULE):
            yield item.reason.replace("You asked for this", "It breaks what you asked for")
    if not moved and not case.changes:
        yield "Nothing is risked, and nothing is learnt."


def _costs_of_changes(case: Case) -> Iterator[str]:
    changes, training = case.changes, case.config.training
    if "xla_flags" in changes:
        yield "What the compiler can overlap is seen only in the next profile; buffers in flight take some memory."
    if "topology" in changes:
        yield "Fewer chips take longer for the same tokens; the confidence is that each chip gets through more of them."
    if "remat" in changes:
        yield _remat_cost(case)
    if "weight_sharding" in changes:
        if changes["weight_sharding"] == "fsdp":
            yield "Every pass gathers the weights that it needs."
        else:
            yield "Every chip holds more of what the axes could share."
    if changes.get("grad_accum", training.grad_accum) > training.grad_accum or (
        training.micro_batch and changes.get("micro_batch", training.micro_batch) < training.micro_batch
    ):
        yield "Smaller products per micro-batch use the matrix units less well."
    elif "grad_accum" in changes or "micro_batch" in changes:
        yield "Larger micro-batches keep more activations at a time."
    if "global_batch" in changes:
        yield (
            "Another batch is another training: learning rate, warm-up and the number of steps must follow, and the "
            "loss per token may change; compared is the time per token."
        )


def _remat_cost(case: Case) -> str:
    before, after = case.config.training.remat, case.changes["remat"]
    if after == "offload":
        return "Activations travel to host memory and back; the link between chip and host must keep up."
    if RECOMPUTES.get(after, 0) < RECOMPUTES.get(before, 0):
        return "Activations that were recomputed are kept, and take memory."
    return "Forward work is done again in the backward pass."


def _fits(case: Case) -> bool | None:
    """Whether the computed memory fits; None where it was not computed."""
    memory = case.predicted.hbm_per_chip_bytes
    return None if not memory or memory.get("total") is None else memory["total"] <= memory["capacity"]


def raises(case: Case) -> Iterator[str]:
    verdict = case.diagnosis.bottleneck
    if verdict.confidence >= 0.7 and case.observed.basis == PROFILE:
        yield f"The verdict ({verdict.primary}) is {verdict.confidence * 100:.0f} % certain."
    distance = case.doublings
    if case.moved and distance <= 1:
        yield "One doubling away from what was measured."
    if case.precedent is not None and (case.precedent.time_ratio or 1.0) < 1.0:
        yield f"A measured run gained from a like move: {case.precedent.effect.rstrip('.')} ({case.precedent.source})."
    if _fits(case):
        yield "Memory was computed, and fits."
    if not case.missing:
        yield "Model, batch and sequence length are known, so every term was computed."


#: How a failed run is told of.
FAILURES = {"out_of_memory": "ran out of memory", "does_not_compile": "did not compile", "hang": "hung"}


def lowers(case: Case) -> Iterator[str]:
    yield from case.unchecked
    if case.precedent is not None and (case.precedent.time_ratio or 1.0) > 1.0:
        yield f"A measured run lost by a like move: {case.precedent.effect.rstrip('.')} ({case.precedent.source})."
    if case.warning is not None:
        failure = FAILURES.get(case.warning.failure, "failed")
        yield f"A run much like this one {failure}: {case.warning.title.rstrip('.')} ({case.warning.source})."
    if case.missing:
        yield f"Terms were scaled from the profile or assumed, because {not_known(case.missing)}."
    if case.observed.stand_in:
        yield "The profile was recorded on another kind of chip than the configuration names; times carry over poorly."
    distance = case.doublings
    if distance > 1:
        yield f"{distance:g} doublings away from what was measured."
    fresh = [ROLE_NAMES[role] for role in case.moved if sizes_by_role(case.config.mesh).get(role, 1) == 1]
    if fresh and case.observed.basis == PROFILE:
        yield f"The profile has no {' and no '.join(fresh)} to learn from."
    if case.config.model is None and case.moved.get("model", 0.0) > 0:
        yield "Heads and KV heads may not divide by the tensor shards; check the model's shape first."
    if case.observed.basis in NOTES:
        yield NOTES[case.observed.basis].partition(". ")[0] + "."
    elif case.observed.coverage < 0.9:
        yield f"The profile lists ops for only {format_share(case.observed.coverage)} of the step."
    memory = case.predicted.hbm_per_chip_bytes
    if memory and _fits(case) is False:
        needs = f"{format_bytes(memory['total'])} of the {format_bytes(memory['capacity'])} a chip has"
        yield f"By the model it needs {needs}: the model errs, or the configuration is not that of the profile."
    elif memory and _fits(case) and memory["activations"] > (case.baseline.hbm_per_chip_bytes or memory)["activations"]:
        yield "More activations are kept than in what ran; that they fit is computed, not measured."
    if case.predicted.hbm_per_chip_bytes is None and case.moved.get("model", 0.0) < 0:
        yield "Peak memory was not measured, so its headroom is unknown."
    unpriced = [name for name in case.changes if name not in PRICED_KEYS]
    if unpriced:
        yield f"What {', '.join(unpriced)} does to kernels is computed from the model alone, not from the profile."
    if "xla_flags" in case.changes:
        yield "How much the schedule can hide is not predicted by the model; half of it is assumed."
