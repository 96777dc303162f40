"""The sentences of a proposal, made from its numbers.  No number stands here that is not in the values beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import formatting
from experiments.sentences import Sentence, Value, say
from experiments.step_profile import MODEL, PROFILE
from history.moves import RECOMPUTES
from proposals.constraints import RULE
from proposals.proposer.case import Case
from proposals.proposer.observed import Observed
from proposals.proposer.precedents import sizes_by_role
from proposals.proposer.pricing import OFF_CHIP

ROLE_NAMES = {
    "data": "data parallelism",
    "replica": "replication",
    "seq": "context parallelism",
    "model": "tensor parallelism",
    "expert": "expert parallelism",
    "pipeline": "pipeline stages",
}
VERDICTS = {
    "compute": "compute limits the step",
    "memory": "HBM bandwidth limits the step",
    "communication": "communication limits the step",
    "input": "the input pipeline limits the step",
    "host": "the host limits the step",
    "idle": "idle time limits the step",
    "unknown": "the profile does not show what limits the step",
}
_SHARDINGS = {"none": "replicated", "zero1": "replicated, optimizer state sharded", "fsdp": "fully sharded"}


def title(case: Case) -> str:
    words = list(_changed_words(case))
    if not case.moved and case.resized:
        sizes = [f"{axis} {before} → {after}" for axis, (before, after) in case.resized.items()]
        return ", ".join([formatting.listed(sizes), *words])
    if not case.moved:
        if not words:
            return "Keep the current configuration"
        return "Keep the mesh, " + formatting.listed(words)
    up = [role for role, d in case.moved.items() if d > 0]
    down = [role for role, d in case.moved.items() if d < 0]
    moved = [f"more {ROLE_NAMES[r]}" for r in up] + [f"{_fewer(case, r)} {ROLE_NAMES[r]}" for r in down]
    text = ", ".join([formatting.listed(moved), *words])
    return text[0].upper() + text[1:]


def _changed_words(case: Case) -> Iterator[str]:
    changes = case.changes
    if "global_batch" in changes:
        yield f"global batch {changes['global_batch']}"
    if "remat" in changes:
        yield f"remat policy {changes['remat']}"
    if "weight_sharding" in changes:
        yield f"weights {_SHARDINGS[changes['weight_sharding']]}"
    if "grad_accum" in changes:
        count = changes["grad_accum"]
        yield f"split the batch into {count} micro-batches" if count > 1 else "no gradient accumulation"
    if "micro_batch" in changes:
        yield f"micro-batches of {changes['micro_batch']}"
    if "virtual_stages" in changes:
        count = changes["virtual_stages"]
        yield f"{count} virtual stages" if count > 1 else "no virtual stages"
    if "topology" in changes:
        yield f"on {_slice(changes['topology'], changes['slices'])}"
    if "xla_flags" in changes:
        yield "overlap communication with compute" if _more_flags(case) else "different XLA flags"
    for name in changes:
        if name not in PRICED_KEYS:
            yield f"{name.replace('_', ' ')} {changes[name]}"


#: Training keys with sentences of their own.
PRICED_KEYS = (
    "global_batch", "remat", "weight_sharding", "grad_accum", "micro_batch", "virtual_stages", "xla_flags", "topology",
    "slices",
)  # fmt: skip


def _slice(topology: Sequence[int], slices: int) -> str:
    size = f"{formatting.topology(topology)} chips"
    return f"{slices} slices of {size}" if slices > 1 else size


def _more_flags(case: Case) -> bool:
    return len(case.changes.get("xla_flags", ())) > len(case.config.training.xla_flags)


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
    if case.kind == "own":
        yield from (f"Invalid configuration: {item.reason}" for item in case.broken if not item.rule.startswith(RULE))
    first = case.rank == 1 or case.kind == "own"
    yield verdict.statement if first else f"Bottleneck: {VERDICTS[verdict.primary]}."
    if verdict.primary == "idle" and case.moved.get("pipeline", 0) < 0 and case.falls("idle"):
        yield "Fewer pipeline stages have a smaller bubble, which is where the idle time comes from."
    elif verdict.primary in OFF_CHIP and case.resized:
        yield "No mesh change removes that; this one shortens the rest of the step."
    for role, doublings in sorted(case.moved.items(), key=lambda item: item[1]):
        yield from _move(case, role, doublings)
    yield from _change_reasons(case)
    if case.resized and not case.moved:
        yield "Weights and optimizer state are sharded over another number of chips; the tokens per chip stay the same."
    if case.keeps:
        yield from _keep_reasons(case)
    if case.precedent is not None:
        yield f"Precedent: {case.precedent.title} ({case.precedent.source})."


def _change_reasons(case: Case) -> Iterator[str]:
    changes, training = case.changes, case.config.training
    if "xla_flags" in changes and _more_flags(case):
        alone = len(changes) == 1 and not case.resized
        rest = " Mesh, memory and training results are unchanged." if alone else ""
        yield say(
            "{} is exposed; asynchronous collectives can overlap part of it with compute.{}",
            _exposed(case.exposed_s, case.observed), rest,
        )  # fmt: skip
    if "topology" in changes:
        hardware = case.config.hardware
        now, then = _slice(changes["topology"], changes["slices"]), _slice(hardware.topology, hardware.slices)
        yield f"Fewer chips as requested: {now} instead of {then}."
    if "remat" in changes:
        yield _remat_reason(case)
    if "weight_sharding" in changes:
        yield _sharding_reason(case)
    if "virtual_stages" in changes:
        yield _virtual_reason(case)
    rows = case.rows_ratio if case.splits_anew else 1.0
    if rows < 1:
        bubble = " and shrink the pipeline bubble" if case.mesh.size("pipeline") > 1 and case.falls("idle") else ""
        again = "; each reads the weights again" if case.micro_batches_ratio > 1 else ""
        yield f"Smaller micro-batches hold fewer activations at a time{bubble}{again}."
    elif rows > 1:
        less = "read and all-gather the weights less often, and " if case.micro_batches_ratio < 1 else ""
        yield f"Larger micro-batches {less}make larger matmuls."
    elif case.splits_anew:
        yield "The tokens per micro-batch and chip are unchanged."
    if "global_batch" in changes:
        batch = changes["global_batch"]
        if batch > (training.global_batch or 0):
            gain = (
                "weight and gradient communication is amortised over more tokens"
                if case.rows_ratio > 1
                else "gradients are reduced and weights updated once for more tokens"
            )
            yield f"With a global batch of {batch} instead of {training.global_batch}, {gain}."
        else:
            yield (
                f"A global batch of {batch} instead of {training.global_batch} leaves fewer activations per chip; "
                "weight and gradient communication is amortised over fewer tokens."
            )


def _keep_reasons(case: Case) -> Iterator[str]:
    if case.diagnosis.bottleneck.primary in OFF_CHIP:
        yield "No mesh change removes that: the chips wait for input or the host. Fix that first, then profile again."
    elif not case.missing and case.rank == 1:
        yield "No legal change of mesh or policy is more likely than not to gain enough to be worth it."
    elif case.rank == 1:
        yield "Based on this profile and configuration, no legal mesh is likely to be faster."
    else:
        what = "the current configuration" if case.observed.basis == MODEL else "the measured configuration"
        yield f"It is {what} and the baseline for the others."


def _remat_reason(case: Case) -> str:
    before, after = case.config.training.remat, case.changes["remat"]
    if after == "offload":
        return "Layer inputs are offloaded to host memory, which frees HBM."
    if before == "offload" and after == "full":
        return "Remat `full` instead of `offload` brings the layer inputs back to HBM and spares the host link."
    if RECOMPUTES.get(after, 0) < RECOMPUTES.get(before, 0):
        return f"Remat `{after}` instead of `{before}`: fewer forward ops are recomputed in the backward pass."
    cost = "" if case.moved else "; it costs time and pays off only if memory is short"
    return f"Remat `{after}` instead of `{before}` frees activation memory{cost}."


def _virtual_reason(case: Case) -> str:
    before, after = case.config.training.virtual_stages, case.changes["virtual_stages"]
    if after > before:
        return (
            f"With {after} virtual stages instead of {before} on every chip the pipeline bubble shrinks; micro-batches "
            "cross more stage boundaries."
        )
    return f"With {after} virtual stages instead of {before}, micro-batches cross fewer stage boundaries."


def _sharding_reason(case: Case) -> str:
    before, after = case.config.training.weight_sharding, case.changes["weight_sharding"]
    if after == "fsdp":
        return (
            "Fully sharded weights: each chip keeps only its shard of weights, gradients and optimizer state, and "
            "all-gathers weights as needed."
        )
    if after == "zero1" and before == "none":
        return "Sharded optimizer: each chip keeps and updates only its shard of the optimizer state."
    if before == "fsdp":
        return "Each chip keeps full weights, so no pass has to all-gather them; gradients are reduced once."
    return "Each chip keeps the full optimizer state, so updated weights need no all-gather."


def _move(case: Case, role: str, doublings: float) -> Iterator[str]:
    name, step = ROLE_NAMES[role], sizes(case, role)
    observed = case.observed
    if role == "model" and doublings < 0:
        text = f"{name.capitalize()} goes {step}: its collectives are on the critical path of every layer"
        yield _with_time(text, "tensor", observed, "now") + (", and each chip's matmul shards get wider.")
    elif role == "model":
        text = f"{name.capitalize()} goes {step}, so each chip reads a smaller shard of the weights"
        yield _with_time(text, "weights_hbm", observed, "reading weights from HBM now") + (
            ", and holds and reduces a smaller shard of the gradients."
        )
    elif role == "seq" and doublings < 0:
        less = "no longer exchanges" if sizes_by_role(case.mesh).get("seq", 1) == 1 else "exchanges fewer"
        text = f"{name.capitalize()} goes {step}: attention {less} keys and values"
        yield _with_time(text, "sequence", observed, "now") + "."
    elif role == "seq":
        yield f"{name.capitalize()} goes {step}, which spreads each sequence over more chips."
    elif role == "data" and case.moved.get("replica", 0.0) > 0:
        yield f"Weights are sharded over groups of chips, {step}, and replicated across groups: gathers stay inside."
    elif role == "replica" and case.moved.get("data", 0.0) < 0:
        return
    elif role == "data" and doublings > 0:
        yield (
            f"{name.capitalize()} goes {step}; the batch allows it, and gradient reductions can overlap the backward "
            "pass."
            if case.config.training.global_batch
            else f"{name.capitalize()} goes {step}; gradient reductions can overlap the backward pass."
        )
    else:
        yield f"{name.capitalize()} {'go' if name.endswith('s') else 'goes'} {step}."


def spent(name: str, seconds: float, observed: Observed) -> tuple[Value, Value]:
    """(time per step, share of the step) of one part of the current configuration, as `Plan.observed` has it."""
    origin = "computed" if observed.basis == PROFILE else "predicted"
    words, field = name.replace("_", " "), f"plan.observed.{name}"
    return (
        Value(f"{words} time per step", seconds, "s", origin, field=f"{field}.time_s"),
        Value(f"{words} share of the step", seconds / observed.step_s, "share", origin, field=f"{field}.share"),
    )


def _exposed(seconds: float, observed: Observed) -> Sentence:
    time, share = spent("exposed", seconds, observed)
    if observed.timed:
        return say("{} of communication per step", time)
    return say("Communication that takes {} of device time", share)


def _with_time(text: str, name: str, observed: Observed, when: str) -> Sentence:
    time, share = spent(name, {**observed.work_s, **observed.traffic_s}[name], observed)
    if (share.value or 0.0) < 0.001:
        return Sentence(text)
    if observed.basis != PROFILE:
        return say("{} ({} per step predicted)", text, time)
    if not observed.timed:
        return say("{} ({} of device time {})", text, share, when)
    return say("{} ({} per step {}, {})", text, time, when, share)
