"""Writes the measured sweeps as records of the optimization database: `python -m evaluation.history_from_sweeps`.

What is compared: `sweep_comparisons`.  `make seeds` runs it; the file is the same for the same sweeps, and a test
compares it with what this program writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import exp, log
from re import sub

import numpy as np

from diagnosis.analyzer import diagnose
from evaluation.seeds.build import as_text
from evaluation.sweep_comparisons import Comparison, Setting, comparisons, settings_that_ran
from evaluation.sweeps import SweepRun, load_sweeps
from experiments.without_profile import without_profile
from history.record import Record, Side, outcome_of
from history.seeds import FOLDER
from perfmodel.accounting import parameters
from perfmodel.catalogue import model_to_json
from perfmodel.chips import get_chip
from perfmodel.config import Measured, ModelShape
from proposals.proposer.precedents import Precedent

FILE = FOLDER / "sweeps.json"
#: Share of a GPU's memory from which on a run is said to be nearly full.
NEARLY_FULL = 0.8
#: How the caveat begins that says where a bottleneck comes from.
DERIVED = "The bottleneck is derived from the performance model, scaled to the measured step time:"
_PARTS = {
    "hbm": "HBM traffic",
    "idle": "pipeline bubble",
    "kernel_launches": "kernel launches",
    "dcn": "communication between hosts",
    "other": "unattributed time",
    **{f"ici:{axis}": f"communication on the {axis} axis" for axis in ("data", "fsdp", "context", "model", "pipeline")},
}
_AXES = ("pipeline", "data", "fsdp", "context", "model")


@dataclass(frozen=True)
class Source:
    """Where a sweep was published, and what is to be known of its runs."""

    name: str
    url: str
    licence: str
    family: str
    caveats: tuple[str, ...]


SOURCES = {
    "ultrascale": Source(
        "Hugging Face Ultra-Scale Playbook, interactive benchmarks (nanotron)",
        "https://huggingface.co/spaces/nanotron/ultrascale-playbook",
        "Apache-2.0",
        "llama",
        (
            "One run each; repeated configurations of this source differ by 5–25 %.",
            "Llama-like model of nanotron's scaling benchmarks; vocabulary of 131,072 inferred.",
        ),
    ),
    "vtrain-single": Source(
        "vTrain, data/ground_truth (Megatron-DeepSpeed)",
        "https://github.com/VIA-Research/vTrain",
        "MIT",
        "gpt",
        ("One run each.", "Vocabulary, precision and the 80 GB variant of the A100 are assumed."),
    ),
    "simumax": Source(
        "SimuMax, docs/b200 (Megatron-LM)",
        "https://github.com/MooreThreads/SimuMax/tree/main/docs/b200",
        "Apache-2.0",
        "llama",
        (
            "One run each; Llama3-70B cut to 12 layers.",
            "The number of micro-batches is fixed, so fewer replicas mean a smaller batch; effects are per token.",
        ),
    ),
    "llm-foundry": Source(
        "llm-foundry, scripts/train/benchmarking/README.md (Composer, FSDP)",
        "https://github.com/mosaicml/llm-foundry/blob/main/scripts/train/benchmarking/README.md",
        "Apache-2.0",
        "mpt",
        ("One run each; MPT shapes from their published sizes.",),
    ),
}
SOURCES["vtrain-multi"] = SOURCES["vtrain-single"]


def workload_prefix(workload: str) -> str:
    """What the ids of all records of one workload (`SweepRun.workload`) begin with."""
    return f"sweep-{sub('[^a-z0-9]+', '-', workload.lower())}--"


def without_workload(precedents: Sequence[Precedent], workload: str) -> tuple[Precedent, ...]:
    """The precedents but for those of one workload, whose runs are to be predicted."""
    return tuple(item for item in precedents if not item.id.startswith(workload_prefix(workload)))


def records(derive: bool = False) -> list[Record]:
    """A record of every comparison, in the order of the sweeps.

    derive: with the bottleneck that the Analyzer names from the step time alone; it follows the performance model, and
    takes a while.
    """
    found = [(one, _record(one)) for one in comparisons()]
    return [with_bottleneck(record, one.before.run) for one, record in found] if derive else [r for _, r in found]


def with_bottleneck(record: Record, run: SweepRun) -> Record:
    """The record with the Analyzer's verdict on its run before the change, and the caveat that it is derived."""
    config = replace(run.config, measured=Measured(step_time_s=run.step_time_s))
    found = diagnose(without_profile(config), config)
    shares = sorted(found.breakdown_share.items(), key=lambda item: -item[1])[:2]
    shares = [(name, share) for name, share in shares if share >= 0.05]
    parts = " and ".join(f"{_PARTS.get(name, name)} about {10 * round(10 * share)} %" for name, share in shares)
    caveat = f"{DERIVED} {parts} of the step before the change."
    return replace(record, bottleneck=found.bottleneck.primary, caveats=(*record.caveats, caveat))


def _record(one: Comparison) -> Record:
    before, after = one.before.run, one.after.run
    source, config, shape = SOURCES[before.source], before.config, before.config.model
    assert shape is not None
    gain = one.log_gain
    speedup = None if gain is None else round(exp(gain), 4)
    model = _model_name(one.before, shape)
    changes = _changes(one.before, one.after)
    return Record(
        id=f"{workload_prefix(before.workload)}{before.id}-{after.id}",
        title=f"{_short(changes)}: {model} on {config.hardware.chips} × {config.hardware.chip}",
        change="; ".join(changes.values()),
        changes=_kinds(one.before, one.after),
        before=_side(one.before),
        after=_side(one.after),
        outcome="failed" if speedup is None else outcome_of(speedup),
        source=source.name,
        chip=config.hardware.chip,
        chips=config.hardware.chips,
        topology=tuple(config.hardware.topology),
        model_name=model,
        model_family=source.family,
        parameters=parameters(shape).total,
        speedup=speedup,
        measure="" if speedup is None else "tokens/s per chip",
        effect=_effect(one),
        failure="other" if speedup is None else "",
        caveats=tuple(_caveats(one)),
        url=source.url,
        licence=source.licence,
        shape=model_to_json(shape),
    )


def _model_name(one: Setting, shape: ModelShape) -> str:
    billions = parameters(shape).total / 1e9
    size = f"{billions:.0f}b" if billions >= 9.5 else f"{billions:.1f}b"
    return {
        "ultrascale": f"llama-{'1b' if billions < 4 else '8b'}-nanotron",
        "simumax": f"llama3-70b-{shape.layers}-layers",
        "llm-foundry": f"mpt-{size}",
    }.get(one.run.source, f"gpt-{size}")


def _changes(before: Setting, after: Setting) -> dict[str, str]:
    """What differs, in words, by name."""
    one, other = before.run.config.training, after.run.config.training
    found = {axis: (before.size(axis), after.size(axis)) for axis in _AXES}
    values: dict[str, tuple[object, object]] = {
        **found,
        "micro-batch": (before.micro_batch, after.micro_batch),
        "weight sharding": (one.weight_sharding, other.weight_sharding),
        "precision": (one.precision, other.precision),
        "global batch": (one.global_batch, other.global_batch),
    }
    return {name: f"{name} {old} → {new}" for name, (old, new) in values.items() if old != new}


def _short(changes: dict[str, str]) -> str:
    parts = list(changes.values())
    return ", ".join(parts[:3]) + (" …" if len(parts) > 3 else "")


def _kinds(before: Setting, after: Setting) -> tuple[str, ...]:
    changed = _changes(before, after)
    kinds = {
        "mesh": any(axis in changed for axis in _AXES),
        "batch": "micro-batch" in changed or "global batch" in changed,
        "weight_sharding": "weight sharding" in changed,
        "precision": "precision" in changed,
    }
    return tuple(kind for kind, differs in kinds.items() if differs)


def _side(one: Setting) -> Side:
    run, training = one.run, one.run.config.training
    kpis: dict[str, float | str] = {}
    if run.step_time_s:
        kpis["step_time_s"] = float(f"{run.step_time_s:.5g}")
        kpis["tokens_per_s_per_chip"] = float(f"{_tokens_per_s(one):.5g}")
    if run.peak_bytes:
        kpis["peak_bytes"] = round(run.peak_bytes)
    axes = ", ".join(f"{axis} {size}" for axis, size in one.sizes.items()) or "no parallel axis"
    sharding = f", {training.weight_sharding}" if training.weight_sharding != "none" else ""
    return Side(
        label=f"{axes}; micro-batch {one.micro_batch}{sharding}, {training.precision}",
        mesh={"ici": one.sizes or dict(run.config.mesh.ici), "dcn": {}},
        training={
            "global_batch": training.global_batch,
            "micro_batch": one.micro_batch,
            "grad_accum": training.grad_accum,
            "seq_len": training.seq_len,
            "precision": training.precision,
            "weight_sharding": training.weight_sharding,
            "remat": training.remat,
            "software": str(run.row["framework"]),
        },
        kpis=kpis,
    )


def _tokens_per_s(one: Setting) -> float:
    time = one.time_per_token_s
    assert time is not None
    return 1.0 / (time * one.run.config.hardware.chips)


def _effect(one: Comparison) -> str:
    memory = ""
    peaks = [side.run.peak_bytes for side in (one.before, one.after)]
    if peaks[0] and peaks[1]:
        memory = f"; peak memory {peaks[0] / 1e9:.1f} → {peaks[1] / 1e9:.1f} GB"
    if one.log_gain is None:
        before = f"{_tokens_per_s(one.before):,.0f} tokens/s per chip before"
        return f"{one.why}: {before}; the run after the change crashed or ran out of memory"
    rates = " → ".join(f"{_tokens_per_s(side):,.0f}" for side in (one.before, one.after))
    percent = f"{100 * (exp(one.log_gain) - 1):+.1f} % throughput".replace("-", "−")
    return f"{one.why}: {rates} tokens/s per chip ({percent}){memory}"


def _caveats(one: Comparison) -> Iterator[str]:
    before, after = one.before, one.after
    source = SOURCES[before.run.source]
    if one.log_gain is None:
        yield "The source does not distinguish crashes from out-of-memory failures."
    if before.run.source == "ultrascale":
        yield from _of_nanotron(one)
    changed = _changes(before, after)
    mesh = [name for name in changed if name in _AXES]
    others = [name for name in changed if name not in _AXES]
    if len(others) + bool(mesh) > 1:
        names = [*(["mesh"] if mesh else []), *others]
        text = ", ".join(names[:-1]) + f" and {names[-1]}"
        yield f"{text[0].upper()}{text[1:]} changed together: the effect is not due to one setting."
    if one.repeats:
        yield f"The same change with other settings of this workload, measured {_many(one.repeats)}."
    if one.siblings:
        many = _many(one.siblings)
        yield f"The same change in other workloads of this width (other depth or batch), measured {many}."
    yield from source.caveats
    shape = before.run.config.model
    assert shape is not None
    gated = "gated MLP" if shape.mlp == "gated" else "plain MLP"
    yield (
        f"Model shape: {shape.layers} layers, d_model {shape.d_model:,}, d_ff {shape.d_ff:,}, {shape.heads} heads, "
        f"{shape.kv_heads} KV heads, {gated}, vocabulary {shape.vocab:,}."
    )


def _of_nanotron(one: Comparison) -> Iterator[str]:
    sides = (one.before, one.after)
    staged = [side for side in sides if side.size("pipeline") > 1]
    if any(side.size("data") > 1 and side.run.config.training.weight_sharding == "none" for side in staged):
        yield (
            "Without ZeRO, this program reduces gradients for every micro-batch if pipeline stages and replicas are "
            "combined: up to 10–40× slower, an effect of the program, not of the mesh."
        )
    if staged:
        count, low, high = scatter()
        yield (
            f"With a pipeline, step times of this program vary widely: for {count} pairs of runs that differ only in "
            f"ZeRO 0 or 1, 80 % of the ratios lie between {low:.2f}× and {high:.1f}×."
        )
    full = [side for side in sides if (side.run.peak_bytes or 0.0) >= NEARLY_FULL * get_chip("h100").hbm_bytes]
    if full:
        yield "Memory is nearly full: such runs of this source are often several times slower."


@cache
def scatter() -> tuple[int, float, float]:
    """Pairs of nanotron's runs with stages and replicas that differ in ZeRO 0 or 1 only: how many, and the time without
    ZeRO over that with it, at the first and the last tenth."""
    times: dict[tuple[object, ...], dict[str, float]] = {}
    for one in settings_that_ran(load_sweeps("ultrascale")):
        if one.size("pipeline") > 1 and one.size("data") > 1 and one.time_per_token_s:
            key = (one.run.workload, tuple(one.sizes.items()), one.micro_batch)
            times.setdefault(key, {})[one.run.config.training.weight_sharding] = one.time_per_token_s
    ratios = [log(found["none"] / found["zero1"]) for found in times.values() if len(found) == 2]
    low, high = np.exp(np.quantile(ratios, [0.1, 0.9]))
    return len(ratios), float(low), float(high)


def _many(gains: Sequence[float]) -> str:
    low, high = exp(min(gains)), exp(max(gains))
    count = f"{len(gains)} times" if len(gains) > 1 else "once"
    span = f"{low:.2f}×" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f}× to {high:.2f}×"
    return f"{count}: {span}"


def main() -> None:
    FILE.write_text(as_text(records(derive=True)), encoding="utf-8")


if __name__ == "__main__":
    main()
