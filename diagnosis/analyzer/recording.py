"""Decides what was recorded (`diagnosis.recording.Recording`), before any rule draws a conclusion."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from diagnosis.analyzer import links, names
from diagnosis.analyzer.facts import OpFacts, total_share
from diagnosis.analyzer.ops import idle_share, profile_has_flops
from diagnosis.recording import INFERENCE, KINDS, PROGRAMS, Missing, Recording
from experiments.passes import BACKWARD, FORWARD, OPTIMIZER, RECOMPUTE
from experiments.sentences import Sentence, join, say
from experiments.step_profile import GPU_TRACES, PROFILE, UNDECIDED, XLA_PROFILES, Op, StepProfile
from formatting import counted, plain, share
from perfmodel.config import ExperimentConfig, missing_facts
from perfmodel.roofline import mfu

#: Convolutions as XLA, PyTorch, cuDNN and MIOpen name them.  XLA on TPUs also calls each matmul a convolution, but
#: keeps the program's own name for it (`dot_general`).
_CONVOLUTION = re.compile(r"conv_general_dilated|aten::\w*conv(olution|[123]d)|(cudnn|miopen)\w*\$?conv", re.IGNORECASE)
#: What only a serving engine runs: kernels that write or read the keys and values of earlier tokens, TensorRT's calls.
_SERVES = re.compile(
    r"reshape_and_cache|paged_?(attention|kv)|kv_?cache|append_paged|mla_decode|ExecutionContext::(execute|enqueue)",
    re.IGNORECASE,
)
#: Attention of a request's next token, and of its whole prompt.
_DECODES = re.compile(r"decode|splitkv|paged_attention_(v[12]|ll4mi|2d)|mmha|masked_multihead", re.IGNORECASE)
_PREFILLS = re.compile(r"prefill|context_attention|fmha_v2|flash_fwd(?!_splitkv)", re.IGNORECASE)
#: Share of either from which a recording is of it alone.
NEARLY_ALONE = 0.95
#: Kernels of PyTorch; of a backward pass or an optimizer, where no framework op is recorded that tells the pass.
_PYTORCH = re.compile(r"elementwise_kernel|at::native")
_TRAINS = re.compile(
    r"backward|(?<![a-z])bwd|[wd]grad|grad_(input|weight)|multi_?tensor_?apply|fused_?adam|adamw?_kernel|transpose\(jvp",
    re.IGNORECASE,
)
#: Share of the time from which a kernel tells what a program does: one that runs once prepares it.
LEAST_TELLING = 1e-3
#: Categories of what a program moves before and after it computes.
_COPY = re.compile(r"copy (host|device|to)|memset")
_TELLING = (BACKWARD, RECOMPUTE, OPTIMIZER, FORWARD)
#: Fewer launches without a step show the program's start and no steady state, unless they keep the device busy so long.
FEW_LAUNCHES, LASTING_S = 20, 0.01
#: A device idle for so much of the steps only warms up while its host captures.
CAPTURING_IDLE = 0.9
#: Share of the step from which lookups in embedding tables say what the program is; a language model's take under 1 %.
LOOKUPS = 0.05
#: A trace of so few kinds of op that take nearly all of the time is no step of a model.
FEW_OPS, NEARLY_ALL = 3, 0.9
#: Listed ops that make up this share of all op time stand for the whole step.
MOST_OPS = 0.8
NO_BACKWARD = "none of the named ops belongs to a backward pass or an optimizer"

_REFUSAL = "The performance model describes training steps of transformers, so no meshes are priced or proposed."


def decide(
    profile: StepProfile, config: ExperimentConfig | None, precision: str, ops: Sequence[OpFacts], listed: float
) -> Recording:
    """Return what the profile is a recording of.

    precision: that the matmuls ran in.  ops: as read without a limit; listed: their share of all op time.
    """
    recorded, device = profile.recorded, profile.device
    kind, kind_evidence = (recorded.kind, "as stated by the engineer") if recorded.kind else _kind(profile, ops)
    program, evidence = (recorded.program, "as stated by the engineer") if recorded.program else _program(ops)
    stated = tuple(name for name in ("kind", "program") if getattr(recorded, name))
    how = profile.computed.get("steps", "").removeprefix("marked by ")
    has, platform = _has(profile, ops, listed), platform_of(profile, config)
    result = Recording(
        kind=kind,
        kind_evidence=kind_evidence,
        program=program,
        program_evidence=evidence,
        stated=stated,
        steps=len(profile.steps),
        steps_from=(how or "the profiler") if profile.steps else "",
        estimated=how.startswith("executions") or "steps" in profile.not_measured,
        devices=device.measured_cores,
        run_devices=device.world_size,
        hosts=device.host_count,
        has=has,
        missing=tuple(_missing(profile, config, ops, has, platform)),
        configured=config is not None,
        platform=platform,
        device=device.kind,
        provenance=profile.provenance,
        unknown_share=sum(op.share for op in ops if op.family == "other" and not op.collective),
        clipped=_clipped(profile),
        rows=recorded.generation_requests if kind == "decode" else None,
        refusal=_refusal(profile, config, precision, ops, (kind, kind_evidence), (program, evidence)),
    )
    return _with_line(result, profile)


def platform_of(profile: StepProfile, config: ExperimentConfig | None) -> str:
    """Return the platform of a recording, see `Recording`: of the profile, else of the configured chip."""
    kind = profile.device.kind.strip().upper()
    if kind.startswith("CPU"):
        return "cpu"
    if profile.source_kind in GPU_TRACES or "GPU" in kind:
        return "gpu"
    chip = links.chip_of(config)
    return "tpu" if "TPU" in kind else chip.kind if chip is not None else ""


def _clipped(profile: StepProfile) -> tuple[str, ...]:
    """Return what the edges of the recording cut off, as sentences."""
    excluded = tuple(note.message for note in profile.notes if "is excluded:" in note.message)
    edges = (
        (profile.recorded.before_s, "of device work was launched before the recording began."),
        (profile.recorded.start_up_s, "of start-up: gaps like none of those that follow, and little of the work."),
    )
    return (*excluded, *(f"{plain(length_s, 's')} {words}" for length_s, words in edges if length_s > 0))


def may_train(ops: Sequence[Op]) -> bool:
    """Whether the program may have a backward pass: not where most of the time bears framework paths and none of them
    names a pass, as those of JAX and PyTorch do where anything is differentiated."""
    if any(names.phase(op.op_name) for op in ops):
        return True
    named = sum(op.self_time_s for op in ops if op.op_name)
    return named < 0.5 * sum(op.self_time_s for op in ops) or named == 0


def _kind(profile: StepProfile, ops: Sequence[OpFacts]) -> tuple[str, Sentence | str]:
    """(kind, what says so); what is left open by the profile is UNDECIDED."""
    recorded = profile.recorded
    if profile.basis != PROFILE:
        return "training", "as configured, without a profile"
    if ops and profile.source_kind in GPU_TRACES and all(_COPY.match(op.op.category) for op in ops):
        return "copies", "no kernel was recorded, only copies and fills"
    trains = _training(profile, ops)
    context, generation = recorded.context_requests, recorded.generation_requests
    if context is not None and generation is not None:
        kind = "inference" if context and generation else "prefill" if context else "decode"
        return kind, f"a serving engine states iterations of {generation} requests in decode, {context} in prefill"
    if trains:
        return "training", trains
    # Captured kernels do not run: a device that did is replaying or warming up.
    runs = profile.steps and (idle_share(profile) or 0.0) < CAPTURING_IDLE
    if "graph capture" in recorded.has and not runs:
        return "graph_capture", "the host captures a graph of kernels, and the device hardly runs or no step is marked"
    if launches := _few_launches(profile, ops):
        return "few_launches", launches
    if not ops or profile.device.kind == "CPU":
        if "products" in recorded.has:
            return "inference", "the host ran matmuls or convolutions but no backward pass; no device was recorded"
        if "input waits" in recorded.has:
            return "data_loading", "a data loader was recorded, and no device activity"
        return UNDECIDED, ""
    served = (found for op in ops if (found := _SERVES.search(op.op.name) or _SERVES.search(op.path)))
    if found := next(served, None):
        attention = [op for op in ops if op.family == "attention kernel"]
        decoded, filled = (total_share(op for op in attention if which.search(op.op.name))
                           for which in (_DECODES, _PREFILLS))  # fmt: skip
        part = max(decoded, filled) / (decoded + filled) if decoded + filled else 0.0
        kind = "inference" if part < NEARLY_ALONE else "decode" if decoded > filled else "prefill"
        return kind, f"only a serving engine runs {found[0]}"
    named = profile.source_kind in (*XLA_PROFILES, "kineto") and any(op.op.op_name for op in ops)
    # Nsight Systems has kernels alone: PyTorch names those of a backward pass and of an optimizer.
    if profile.source_kind == "nsight" and (profile.steps or "host ops" in recorded.has):
        named = any(op.family == "matmul" for op in ops) and any(_PYTORCH.search(op.op.name) for op in ops)
    if not named:
        return UNDECIDED, ""
    few = sum(sorted((op.share for op in ops), reverse=True)[:FEW_OPS])
    if len(ops) <= FEW_OPS and few >= NEARLY_ALL * total_share(ops):
        return "benchmark", f"{NO_BACKWARD}, and there are {counted(len(ops), 'op')} in all"
    # Several devices without an engine's marks or cache may train in kernels that bear no pass.
    return UNDECIDED if (profile.device.world_size or 1) > 1 else "inference", NO_BACKWARD


def _few_launches(profile: StepProfile, ops: Sequence[OpFacts]) -> str:
    """Return how few kernels without a step a GPU ran, and what it copied; empty where they are more, or work long."""
    if profile.source_kind not in GPU_TRACES or profile.steps or profile.device.kind == "CPU" or not ops:
        return ""
    copied, ran = (sum(op.op.occurrences for op in ops if bool(_COPY.match(op.op.category)) == is_copy)
                   for is_copy in (True, False))  # fmt: skip
    lasts = sum(op.op.self_time_s for op in ops) >= LASTING_S and (idle_share(profile) or 0.0) < 0.5
    if ran >= FEW_LAUNCHES or lasts or any("graph" in op.op.name for op in ops):
        return ""
    return f"{counted(ran, 'kernel')} and {counted(copied, 'transfer')} in all, and no step"


def _training(profile: StepProfile, ops: Sequence[OpFacts]) -> str:
    """Return what says that the program trains; empty where nothing does."""
    phases = {op.phase for op in ops if op.phase}
    if phases:
        return f"ops of the {min(phases, key=_TELLING.index)} pass are named"
    if trained := [held for held in ("backward", "optimizer") if held in profile.recorded.has]:
        return f"the host ran {'a backward pass' if trained[0] == 'backward' else 'an optimizer'}"
    # The forward pass of a transposed convolution is the input gradient of a plain one, kernels and all.
    told = (op for op in ops if "conv" not in op.path or "transpose" not in op.path)
    told = (op for op in told if op.share >= LEAST_TELLING * total_share(ops))
    kernel = next((op for op in told if _TRAINS.search(op.op.name) or _TRAINS.search(op.path)), None)
    return f"{kernel.op.name[:60]} belongs to a backward pass or an optimizer" if kernel else ""


def _program(ops: Sequence[OpFacts]) -> tuple[str, Sentence | str]:
    attention = total_share(op for op in ops if op.module == "attention" or op.family == "attention kernel")
    convolutions = total_share(op for op in ops if _is_convolution(op))
    dense = total_share(op for op in ops if op.family == "matmul" or _is_convolution(op))
    if dense and convolutions / dense > 0.5 and convolutions > attention:
        of_dense = share(convolutions / dense)
        return "convolutional", f"convolutions take {of_dense} of the time of matmuls and convolutions"
    lookups = total_share(op for op in ops if op.module == "embedding" and op.family == "scatter")
    if lookups > LOOKUPS and not attention and not convolutions:
        return "recommender", f"lookups in embedding tables take {share(lookups)} of the step and no op is attention"
    if attention:
        return "transformer", f"attention takes {share(attention)} of the step"
    return UNDECIDED, ""


def _is_convolution(op: OpFacts) -> bool:
    return bool(_CONVOLUTION.search(op.path) or _CONVOLUTION.search(op.op.name))


def _refusal(
    profile: StepProfile,
    config: ExperimentConfig | None,
    precision: str,
    ops: Sequence[OpFacts],
    kind: tuple[str, str],
    program: tuple[str, str],
) -> str:
    """Return why the performance model does not apply, as sentences; empty where it may."""
    if profile.basis != PROFILE:
        return ""
    reason = ""
    if program[0] in ("convolutional", "recommender"):
        reason = f"{_capital(program[1])}: {PROGRAMS[program[0]]}."
    elif NO_BACKWARD in kind[1]:
        # An absence does not outweigh a whole training configuration.
        if config is None or missing_facts(config):
            reason = f"{_capital(kind[1])}: inference or a benchmark."
    elif kind[0] not in ("training", UNDECIDED):
        words = "inference" if kind[0] in INFERENCE else KINDS[kind[0]].lower()
        reason = f"{_capital(kind[1])}: {words}, not training."
    if not reason and config is not None:
        utilization = mfu(config, profile.step_time_s, precision) or 0.0
        if utilization > 1.0 and platform_of(profile, config) != "cpu":
            reason = (
                f"The configured model and batch need {plain(utilization, 'speedup')} the chips' peak FLOP/s in the "
                "measured step time, so the profile is of another model, batch or precision."
            )
    return f"{reason} {_REFUSAL}" if reason else ""


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _has(profile: StepProfile, ops: Sequence[OpFacts], listed: float) -> dict[str, bool]:
    has_flops = profile_has_flops(profile)
    of_kernels = profile.source_kind in GPU_TRACES
    held = profile.recorded.has
    return {
        "steps": bool(profile.steps),
        "kernels": of_kernels,
        "framework": profile.source_kind != "nsight"
        or "host ops" in held
        or any(_PYTORCH.search(op.op.name) for op in ops),
        "launches": "launches" in held or (of_kernels and profile.kpis.get("host") is not None),
        "host_threads": "host ops" in held or "launches" in held,
        "shapes": "shapes" in held if of_kernels else any(op.op.hlo for op in ops),
        "flops": has_flops,
        "memory": profile.memory.peak_bytes is not None,
        "per_core_times": len(profile.cores) > 1,
        "hlo": any(op.op.hlo for op in ops),
        "most ops": listed >= MOST_OPS and "lost device activity" not in held,
        "roofline": has_flops and any(op.limit_source == "roofline" for op in ops),
        "intervals": any(core.collective_s is not None for core in profile.cores) or bool(profile.timeline.cores),
    }


def _missing(
    profile: StepProfile,
    config: ExperimentConfig | None,
    ops: Sequence[OpFacts],
    has: dict[str, bool],
    platform: str,
) -> list[Missing]:
    """Return what this recording cannot tell, and how to record it."""
    of_kernels = profile.source_kind in GPU_TRACES
    on_cpu = platform == "cpu"
    wants: list[Missing] = []
    executions = profile.computed.get("steps", "").startswith("executions")
    in_jax = "Mark each step with jax.profiler.StepTraceAnnotation."
    if profile.step_time_s is None:
        _, _, how = profile.not_measured.get("step_time", "").partition(". ")
        wants.append(Missing("step markers", how if of_kernels and how else in_jax))
    elif executions:
        how = "Mark each step in the program and record again." if of_kernels else in_jax
        wants.append(Missing("step markers (steps are inferred from executions)", how))
    if not ops and of_kernels:
        reason = profile.not_measured.get("ops", "")
        wants.append(Missing("device activity", reason.partition(". ")[2] or reason))
    elif "lost device activity" in profile.recorded.has:
        wants.append(Missing("device activity of most launches", "Record fewer steps, so that no event is dropped."))
    elif not has["most ops"] and not of_kernels:
        wants.append(
            Missing(
                "most ops" if ops else "ops", "Upload the .xplane.pb files themselves instead of a table of top ops."
            )
        )
    # Profiles that earlier versions read do not say what else they hold.
    is_known = profile.recorded.has or profile.recorded.gaps
    if of_kernels and ops and is_known and not has["launches"] and not on_cpu:
        wants.append(Missing("calls that launch kernels", "Record the host as well (ProfilerActivity.CPU)."))
    if not has["flops"] and ops and of_kernels:
        wants.append(Missing("FLOPs per op", "Record the shapes of ops (record_shapes=True)."))
    elif not has["flops"] and ops:
        what = "CPUs report none" if on_cpu else "XProf reports none for this device"
        action = "Profile on the accelerator, with the device's peaks in the trace."
        wants.append(Missing(f"FLOPs per op ({what})", action))
    elif not has["roofline"] and ops:
        what = "CPUs report none" if on_cpu else "the trace does not report them"
        wants.append(Missing(f"the device's peaks ({what}), hence no roofline", "Profile on the target accelerator."))
    unknown = [op for op in ops if op.collective is not None and op.collective.axis is None]
    if unknown and total_share(unknown) > 0.1 * total_share(ops):
        lacks = "a configuration with the mesh" if config is None else "the replica groups of its collectives"
        some = profile.device.measured_cores < (profile.device.world_size or 2)
        keep = ", and upload one trace per rank" if some else ""
        keep = ", and keep HLO text in the trace" if profile.source_kind in XLA_PROFILES else keep
        wants.append(Missing(lacks, f"Add the run's mesh{keep}."))
    if config is not None and config.model is None:
        action = "Add the model or its shape to the configuration, so that MFU and memory can be computed."
        wants.append(Missing("the model's shape", action))
    if config is not None and config.training.global_batch_tokens is None:
        wants.append(Missing("batch and sequence length", "Add global_batch and seq_len to the configuration."))
    if not has["memory"]:
        wants.append(Missing("peak memory", "Record a memory profile along with the trace."))
    return wants


def _with_line(recording: Recording, profile: StepProfile) -> Recording:
    """The recording with its line: kind and program, devices, steps, what is unknown."""
    what = KINDS[recording.kind]
    if recording.program != UNDECIDED and (recording.is_program or recording.kind == "graph_capture"):
        what += f" of {PROGRAMS[recording.program]}"
    parts: list[str] = [what]
    if recording.devices:
        of_run = recording.run_devices or 0
        total = f" of {of_run:,}" if of_run > recording.devices else ""
        noun = "core" if profile.device.kind.startswith("TPU") else "device"  # as XProf counts them
        noun += "" if recording.devices == 1 and not total else "s"
        parts.append(f"{recording.devices:,}{total} {noun} ({profile.device.kind})")
    if recording.steps_from:
        kind = "estimated from" if recording.estimated else "marked by"
        parts.append(f"{counted(recording.steps, 'step')} {kind} {recording.steps_from}")
    else:
        parts.append("no step markers")
    if profile.label:
        parts.append(profile.label)
    if recording.unknown_share >= 0.01:
        parts.append(f"{share(recording.unknown_share)} of the time in ops of unknown kind")
    return replace(recording, line=say("{}.", join("; ", parts)))
