"""The sentences of a proposal, made from its numbers.  No number stands here that is not in the values beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from diagnosis.analyzer.quantity import format_bytes, format_share, format_time
from diagnosis.report import Diagnosis, Finding
from perfmodel.config import ExperimentConfig, Mesh
from perfmodel.step_time import Z80
from proposals.plan import Predicted
from proposals.proposer.choose import OFF_CHIP, Choice, keeping_is_right
from proposals.proposer.observed import Observed
from proposals.proposer.precedents import Precedent, moves, sizes_by_role
from proposals.proposer.ranking import Ranked

_ROLE_NAMES = {
    "data": "data parallelism",
    "replica": "replication",
    "seq": "sequence sharding",
    "model": "tensor parallelism",
    "expert": "expert parallelism",
    "pipeline": "pipeline stages",
}
_VERDICTS = {
    "compute": "arithmetic limits the step",
    "memory": "HBM bandwidth limits the step",
    "communication": "communication limits the step",
    "input": "the input pipeline limits the step",
    "host": "the host limits the step",
    "idle": "idle time limits the step",
    "unknown": "what limits the step is not clear from this profile",
}
#: How much a rematerialisation policy recomputes.
_RECOMPUTES = {"none": 0, "minimal": 1, "offload": 2, "full": 2}

#: How often asynchronous collectives make a step with exposed communication faster: a judgement, until history counts.
SCHEDULE_HELPS = 0.7


@dataclass(frozen=True)
class Case:
    """Everything the sentences of one proposal are made from."""

    rank: int
    config: ExperimentConfig
    diagnosis: Diagnosis
    observed: Observed
    baseline: Predicted
    choice: Choice
    mesh: Mesh
    predicted: Predicted
    ranked: Ranked
    missing: tuple[str, ...]
    precedent: Precedent | None

    @property
    def moved(self) -> dict[str, float]:
        """Doublings by canonical role."""
        return moves(sizes_by_role(self.config.mesh), sizes_by_role(self.mesh))

    @property
    def row(self) -> int:
        return self.choice.row


def title(case: Case) -> str:
    changes = case.choice.changes
    if "xla_flags" in changes:
        return "Keep the mesh, hide communication behind compute"
    if "remat" in changes and not case.moved:
        return f"Keep the mesh, remat policy {changes['remat']}"
    if "grad_accum" in changes:
        return f"Keep the mesh, split the batch into {changes['grad_accum']} micro-batches"
    if not case.moved:
        return "Keep what runs"
    up = [role for role, d in case.moved.items() if d > 0]
    down = [role for role, d in case.moved.items() if d < 0]
    words = [f"more {_ROLE_NAMES[r]}" for r in up] + [f"{_fewer(case, r)} {_ROLE_NAMES[r]}" for r in down]
    text = " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
    if "remat" in changes:
        text += f", remat {changes['remat']}"
    return text[0].upper() + text[1:]


def _fewer(case: Case, role: str) -> str:
    if sizes_by_role(case.mesh).get(role, 1) == 1:
        return "no"
    return "fewer" if role == "pipeline" else "less"


def sizes(case: Case, role: str) -> str:
    before, after = sizes_by_role(case.config.mesh).get(role, 1), sizes_by_role(case.mesh).get(role, 1)
    group = ("data", "fsdp") if role == "data" else (role,)
    across = " over all slices" if case.config.mesh.dcn_size(*group) > 1 else ""
    return f"from {before} to {after}{across}"


def reasoning(case: Case) -> Iterator[str]:
    """Why: the verdict it answers, then what each move does, with the measured time it bears on."""
    verdict = case.diagnosis.bottleneck
    yield verdict.statement if case.rank == 1 else f"The verdict stays: {_VERDICTS[verdict.primary]}."
    if verdict.primary in OFF_CHIP and case.moved:
        yield "No mesh answers that; this one shortens the rest of the step."
    if not case.moved:
        yield from _without_move(case)
        return
    for role, doublings in sorted(case.moved.items(), key=lambda item: item[1]):
        yield from _move(case, role, doublings)
    if "remat" in case.choice.changes:
        yield _remat_reason(case)
    if case.precedent is not None:
        yield f"Precedent: {case.precedent.title.lower()} ({case.precedent.source})."


def _without_move(case: Case) -> Iterator[str]:
    if "xla_flags" in case.choice.changes:
        yield (
            f"{format_time(case.choice.exposed_s)} of communication per step is exposed; with asynchronous collectives "
            "part of it can run beside compute. The mesh, the memory and the results of training stay as they are."
        )
        return
    if "remat" in case.choice.changes:
        yield _remat_reason(case)
        return
    if "grad_accum" in case.choice.changes:
        yield "More, smaller micro-batches leave fewer activations in memory at a time; each reads the weights again."
        return
    if case.diagnosis.bottleneck.primary in OFF_CHIP:
        yield "No mesh answers that: the chips wait for what comes from outside. Mend that first, then look again."
    elif not case.missing:
        yield "No legal mesh of these chips promises more than the model's own uncertainty."
    elif case.rank == 1:
        yield "As far as this profile and configuration tell, no legal mesh is likely to be faster."
    else:
        yield "It is the ground that was measured, and the yardstick for the others."


def _remat_reason(case: Case) -> str:
    before, after = case.config.training.remat, case.choice.changes["remat"]
    if after == "offload":
        return "Layer inputs are kept in host memory, so that they take no room on the chip."
    if _RECOMPUTES.get(after, 0) < _RECOMPUTES.get(before, 0):
        return f"Remat policy {after} in place of {before}: less forward work is done again in the backward pass."
    slower = case.predicted.speedup is not None and case.predicted.speedup < 1.0
    cost = "; it costs time, and pays only where memory is short" if slower else ""
    return f"Remat policy {after} in place of {before} frees activation memory{cost}."


def _move(case: Case, role: str, doublings: float) -> Iterator[str]:
    name, step = _ROLE_NAMES[role], sizes(case, role)
    observed = case.observed
    if role == "model" and doublings < 0:
        text = f"{name.capitalize()} goes {step}: its collectives sit on the critical path of every layer"
        yield _with_time(text, observed.traffic_s["tensor"], observed, "now") + (
            ", and each chip's shard of a product gets wider."
        )
    elif role == "model":
        text = f"{name.capitalize()} goes {step}, so each chip reads a smaller part of the weights"
        time = observed.work_s["weights_hbm"]
        yield _with_time(text, time, observed, "waiting for weights from HBM now") + (
            ", and holds and reduces a smaller part of the gradients."
        )
    elif role == "seq" and doublings < 0:
        less = "no longer exchanges" if sizes_by_role(case.mesh).get("seq", 1) == 1 else "exchanges fewer"
        text = f"{name.capitalize()} goes {step}: attention {less} keys and values"
        yield _with_time(text, observed.traffic_s["sequence"], observed, "now") + "."
    elif role == "seq":
        yield f"{name.capitalize()} goes {step}, which spreads the tokens of a sequence over more chips."
    elif role == "data" and doublings > 0:
        yield (
            f"{name.capitalize()} goes {step}; the batch allows it, and gradients can be reduced while the backward "
            "pass goes on."
            if case.config.training.global_batch
            else f"{name.capitalize()} goes {step}; gradients can be reduced while the backward pass goes on."
        )
    else:
        yield f"{name.capitalize()} goes {step}."


def _with_time(text: str, seconds: float, observed: Observed, when: str) -> str:
    if seconds < 0.001 * observed.step_s:
        return text
    return f"{text} ({format_time(seconds)} per step {when}, {format_share(seconds / observed.step_s)})"


def expected_impact(case: Case) -> Iterator[str]:
    predicted, before = case.predicted, case.baseline
    if not case.moved and not case.choice.changes:
        if before.step_time_s:
            yield f"Step time stays at {format_time(before.step_time_s['estimate'])}."
        return
    if predicted.step_time_s and before.step_time_s and predicted.speedup:
        low, high = predicted.speedup_low80 or predicted.speedup, predicted.speedup_high80 or predicted.speedup
        yield (
            f"Step time {format_time(predicted.step_time_s['estimate'])} against "
            f"{format_time(before.step_time_s['estimate'])} measured: {predicted.speedup:.2f}× per token, "
            f"between {low:.2f}× and {high:.2f}× in four of five such cases."
        )
    elif predicted.speedup:
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
            yield f"Memory per chip {now} of {capacity}" + (f", {before_text} before." if before_text else ".")
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
        batch = config.training.global_batch
        if batch:
            shards = case.mesh.size("replica", "data", "fsdp", "expert")
            each = f"{batch / shards:g} sequence" + ("" if batch == shards else "s")
            yield f"Each batch shard keeps {each} of the global batch of {batch}."
    if moved.get("data", 0.0) < 0:
        yield "Fewer batch shards: each group of chips handles more sequences at once."
    if case.ranked.split[case.row] and moved:
        yield "An axis takes part of a torus dimension: split physical axes must be allowed when the mesh is made."
    if "xla_flags" in case.choice.changes:
        yield "What the compiler can overlap is seen only in the next profile; buffers in flight take some memory."
    if "remat" in case.choice.changes:
        yield _remat_cost(case)
    if "grad_accum" in case.choice.changes:
        yield "Smaller products per micro-batch use the matrix units less well."
    if not moved and not case.choice.changes:
        yield "Nothing is risked, and nothing is learnt."


def _remat_cost(case: Case) -> str:
    before, after = case.config.training.remat, case.choice.changes["remat"]
    if after == "offload":
        return "Activations travel to host memory and back; the link between chip and host must keep up."
    if _RECOMPUTES.get(after, 0) < _RECOMPUTES.get(before, 0):
        return "Activations that were recomputed are kept, and take memory."
    return "Forward work is done again in the backward pass."


def _fits(case: Case) -> bool | None:
    """Whether the computed memory fits; None where it was not computed."""
    memory = case.predicted.hbm_per_chip_bytes
    return None if not memory or memory.get("total") is None else memory["total"] <= memory["capacity"]


def raises(case: Case) -> Iterator[str]:
    verdict = case.diagnosis.bottleneck
    if verdict.confidence >= 0.7:
        yield f"The verdict ({verdict.primary}) is {verdict.confidence * 100:.0f} % certain."
    distance = sum(map(abs, case.moved.values())) / 2
    if case.moved and distance <= 1:
        yield "One doubling away from what was measured."
    if case.precedent is not None:
        yield f"A published run gained from the same move: {case.precedent.effect} ({case.precedent.source})."
    if _fits(case):
        yield "Memory was computed, and fits."
    if not case.missing:
        yield "Model, batch and sequence length are known, so every term was computed."


_FACTS = {
    "model": "the model",
    "training.global_batch": "the global batch",
    "training.seq_len": "the sequence length",
}


def lowers(case: Case) -> Iterator[str]:
    unknown = [_FACTS[key] for key in case.missing]
    if unknown:
        yield f"Not known: {', '.join(unknown)}; those terms were scaled from the profile or assumed."
    if case.observed.stand_in:
        yield "The profile was recorded on another kind of chip than the configuration names; times carry over poorly."
    distance = sum(map(abs, case.moved.values())) / 2
    if distance > 1:
        yield f"{distance:g} doublings away from what was measured."
    fresh = [_ROLE_NAMES[role] for role in case.moved if sizes_by_role(case.config.mesh).get(role, 1) == 1]
    if fresh:
        yield f"The profile has no {' and no '.join(fresh)} to learn from."
    if case.config.model is None and case.moved.get("model", 0.0) > 0:
        yield "Heads and KV heads may not divide by the tensor shards; check the model's shape first."
    if case.observed.coverage < 0.9:
        yield f"The profile lists ops for only {format_share(case.observed.coverage)} of the step."
    memory = case.predicted.hbm_per_chip_bytes
    if memory and _fits(case) is False:
        needs = f"{format_bytes(memory['total'])} of the {format_bytes(memory['capacity'])} a chip has"
        yield f"By the model it needs {needs}: the model errs, or the configuration is not that of the profile."
    elif case.choice.changes.get("remat") in ("none", "minimal") and _fits(case):
        yield "More activations are kept than in what ran; that they fit is computed, not measured."
    if case.predicted.hbm_per_chip_bytes is None and case.moved.get("model", 0.0) < 0:
        yield "Peak memory was not measured, so its headroom is unknown."
    if "xla_flags" in case.choice.changes:
        yield "How much the schedule can hide is not predicted by the model; half of it is assumed."


def tags(case: Case) -> list[str]:
    """What the citations are looked up by."""
    found = [case.diagnosis.bottleneck.primary]
    for role, doublings in case.moved.items():
        found.append(("more_" if doublings > 0 else "less_") + role)
    found += ["flags"] if "xla_flags" in case.choice.changes else []
    found += ["remat"] if "remat" in case.choice.changes else []
    found += ["keep"] if not case.moved and not case.choice.changes else []
    found += ["replicated"] if any(f.rule == "replicated_weights" for f in case.diagnosis.findings) else []
    found += ["dcn"] if case.config.mesh.dcn_product > 1 else []
    return found


def answered(case: Case) -> tuple[Finding, ...]:
    """Findings that a move bears on: those about its axis, and replicated weights where the model is cut smaller."""
    axes = {axis for axis, _ in case.config.mesh.ici if case.config.mesh.role(axis) in case.moved}
    axes |= {"data"} if "fsdp" in axes else set()
    if "xla_flags" in case.choice.changes:
        words = ("exposed", "async", "gradient")
        return tuple(f for f in case.diagnosis.findings if any(word in f.rule for word in words))
    return tuple(
        finding
        for finding in case.diagnosis.findings
        if (finding.mesh_axis and axes & set(finding.mesh_axis.replace(",", " ").replace("+", " ").split()))
        or (finding.rule == "replicated_weights" and case.moved.get("model", 0.0) > 0)
    )


def _room(case: Case) -> float:
    """Probability that computed memory fits as computed: it errs by some ten percent, up and down."""
    memory = case.predicted.hbm_per_chip_bytes
    if not memory or not _fits(case):
        return 1.0  # not computed, or no more than what ran
    return float(np.clip((1.3 - memory["total"] / memory["capacity"]) / 0.35, 0.05, 1.0))


def probability(case: Case) -> float:
    """That the step gets faster per token; for what changes nothing, that no legal mesh gains what is worth a change.

    A move whose terms were scaled rather than computed never claims more than nine in ten.
    """
    if not case.moved and not case.choice.changes:
        value = keeping_is_right(case.ranked, case.row, case.diagnosis)
    elif "xla_flags" in case.choice.changes:
        value = SCHEDULE_HELPS
    elif case.choice.changes:
        low, high = case.predicted.speedup_low80 or 1.0, case.predicted.speedup_high80 or 1.0
        sigma = max(np.log(high / low) / (2.0 * Z80), 1e-6)
        value = _room(case) * float(case.ranked.runs[case.row])
        value *= float(ndtr(np.log(case.predicted.speedup or 1.0) / sigma))
    else:
        value = float(case.ranked.faster[case.row])
    return float(np.clip(value, 0.02, 0.9 if case.missing else 0.95))
