"""Records drawn from the OptiCo paper: its expert's tuning step by step (Figure 5).

Tables 1 and 2 compare ways of tuning, without configurations; they are no optimisations of a run.
"""

from __future__ import annotations

from math import log2

from evaluation.optico import FLOPS_PER_TOKEN, TunedRun, tuned_runs
from history.record import Record, Side, outcome_of
from perfmodel.catalogue import architecture
from perfmodel.config import ExperimentConfig
from perfmodel.config_file import config_to_json

PAPER = "OptiCo: Adaptive Distributed Training Optimization via Collaborative Agent Reasoning"
URL = "https://github.com/TangZhe96/OptiCo-public"
LICENCE = "figures quoted from the paper"
_CONVENTION = "six FLOPs per parameter and token; attention scores are not counted"
#: What the paper's expert turned, and how the field writes it.
_KNOBS = {"model": "TP", "pipeline": "PP", "micro_batch": "micro-batch", "global_batch": "global batch"}


def tuning_steps() -> list[Record]:
    """Figure 5.  One factor doubled or halved, in the expert's order; a run that ran out of memory is always the side
    after.  Then every other run at the same batch against the best one, where that is more than one step."""
    runs = list({_settings(run.config): run for run in reversed(tuned_runs())}.values())[::-1]
    pairs = []
    for index, first in enumerate(runs):
        for second in runs[index + 1 :]:
            before, after = (second, first) if first.step_time_s is None else (first, second)
            if before.step_time_s is not None and _one_step(before.config, after.config):
                pairs.append((before, after))
    stepped = {frozenset((_settings(a.config), _settings(b.config))) for a, b in pairs}
    ran = [run for run in runs if run.step_time_s is not None]
    best = min((run for run in ran if run.config.training.global_batch == 512), key=_time_per_token)
    for run in ran:
        same_batch = run.config.training.global_batch == best.config.training.global_batch
        both = frozenset((_settings(run.config), _settings(best.config)))
        if run is not best and same_batch and both not in stepped:
            pairs.append((run, best))
    return [_tuned(before, after, number) for number, (before, after) in enumerate(pairs, 1)]


def _settings(config: ExperimentConfig) -> tuple[int, ...]:
    training, mesh = config.training, config.mesh
    return (
        mesh.size("model"),
        mesh.size("pipeline"),
        training.micro_batch or 1,
        training.global_batch or 1,
    )


def _one_step(before: ExperimentConfig, after: ExperimentConfig) -> bool:
    """Whether exactly one of tensor, pipeline, micro-batch and batch changed, and by one doubling."""
    steps = [abs(log2(b / a)) for a, b in zip(_settings(before), _settings(after), strict=True) if a != b]
    return steps == [1.0]


def _time_per_token(run: TunedRun) -> float:
    assert run.step_time_s is not None and run.config.training.global_batch_tokens is not None
    return run.step_time_s / run.config.training.global_batch_tokens


def _tuned(before: TunedRun, after: TunedRun, number: int) -> Record:
    changed = [
        (name, old, new)
        for name, old, new in zip(_KNOBS.values(), _settings(before.config), _settings(after.config), strict=True)
        if old != new
    ]
    change = ", ".join(f"{name} {old} → {new}" for name, old, new in changed)
    speedup = None if after.step_time_s is None else round(_time_per_token(before) / _time_per_token(after), 4)
    batch = any(name in ("micro-batch", "global batch") for name, _, _ in changed)
    mesh = any(name in ("TP", "PP") for name, _, _ in changed)
    caveats = [
        "Figure 5 prints TP, PP, micro-batch and batch. That nothing is recomputed and that Megatron-LM's distributed "
        "optimizer shards the state is inferred from the memory it prints; one run per row."
    ]
    if any(name == "global batch" for name, _, _ in changed):
        caveats.append("A different global batch changes the training; only time per token is compared.")
    if any(name == "TP" for name, _, _ in changed) and after.step_time_s is not None:
        caveats.append("All eight GPUs share one node, so tensor parallelism never leaves NVLink.")
    shape = before.config.model
    assert shape is not None
    return Record(
        id=f"optico-figure5-{number}",
        title=f"{change}{_fixed(before, changed)}: llama3-8b on 8 × a100-80gb",
        change=change,
        changes=(("mesh",) if mesh else ()) + (("batch",) if batch else ()),
        before=_tuned_side(before),
        after=_tuned_side(after),
        outcome="failed" if speedup is None else outcome_of(speedup),
        source=f"{PAPER}, appendix C.2, Figure 5",
        chip="a100-80gb",
        chips=8,
        topology=(8, 1),
        model_name="llama3-8b",
        model_family=architecture(shape),
        parameters=8e9,
        speedup=speedup,
        measure="" if speedup is None else "tokens/s per chip",
        effect=_tuned_effect(before, after),
        failure="out_of_memory" if speedup is None else "",
        caveats=tuple(caveats),
        url=URL,
        licence=LICENCE,
    )


def _fixed(run: TunedRun, changed: list[tuple[str, int, int]]) -> str:
    """What tells two steps with the same change apart."""
    moved = {name for name, _, _ in changed}
    kept = [
        f"{name} {value}"
        for name, value in zip(("TP", "PP"), _settings(run.config)[:2], strict=True)
        if name not in moved
    ]
    return f" at {', '.join(kept)}" if kept else ""


def _tuned_side(run: TunedRun) -> Side:
    data = config_to_json(run.config)
    mesh = {axis: size for axis, size in data["mesh"]["ici"].items() if size > 1}
    keys = ("global_batch", "micro_batch", "grad_accum", "seq_len", "precision", "weight_sharding")
    training = {key: data["training"][key] for key in keys} | {"remat": "none"}
    tensor, pipeline, micro, batch = _settings(run.config)
    kpis: dict[str, float | str] = {}
    if run.step_time_s is not None and run.peak_bytes is not None:
        flops = FLOPS_PER_TOKEN / _time_per_token(run) / run.config.hardware.chips
        kpis = {
            "tokens_per_s_per_chip": round(flops / FLOPS_PER_TOKEN, 1),
            "flops_per_s_per_chip": round(flops, -7),
            "mfu_convention": _CONVENTION,
            "peak_bytes": round(run.peak_bytes),
        }
    label = f"TP {tensor}, PP {pipeline}, micro-batch {micro}, global batch {batch}"
    return Side(label=label, mesh={"ici": mesh, "dcn": {}}, training=training, kpis=kpis)


def _tuned_effect(before: TunedRun, after: TunedRun) -> str:
    def teraflops(run: TunedRun) -> float:
        return FLOPS_PER_TOKEN / _time_per_token(run) / run.config.hardware.chips / 1e12

    if after.peak_bytes is None or before.peak_bytes is None:
        return "The run after the change ran out of memory"
    memory = f"peak memory {before.peak_bytes / 2**30:.1f} → {after.peak_bytes / 2**30:.1f} GiB of 80"
    return f"{teraflops(before):.1f} → {teraflops(after):.1f} TFLOP/s per GPU; {memory}"
