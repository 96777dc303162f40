"""docs/accuracy-memory.md: how good predicted memory is, on runs that the fit has not seen.

`python -m evaluation.memory_report` writes it from the fit that is there; with `--fit` the constants are fitted first.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from evaluation import fit_memory, memory_rows
from evaluation.fit_memory import Z80, folds, left_out_fits, spread_of, unseen_source
from evaluation.memory_rows import Floats, Mask, Rows, peak, peak_rows, published_rows, sweep_rows, unrunnable_rows
from evaluation.report import percent, wrapped
from perfmodel import memory
from perfmodel.execution import constants, load_memory_profiles
from perfmodel.legality import MemoryPosterior
from perfmodel.workload import REMAT

PAGE = Path(__file__).parents[1] / "docs" / "accuracy-memory.md"
#: A failed run that needs less than this share of what can be filled failed of something else.
FAR_BELOW = 0.5
#: An alternative explains a row if it comes as near as this.
EXPLAINED = 0.12
WORST = 15

#: What leaving out a term changes in nanotron's profile: title, field, value.
ABLATIONS = (
    ("gradients of a micro-batch in 16 bits beside their sum", "transient_gradient_bytes", 0.0),
    ("gradients summed in float32 (in 16 bits)", "gradient_bytes", 2.0),
    ("buckets of DistributedDataParallel at ZeRO 0", "bucket_bytes", 0.0),
    ("flat buffer that gathers updated weights at ZeRO 1", "optimizer_gather_bytes", 0.0),
    ("float32 copies of the logits (16-bit logits only)", "logit_bytes", 2.0),
    ("activation and gate product of a gated MLP", "mlp_extra", 0.0),
    ("outputs held for asynchronous reduce-scatters", "held_tensors", 0.0),
    ("fragmentation by stages", "fragmentation", 0.0),
    ("workspaces of libraries", "workspace_bytes", 0.0),
)


def write() -> None:
    PAGE.write_text(wrapped("\n".join(lines()) + "\n"), encoding="utf-8")


def lines() -> Iterator[str]:
    """The page."""
    yield from _head()
    yield from _peaks()
    yield from _by_kind()
    yield from _failures()
    yield from _probability()
    yield from _worst()
    yield from _terms()
    yield from _limits()


def errors(by: str) -> Floats:
    """log(predicted / measured) of the sweep's peaks, by fits without them."""
    return fit_memory.out_of_fold(by)


def _head() -> Iterator[str]:
    rows = sweep_rows("ultrascale")
    simumax, optico = peak_rows("simumax"), peak_rows("optico")
    yield "# Accuracy of predicted memory"
    yield ""
    yield (
        f"Written by `python -m evaluation.memory_report`. Measured peaks: {np.isfinite(rows.measured_bytes).sum()} "
        f"runs of nanotron on 8–512 H100 in {len(set(rows.workloads))} workloads (two models), {len(simumax)} of "
        f"Megatron-LM on eight B200, {len(optico)} of OptiCo's on eight A100; {int((~rows.ran).sum())} nanotron runs "
        "failed. Error is |log(predicted / measured)|, bias the median of that logarithm. Every error is of runs "
        "held out of the fit: the terms come from the programs' sources (`perfmodel/memory_profiles.toml` names "
        "them) and were chosen with these sweeps in view; their sizes are fitted on the nanotron sweep alone. The "
        "naive baseline is 16 bytes per parameter, the optimizer's over its replicas, and 34 bytes per token, width "
        "and layer of activations."
    )
    yield ""
    yield (
        "Sources report different quantities, and each is compared with its counterpart: nanotron the memory its "
        "allocator reserved on rank 0, which holds the first stage, in GiB; SimuMax the peak allocated; OptiCo the "
        "device's figure for the fullest GPU. The experiment page shows the fullest stage with the CUDA context."
    )
    yield ""


def _peaks() -> Iterator[str]:
    yield "## Peaks"
    yield ""
    yield from _header("source, held out", "n", "median", "mean", "bias", "in 80 % interval", "naive median")
    rows = peak_rows("ultrascale")
    naive = np.abs(np.log(memory_rows.naive_bytes(rows) / rows.measured_bytes))
    for by, title in (
        ("meshes", "nanotron H100, another mesh of the same workload (fifths)"),
        ("workloads", "nanotron H100, whole workloads"),
        ("models", "nanotron H100, whole models"),
    ):
        yield _row(title, *_scores(errors(by), _covered(by), float(np.median(naive))))
    for source, title in (
        ("ultrascale", "nanotron H100, the whole source (nothing fitted)"),
        ("simumax", "Megatron-LM B200, the whole source (nothing fitted)"),
        ("optico", "Megatron-LM A100, OptiCo, the whole source (nothing fitted)"),
    ):
        rows = peak_rows(source)
        naive = np.abs(np.log(memory_rows.naive_bytes(rows) / rows.measured_bytes))
        others = [unseen_source(name) for name in memory_rows.PRINTED if name != source]
        inside = np.abs(unseen_source(source)) <= Z80 * spread_of(np.concatenate(others))
        yield _row(title, *_scores(unseen_source(source), inside, float(np.median(naive))))
    yield ""
    ratios = _equal_shards()
    yield (
        "The 80 % interval is ±1.28 standard deviations of the errors of the other folds, or of the other sources. "
        f"Noise floor: {len(ratios)} sets of nanotron runs at ZeRO 0 share model, tensor axis, stages and micro-batch "
        "and differ only in replicas, so every GPU holds the same; the largest of a set measured "
        f"{_percents(float(np.median(ratios)) - 1)[0]} above the smallest at the median, and up to "
        f"{max(ratios):.1f}×. SimuMax's own simulator reaches 0.46 % on its rows, with kernels profiled on the "
        "machine."
    )
    yield ""


def _equal_shards() -> list[float]:
    """Largest over smallest peak of runs whose GPUs hold the same."""
    rows = peak_rows("ultrascale")
    mesh, train = rows.work.mesh, rows.work.training
    by_shard: dict[tuple[str, ...], list[float]] = {}
    tokens = train.global_batch / mesh.data / train.micro_batches
    for i in np.flatnonzero((train.sharding == 0) & (mesh.data > 1)):
        key = (str(rows.models[i]), *(f"{value[i]:g}" for value in (mesh.model, mesh.pipeline, tokens)))
        by_shard.setdefault(key, []).append(float(rows.measured_bytes[i]))
    return [max(peaks) / min(peaks) for peaks in by_shard.values() if len(peaks) > 1]


def _by_kind() -> Iterator[str]:
    rows, error = peak_rows("ultrascale"), errors("workloads")
    mesh = rows.work.mesh
    yield "## nanotron, whole workloads held out"
    yield ""
    yield from _header("runs", "n", "median", "mean", "bias", "within 10 %")
    groups: list[tuple[str, Mask]] = [(str(name), rows.workloads == name) for name in sorted(set(rows.workloads))]
    groups += [("no pipeline", mesh.pipeline == 1), ("with a pipeline", mesh.pipeline > 1)]
    groups += [("no tensor axis", mesh.model == 1), ("tensor axis 2–8", (mesh.model > 1) & (mesh.model <= 8))]
    groups += [("tensor axis over nodes", mesh.model > 8)]
    for title, mask in groups:
        part = error[mask]
        yield _row(title, len(part), *_percents(*_centre(part)), _share(np.abs(part) <= 0.1))
    yield ""


@cache
def judged() -> tuple[Rows, Mask, Mask, Floats, Floats]:
    """Runs of the sweep; which a fit without their workload refuses for memory, and which for the schedule; what they
    need over what can be filled; the probability that they fit."""
    rows = sweep_rows("ultrascale")
    refused, filled, chance = np.zeros(len(rows), dtype=bool), np.empty(len(rows)), np.empty(len(rows))
    for (_, mask), (_, fitted) in zip(folds("workloads"), left_out_fits("workloads"), strict=True):
        used = memory.per_chip(rows.take(mask).work, fitted.constants)
        refused[mask], filled[mask] = ~used.fits, used.needed / used.capacity
        chance[mask] = MemoryPosterior().probability_fits(used)
    return rows, refused, np.asarray(unrunnable_rows(rows)), filled, chance


def _failures() -> Iterator[str]:
    rows, refused, never, filled, _ = judged()
    failed = ~rows.ran
    yield "## Runs that failed"
    yield ""
    yield from _header("workload", "failed", "recognised", "of these by schedule", "ran", "ran, but predicted not to")
    for name in (*sorted(set(rows.workloads)), "all"):
        mask = (rows.workloads == name) | (name == "all")
        caught, wrong = (refused | never)[mask & failed], (refused | never)[mask & rows.ran]
        by_schedule = int(never[mask & failed].sum())
        yield _row(name, len(caught), _share(caught), by_schedule, len(wrong), _share(wrong))
    yield ""
    low = failed & ~never & (filled < FAR_BELOW)
    train, mesh = rows.work.training, rows.work.mesh
    slow = (train.sharding == 0) & (mesh.pipeline > 1) & (mesh.data > 1)
    other = failed & ~never & ~low
    naive = memory_rows.naive_bytes(rows) > rows.work.chip.hbm_capacity_bytes
    yield (
        f"The source does not distinguish crashes from lack of memory. Of {failed.sum()} failures, "
        f"{(failed & never).sum()} are pipelines that the program cannot run at any memory size (fewer micro-batches "
        f"than stages minus 1, or stages without a block). {low.sum()} more need less than half of the usable "
        f"memory, so they failed for another reason; {(low & slow).sum()} of these are ZeRO 0 with a pipeline and "
        "replicas, which runs 10–40 × slower than ZeRO 1 there and probably exceeded the time limit. Of the "
        f"{other.sum()} left, {_share(refused[other])} are recognised by memory alone. The naive baseline recognises "
        f"{_share(naive[failed])} of all failures and rejects {_share(naive[rows.ran])} of the runs that ran."
    )
    yield ""
    fits = {kind: memory.per_chip(published_rows(kind).work).fits for kind in ("tpu", "gpu")}
    optico = memory_rows.optico_rows()
    good = memory.per_chip(optico.work).fits
    yield (
        f"Published recipes, all of which ran: {sum(int(f.sum()) for f in fits.values())} of "
        f"{sum(len(f) for f in fits.values())} are predicted to fit. OptiCo: {int((~good & ~optico.ran).sum())} of "
        f"{int((~optico.ran).sum())} runs out of memory recognised, {int((~good & optico.ran).sum())} of "
        f"{int(optico.ran.sum())} that ran rejected."
    )
    yield ""


def _probability() -> Iterator[str]:
    rows, _, never, filled, chance = judged()
    yield "## Probability of fitting"
    yield ""
    yield (
        "`MemoryPosterior.probability_fits` is the probability that a run does not run out of memory. By needed over "
        "usable memory, workloads held out, without pipelines that cannot run and failures far below capacity:"
    )
    yield ""
    yield from _header("needed", "runs", "ran", "stated")
    kept = ~never & ~(~rows.ran & (filled < FAR_BELOW))
    edges = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5, np.inf)
    for low, high in pairwise(edges):
        mask = kept & (filled >= low) & (filled < high)
        if mask.any():
            title = f"over {100 * low:.0f} %" if np.isinf(high) else f"{100 * low:.0f}–{100 * high:.0f} %"
            yield _row(title, int(mask.sum()), _share(rows.ran[mask]), *_percents(float(np.mean(chance[mask]))))
    yield ""


def _worst() -> Iterator[str]:
    rows, error = peak_rows("ultrascale"), errors("workloads")
    fitted = fit_memory.whole_fit().profiles
    own = fitted["nanotron"]
    changes: tuple[tuple[str, dict[str, Any] | None], ...] = (
        ("no outputs held for reduce-scatters: the host did not run ahead", {"held_tensors": 0.0}),
        ("the host ran ahead without waiting for the pipeline", {"held_share": 1.0, "fragmentation": 0.0}),
        ("layers recomputed", None),
    )
    near: dict[str, Floats] = {}
    for title, change in changes:
        if change is None:
            full = np.full(len(rows), REMAT.index("full"))
            other = replace(rows, work=replace(rows.work, training=replace(rows.work.training, remat=full)))
            predicted = peak(other, constants({**fitted, "nanotron": {**own, "held_tensors": 0.0}}))
        else:
            predicted = peak(rows, constants({**fitted, "nanotron": {**own, **change}}))
        near[title] = np.abs(np.log(predicted / rows.measured_bytes))
    yield "## Worst rows"
    yield ""
    yield "| run | workload | measured GB | predicted GB | possible explanation |"
    yield "|---|---|--:|--:|---|"
    for i in np.argsort(-np.abs(error))[:WORST]:
        title = min(near, key=lambda name: float(near[name][i]))
        reason = title if near[title][i] <= EXPLAINED else "none found"
        measured = rows.measured_bytes[i] / 1e9
        yield _row(
            rows.labels[i], str(rows.workloads[i]), f"{measured:.1f}", f"{measured * np.exp(error[i]):.1f}", reason
        )
    yield ""
    far = np.abs(error) > 0.25
    best = np.min(np.stack(list(near.values())), axis=0)
    yield (
        f"{far.sum()} of {len(error)} rows are off by more than 25 %; {int((best[far] <= EXPLAINED).sum())} of them "
        "have one of these explanations. Equal shards at two scales differ in the same way, so the configuration "
        "does not determine which applies."
    )
    yield ""


def _terms() -> Iterator[str]:
    yield "## Ablation of terms"
    yield ""
    yield "Whole models held out, the other constants refitted:"
    yield ""
    yield from _header("nanotron without", "median", "mean", "bias")
    fitted = fit_memory.whole_fit().profiles["nanotron"]
    yield _row("(nothing)", *_percents(*_centre(fit_memory.ablated("nanotron", fitted, None))))
    for title, name, value in ABLATIONS:
        without = name if name in fit_memory.PEAK_PRIORS["nanotron"] else None
        changes: dict[str, Any] = {name: value}
        changed = {**fitted, **changes}
        yield _row(title, *_percents(*_centre(fit_memory.ablated("nanotron", changed, without))))
    rows = peak_rows("ultrascale")
    even = replace(rows.work.training, balanced_stages=np.zeros(len(rows)))
    even_rows = replace(rows, work=replace(rows.work, training=even))
    yield _row(
        "layers on stages by cost (evenly)",
        *_percents(*_centre(fit_memory.ablated("nanotron", fitted, None, even_rows))),
    )
    yield ""
    yield from _header("Megatron-LM B200 without (nothing fitted)", "median", "mean", "bias")
    rows, design = peak_rows("simumax"), load_memory_profiles(fitted=False)
    changed_one: tuple[tuple[str, dict[str, Any]], ...] = (
        ("(nothing)", {}),
        ("gradients summed in float32 (in 16 bits)", {"gradient_bytes": 2.0}),
        ("float32 copy of the logits", {"logit_bytes": 2.0}),
        ("activation and gate product of a gated MLP", {"mlp_extra": 0.0}),
    )
    for title, change in changed_one:
        profiles = {**design, "megatron-lm": {**design["megatron-lm"], **change}}
        error = np.log(peak(rows, constants(profiles)) / rows.measured_bytes)
        yield _row(title, *_percents(*_centre(error)))
    yield ""


def _limits() -> Iterator[str]:
    profiles = load_memory_profiles()
    yield "## Spreads and known limitations"
    yield ""
    yield from _header("profile", "another mesh", "another workload", "another program", "out-of-memory outcomes")
    for name, profile in profiles.items():
        seen = (profile["spread_mesh"], profile["spread_workload"]) if profile["measured"] else (np.nan, np.nan)
        cells = ["–" if np.isnan(value) else f"{value:.3f}" for value in seen]
        yield _row(name, *cells, f"{profile['spread_source']:.3f}", f"{profile['crash_spread']:.3f}")
    yield ""
    crash = fit_memory.whole_fit().crash["nanotron"]
    long = np.exp(unseen_source("simumax")[peak_rows("simumax").work.training.seq_len > 100_000]) - 1.0
    yield (
        "Spreads are standard deviations of log(measured / predicted). The maximum-likelihood share of nanotron runs "
        f"that fail for other reasons than memory, without pipelines that cannot run, is {_percents(crash.other)[0]}. "
        "No peaks of MaxText, Megatron-Bridge, FSDP or Megatron-DeepSpeed were published with these sources: their "
        "spread is that of sources predicted before anything was fitted on them, dominated by nanotron's rows. "
        f"SimuMax's runs of 131,072 tokens are predicted {_percents(min(long))[0]} to {_percents(max(long))[0]} too "
        "high, about the size of their logits. That its MLP keeps activation and product was chosen on its rows of "
        "4,096 tokens."
    )


def _covered(by: str) -> Mask:
    """Whether each error lies in the 80 % interval that the errors of the other folds give."""
    rows, error = sweep_rows("ultrascale"), errors(by)
    measured = np.isfinite(rows.measured_bytes)
    inside = np.zeros(len(error), dtype=bool)
    for _, mask in folds(by):
        part = mask[measured]
        inside[part] = np.abs(error[part]) <= Z80 * spread_of(error[~part])
    return inside


def _centre(error: Floats) -> tuple[float, float, float]:
    """Median and mean of the absolute error, and bias."""
    return float(np.median(np.abs(error))), float(np.mean(np.abs(error))), float(np.median(error))


def _scores(error: Floats, inside: Mask, naive: float) -> list[str | int]:
    return [len(error), *_percents(*_centre(error), float(np.mean(inside)), naive)]


def _percents(*values: float) -> list[str]:
    return [percent(value).replace("-", "−") for value in values]


def _share(which: Mask) -> str:
    return _percents(float(np.mean(which)))[0]


def _header(first: str, *columns: str) -> list[str]:
    return [f"| {first} | {' | '.join(columns)} |", f"|---|{'--:|' * len(columns)}"]


def _row(*cells: str | int | float) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def main(arguments: list[str]) -> None:
    """Write the page; `--fit`: fit first."""
    if "--fit" in arguments:
        fit_memory.write_fit(fit_memory.finished(fit_memory.whole_fit()))
    write()


if __name__ == "__main__":
    main(sys.argv[1:])
