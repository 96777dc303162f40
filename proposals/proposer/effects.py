"""What a proposal changes in numbers, what it costs, and what makes its prediction more or less sure, as sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from experiments.sentences import Sentence, Value, join, say
from experiments.step_profile import MODEL, PROFILE
from formatting import counted
from history.moves import RECOMPUTES
from perfmodel.workload import SHARDING
from proposals.candidate import chips_ratio
from proposals.constraints import RULE
from proposals.facts import not_known
from proposals.plan import Memory, Predicted, Range
from proposals.proposer.case import Case
from proposals.proposer.from_step_time import NOTES
from proposals.proposer.precedents import sizes_by_role
from proposals.proposer.wording import PRICED_KEYS, ROLE_NAMES

#: Of all changes of parts, the share that the listed ones may leave out.
UNSAID = 0.1


def expected_impact(case: Case) -> Iterator[str]:
    predicted, before = case.predicted, case.baseline
    if case.keeps:
        if before.step_time_s:
            yield say("The step time is unchanged at {}.", _step_before(case))
        return
    if predicted.speedup is None:
        return
    if predicted.step_time_s and before.step_time_s:
        chips = chips_ratio(case.config, case.changes)
        gain, low, high = (_speedup(predicted, key) for key in ("speedup", "speedup_low80", "speedup_high80"))
        per_chip = Value(
            "speed-up per token and chip", predicted.speedup / chips, "speedup", "predicted",
            field="proposal.speedup_per_chip",
        )  # fmt: skip
        yield say(
            "Step time {} predicted against {} {}: {} per token, 80 % interval {} to {}{}{}.",
            _predicted_value(
                predicted.step_time_s, "estimate", "predicted step time", "s", "predicted.step_time_s", "predicted"
            ),
            _step_before(case),
            "predicted" if case.observed.basis == MODEL else "measured",
            gain,
            low,
            high,
            ", inconclusive" if (low.value or 0.0) <= 1.0 <= (high.value or 0.0) else "",
            say("; {} per token and chip", per_chip) if chips < 1 else "",
        )
    else:
        gain = _speedup(predicted, "speedup")
        yield say("Device time is predicted to improve {}; the step time itself was not measured.", gain)
    changed = _changes(case)
    if changed:
        batch = case.config.training.global_batch
        same = f" per {batch} sequences" if "global_batch" in case.changes else ""
        yield say("Largest changes{}: {}.", same, join("; ", changed))
    memory, old = predicted.hbm_per_chip_bytes, before.hbm_per_chip_bytes
    if memory:
        now, capacity = memory_of(memory)
        ran = memory_of(old, "plan.baseline")[0] if old else None
        if str(now) == str(ran):
            yield say("Memory per chip is unchanged at {} of {}.", now, capacity)
        else:
            yield say("Memory per chip {} of {}{}.", now, capacity, say(", {} before", ran) if ran else "")
    elif case.moved.get("model", 0.0) > 0:
        yield (
            "Memory per chip falls, as each chip holds a smaller shard of the model; the amount depends on the "
            "model's shape."
        )
    elif case.moved.get("model", 0.0) < 0:
        yield "Memory per chip rises unless weights are fully sharded; the amount depends on the model's shape."


def _predicted_value(
    group: Range | Memory | None, key: str, label: str, unit: str, field: str, origin: str = "computed"
) -> Value:
    """One number of a proposal's prediction; field: of the group, in the proposal unless it says `plan`."""
    path = field if field.startswith("plan.") else f"proposal.{field}"
    return Value(label, getattr(group, key), unit, origin, field=f"{path}.{key}")


def _step_before(case: Case) -> Value:
    origin = "predicted" if case.observed.basis == MODEL else "measured"
    return _predicted_value(
        case.baseline.step_time_s, "estimate", "step time of the current configuration", "s",
        "plan.baseline.step_time_s", origin,
    )  # fmt: skip


def _speedup(predicted: Predicted, key: str) -> Value:
    """The speed-up per token, or a bound of its interval; where there is none, the speed-up."""
    key = key if getattr(predicted, key) else "speedup"
    return Value(
        "speed-up per token", getattr(predicted, key), "speedup", "predicted", field=f"proposal.predicted.{key}"
    )


def memory_of(memory: Memory, of: str = "predicted") -> tuple[Value, Value]:
    """(needed, usable) memory per chip."""
    field = f"{of}.hbm_per_chip_bytes"
    return (
        _predicted_value(memory, "total", "memory needed per chip", "bytes", field, "predicted"),
        _predicted_value(memory, "capacity", "usable memory per chip", "bytes", field),
    )


def _changes(case: Case) -> list[Sentence]:
    """The parts that change most, as many as make up most of the change, for the same tokens."""
    sizes = {name: abs(row["after"] - row["before"]) for name, row in case.parts.items()}
    least = 0.002 * sum(row["before"] for row in case.parts.values())
    said: list[Sentence] = []
    left = sum(sizes.values())
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        if sizes[name] <= least or (len(said) >= 3 and left <= UNSAID * sum(sizes.values())):
            break
        said.append(say("{} {} → {}", name, *_before_and_after(name, case.parts[name])))
        left -= sizes[name]
    return said


def _before_and_after(name: str, row: dict[str, float]) -> Iterator[Value | str]:
    """Both with the same digits, more where two would hide the change."""
    pair = [Value(name, row[key], "s", "predicted", field=f"proposal.parts.{name}.{key}") for key in row]
    if pair[0].text == pair[1].text:
        pair = [replace(value, origin="computed") for value in pair]
    return (value if value.value else "none" for value in pair)


def trade_offs(case: Case) -> Iterator[str]:
    moved, config = case.moved, case.config
    if moved.get("model", 0.0) < 0:
        yield "Each chip holds a larger shard of every layer's weights and gradients during compute."
    if moved.get("model", 0.0) > 0:
        yield (
            "Activations are all-gathered and reduce-scattered over the model axis in every layer, on the "
            "critical path."
        )
        yield (
            "Shards of the heads and the MLP get narrower; matmuls narrower than an MXU or tensor-core tile lose "
            "efficiency."
        )
    if moved.get("seq", 0.0) < 0:
        yield "Each chip holds a longer shard of every sequence, so activations per sequence grow."
    if moved.get("seq", 0.0) > 0:
        yield "Attention exchanges keys and values between more chips."
    if moved.get("data", 0.0) > 0:
        batch = case.changes.get("global_batch", config.training.global_batch)
        if batch:
            each = counted(batch / case.mesh.batch_shards, "sequence")
            yield f"Each batch shard holds {each} of the global batch of {batch}."
    if case.mesh.batch_shards < config.mesh.batch_shards:
        yield "With fewer batch shards, each group of chips processes more sequences at once."
    if case.split and case.resized:
        yield "An axis covers only part of a torus dimension: create the mesh with `allow_split_physical_axes`."
    yield from _costs_of_changes(case)
    for item in case.broken:
        if item.rule.startswith(RULE) and case.kind != "own":
            yield f"It violates your constraints and is listed only as the current configuration. {item.reason}"
        elif item.rule.startswith(RULE):
            yield item.reason.replace("Your constraint", "It violates your constraint")
    if case.keeps:
        yield "No risk, but no new information either."


def _costs_of_changes(case: Case) -> Iterator[str]:
    config, changes = case.config, case.changes
    if "xla_flags" in changes:
        yield "Only the next profile shows how much the compiler overlaps; collectives in flight need buffers."
    if "topology" in changes:
        yield "Fewer chips take longer for the same tokens; the confidence refers to the throughput per chip."
    if "remat" in changes:
        yield _remat_cost(case)
    if "weight_sharding" in changes:
        if changes["weight_sharding"] == "fsdp":
            yield "Every forward and backward pass all-gathers the weights it needs."
        elif SHARDING.index(changes["weight_sharding"]) < SHARDING.index(config.training.weight_sharding):
            yield "Every chip holds more replicated state that the axes could shard."
    if {"grad_accum", "micro_batch"} & set(changes) and case.rows_ratio < 1:
        yield "Smaller matmuls per micro-batch lower MXU or tensor-core utilisation."
    elif {"grad_accum", "micro_batch"} & set(changes) and case.rows_ratio > 1:
        yield "Larger micro-batches hold more activations at a time."
    if changes.get("virtual_stages", 1) > case.config.training.virtual_stages:
        yield "Interleaving holds activations of more micro-batches at once and sends more between stages."
    if "global_batch" in changes:
        yield (
            "A different batch changes the training: learning rate, warm-up and number of steps must be adjusted, and "
            "the loss per token may change. The comparison is time per token."
        )


def _remat_cost(case: Case) -> str:
    before, after = case.config.training.remat, case.changes["remat"]
    if before == "offload" and after == "full":
        return "Layer inputs stay in HBM."
    if after == "offload":
        return "Activations are copied to host memory and back; the host link must keep up."
    if RECOMPUTES.get(after, 0) < RECOMPUTES.get(before, 0):
        return "Activations that were recomputed are now saved, which takes memory."
    return "More forward ops are recomputed in the backward pass."


def _fits(case: Case) -> bool | None:
    """Whether the computed memory fits; None where it was not computed."""
    memory = case.predicted.hbm_per_chip_bytes
    return None if memory is None else memory.headroom >= 0


def raises(case: Case) -> Iterator[str]:
    verdict = case.diagnosis.bottleneck
    if verdict.confidence >= 0.7 and case.observed.basis == PROFILE:
        confidence = Value("confidence in the bottleneck", verdict.confidence, "probability", field="confidence")
        yield say("The bottleneck ({}) is identified with {} confidence.", verdict.primary, confidence)
    distance = case.doublings
    if case.moved and distance <= 1:
        yield "One doubling away from the measured configuration."
    if case.precedent is not None and (case.precedent.time_ratio or 1.0) < 1.0:
        yield (
            f"A measured run gained from a similar change: {case.precedent.effect.rstrip('.')} "
            f"({case.precedent.source})."
        )
    if _fits(case):
        yield "Memory is predicted to fit."
    if not case.missing:
        yield "Model, batch and sequence length are known, so every term was computed."


#: Wording for a failed run.
FAILURES = {"out_of_memory": "ran out of memory", "does_not_compile": "did not compile", "hang": "hung"}


def _disputes(case: Case) -> Iterator[str]:
    measurement = "profile" if case.observed.basis == PROFILE else "measured step time"
    for element, by in case.disputed.items():
        named = "The change of the mesh" if element == "mesh" else f"{element} {case.changes[element]}"
        seen, alone = (
            Value(
                f"{element} by the {source}",
                by[key],
                "speedup",
                "predicted",
                field=f"proposal.disputed.{element}.{key}",
            )
            for key, source in (("measured", measurement), ("model", "model alone"))
        )
        yield say(
            f"{named} is worth {{}} by the {measurement} and {{}} by the performance model alone: a run with all but "
            "this change decides.",
            seen,
            alone,
        )


def lowers(case: Case) -> Iterator[str]:
    yield from _disputes(case)
    yield from case.unchecked
    if case.precedent is not None and (case.precedent.time_ratio or 1.0) > 1.0:
        yield (
            f"A measured run lost from a similar change: {case.precedent.effect.rstrip('.')} ({case.precedent.source})."
        )
    if case.warning is not None:
        failure = FAILURES.get(case.warning.failure, "failed")
        yield f"A very similar run {failure}: {case.warning.title.rstrip('.')} ({case.warning.source})."
    if case.missing:
        yield f"Some terms were scaled from the profile or assumed, because {not_known(case.missing)}."
    if case.observed.stand_in:
        yield "The profile was recorded on a different chip from the configured one; times transfer poorly."
    distance = case.doublings
    if distance > 1:
        away = Value("doublings", distance, "", field="proposal.doublings")
        yield say("{} doublings away from the measured configuration.", away)
    fresh = [ROLE_NAMES[role] for role in case.moved if sizes_by_role(case.config.mesh).get(role, 1) == 1]
    if fresh and case.observed.basis == PROFILE:
        yield f"The profile contains no {' and no '.join(fresh)} to calibrate from."
    if case.config.model is None and case.moved.get("model", 0.0) > 0:
        yield "Heads and KV heads may not be divisible by the tensor shards; check the model's shape first."
    if case.observed.basis in NOTES:
        yield NOTES[case.observed.basis].partition(". ")[0] + "."
    elif case.observed.coverage < 0.9:
        listed = Value("listed ops", case.observed.coverage, "share", field="plan.observed.listed.share")
        yield say("The profile lists ops for only {} of the step.", listed)
    memory, before = case.predicted.hbm_per_chip_bytes, case.baseline.hbm_per_chip_bytes
    if memory and _fits(case) is False:
        yield say(
            "It is predicted to need {} of {} per chip: either the memory model is off, or the configuration does not "
            "match the profile.",
            *memory_of(memory),
        )
    elif memory and _fits(case) and (memory.activations or 0.0) > 1.02 * ((before or memory).activations or 0.0):
        yield "More activations are saved than in the current configuration; that they fit is predicted, not measured."
    if case.predicted.hbm_per_chip_bytes is None and case.moved.get("model", 0.0) < 0:
        yield "Peak memory was not measured, so the headroom is unknown."
    unpriced = [name for name in case.changes if name not in PRICED_KEYS]
    if unpriced:
        yield (
            f"The effect of {', '.join(unpriced)} on kernels comes from the performance model alone, not from the "
            "profile."
        )
    if "xla_flags" in case.changes:
        yield "The performance model does not predict what compiler flags do, so the interval is wider."
