"""How many trials a campaign takes to the best: `make accuracy` writes docs/accuracy-campaigns.md and its plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from campaigns.engine.loop import LEAST_GAIN, PATIENCE
from evaluation.campaigns import compiled_programs, cpu_runs, with_profile
from evaluation.campaigns.baselines import BUDGET, at_random, by_optuna, quiet, recorded_gp, tpe
from evaluation.campaigns.ours import Run, run, without_model
from evaluation.campaigns.plots import ahead_plot, trajectories_plot
from evaluation.campaigns.recorded import AS_GOOD, SEEDS, Recorded, landscapes, trajectory
from evaluation.report import wrapped

DOCS = Path(__file__).parents[2] / "docs"
DOCUMENT, PLOTS = DOCS / "accuracy-campaigns.md", DOCS / "accuracy"
BASELINES = ("random", "Optuna TPE", "Optuna GP")
OURS = "campaign"
ABLATIONS = ("without pool", "without model")
SOURCES = {
    "optico": "OptiCo's Figure 5, Llama3-8B on 8 A100",
    "ultrascale": "nanotron, 1B and 8B on 8–512 H100",
    "vtrain-single": "Megatron-DeepSpeed on 2–8 A100",
    "vtrain-multi": "Megatron-DeepSpeed on 64 and 256 A100",
}
#: Trials at which tables look.
AT = (1, 2, 3, 5, 8, 12, 20)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Simulated:
    """One method on one landscape: regrets (seeds, trials) of the best so far, share of its trials that failed."""

    regret: Floats
    failed: float

    @property
    def trials(self) -> Floats:
        """Trials until the best so far is as good as the fastest; one more than the budget where it never is."""
        good = self.regret <= AS_GOOD - 1.0
        return np.where(good.any(axis=1), good.argmax(axis=1) + 1.0, BUDGET + 1.0)


def played(landscape: Recorded, tried: Sequence[Sequence[int]]) -> Simulated:
    curves = [trajectory(landscape, start, row, BUDGET) for start, row in zip(landscape.starts, tried, strict=True)]
    ends = [int(np.argmax(curve == curve.min())) + 1 for curve in curves]
    used = [i for row, end in zip(tried, ends, strict=True) for i in row[:end]]
    return Simulated(np.array(curves), float(np.mean([np.isnan(landscape.time_s[i]) for i in used])) if used else 0.0)


def campaigns_of(landscape: Recorded, ablation: str = "") -> list[Run]:
    """One per seed; a campaign is the same for the same start.  ablation: one of ABLATIONS."""
    candidates = without_model(landscape.candidates) if ablation == "without model" else None
    seen = {
        start: run(landscape, start, forgets=ablation == "without pool", candidates=candidates)
        for start in set(landscape.starts)
    }
    return [seen[start] for start in landscape.starts]


def all_played(found: Sequence[Recorded]) -> tuple[dict[str, list[Simulated]], list[list[Run]]]:
    own = [campaigns_of(landscape) for landscape in found]
    search = by_optuna(tpe)
    seeds = range(SEEDS)
    results = {OURS: [played(item, [each.tried for each in runs]) for item, runs in zip(found, own, strict=True)]}
    for name, method in (("random", at_random), ("Optuna TPE", search)):
        results[name] = [played(item, [method(item, item.starts[seed], seed) for seed in seeds]) for item in found]
    results["Optuna GP"] = [played(item, recorded_gp(item)) for item in found]
    for name in ABLATIONS:
        results[name] = [played(item, [each.tried for each in campaigns_of(item, name)]) for item in found]
    return results, own


def percent(value: float) -> str:
    return f"{100 * value:.1f} %" if value < 0.1 else f"{100 * value:.0f} %"


def table(results: Mapping[str, Sequence[Simulated]], methods: Sequence[str], rows: Sequence[int]) -> list[str]:
    lines = [
        "| | trials: median | mean | within 2 % after 3 | "
        + " | ".join(f"regret after {n}" for n in AT[:-1])
        + " | failed |",
        "|---|--:|--:|--:|" + "--:|" * len(AT),
    ]
    for method in methods:
        part = [results[method][i] for i in rows]
        trials = np.array([each.trials for each in part])
        regret = np.mean([each.regret.mean(axis=0) for each in part], axis=0)
        median = np.median([np.median(row) for row in trials])
        shown = " | ".join(percent(regret[n - 1]) for n in AT[:-1])
        name = f"**{method}**" if method == OURS else method
        failed = percent(float(np.mean([each.failed for each in part])))
        lines.append(
            f"| {name} | {median:g} | {trials.mean():.1f} | {percent((trials <= 3).mean())} | {shown} | {failed} |"
        )
    return lines


def _after(trials: Sequence[int]) -> str:
    return " | ".join(f"regret after {n}" for n in trials)


def standing(
    results: Mapping[str, Sequence[Simulated]], others: Sequence[str], trial: int
) -> tuple[float, float, float]:
    """Shares of workloads on which the campaign is ahead of every one of the others after so many trials, level with
    the best of them, and behind it, by regret on the mean over the seeds."""
    own = np.array([each.regret[:, trial - 1].mean() for each in results[OURS]])
    best = np.min([[each.regret[:, trial - 1].mean() for each in results[name]] for name in others], axis=0)
    ahead, behind = own < best - 1e-9, own > best + 1e-9
    return float(ahead.mean()), float((~ahead & ~behind).mean()), float(behind.mean())


def standings(results: Mapping[str, Sequence[Simulated]]) -> list[str]:
    lines = ["| after | ahead of every baseline | level | behind one | behind TPE |", "|--:|--:|--:|--:|--:|"]
    for trial in AT:
        ahead, level, behind = standing(results, BASELINES, trial)
        tpe_behind = standing(results, ("Optuna TPE",), trial)[2]
        lines.append(f"| {trial} | {percent(ahead)} | {percent(level)} | {percent(behind)} | {percent(tpe_behind)} |")
    return lines


def hardest(found: Sequence[Recorded], results: Mapping[str, Sequence[Simulated]]) -> list[str]:
    """Workloads on which the campaign took more than three trials on the median, or TPE fewer on the mean."""
    lines = [
        "| workload | layouts (ran) | trials: campaign | TPE | GP | random | regret after 3: campaign | TPE |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for i, landscape in enumerate(found):
        mean = {name: float(results[name][i].trials.mean()) for name in (OURS, *BASELINES)}
        if np.median(results[OURS][i].trials) > 3 or mean["Optuna TPE"] < mean[OURS]:
            after = {name: float(results[name][i].regret[:, 2].mean()) for name in (OURS, "Optuna TPE")}
            ran = int(np.isfinite(landscape.time_s).sum())
            quick = f"{percent(after[OURS])} | {percent(after['Optuna TPE'])}"
            lines.append(
                f"| {landscape.name} | {len(landscape)} ({ran}) | {mean[OURS]:.1f} | {mean['Optuna TPE']:.1f} | "
                f"{mean['Optuna GP']:.1f} | {mean['random']:.1f} | {quick} |"
            )
    return lines


def convergence(found: Sequence[Recorded], own: Sequence[Sequence[Run]]) -> str:
    """When campaigns would have stopped by themselves, and what was left then."""
    stops, left, missed = [], [], 0
    for landscape, runs in zip(found, own, strict=True):
        for start, each in zip(landscape.starts, runs, strict=True):
            curve = trajectory(landscape, start, each.tried, BUDGET)
            at = each.converged if each.converged is not None else min(len(each.tried), BUDGET)
            stops.append(at)
            left.append(float(landscape.regret[start]) if at == 0 else float(curve[at - 1]))
            missed += left[-1] > AS_GOOD - 1.0
    return (
        f"A campaign stops when no candidate is expected to improve on the best by {percent(LEAST_GAIN)} and "
        f"{PATIENCE} trials in a row have not; the rule was chosen among sixteen on these landscapes. It stops after "
        f"{np.median(stops):g} trials at the median ({np.mean(stops):.1f} on average) with a mean regret of "
        f"{percent(float(np.mean(left)))}; {missed} of {len(left)} campaigns stop more than 2 % short of the fastest."
    )


def profile_table() -> list[str]:
    found = with_profile.regrets()
    lines = [
        "| first trials | "
        + " | ".join(f"regret after {n}" for n in (1, 2, 3, 5, 8))
        + " | within 2 % after 1 | after 3 |"
    ]
    lines.append("|---|" + "--:|" * 7)
    for method, regret in found.items():
        shown = " | ".join(percent(float(regret[:, n - 1].mean())) for n in (1, 2, 3, 5, 8))
        good = regret <= AS_GOOD - 1.0
        lines.append(f"| {method} | {shown} | {good[:, 0].mean() * 100:.0f} % | {good[:, 2].mean() * 100:.0f} % |")
    return lines


def on_cpus() -> list[str]:
    """Real runs on forced CPU devices, of which no efficiency knows anything."""
    quiet()
    item = cpu_runs.landscape()
    search, seeds = by_optuna(tpe), range(SEEDS)
    results = {OURS: [played(item, [each.tried for each in campaigns_of(item)])]}
    for name, method in (("random", at_random), ("Optuna TPE", search)):
        results[name] = [played(item, [method(item, item.starts[seed], seed) for seed in seeds])]
    known = correlation(item)
    second = float(np.sort(item.regret)[1])
    text = _CPU.format(layouts=len(item), correlation=f"{known:.2f}", second=percent(second), budget=BUDGET)
    return ["## Real runs on CPU devices", text, *_block(table(results, list(results), [0]))]


def correlation(item: Recorded) -> float:
    """Of measured and predicted log time per token, of layouts that ran."""
    ran = np.isfinite(item.time_s)
    return float(np.corrcoef(np.log(item.per_token[ran]), item.candidates.log_s[ran])[0, 1])


def on_compiled() -> list[str]:
    """Programs of the TPU compiler, priced by its own estimates."""
    found = compiled_programs.landscapes()
    search, seeds = by_optuna(tpe), range(SEEDS)
    results = {OURS: [played(item, [each.tried for each in campaigns_of(item)]) for item in found]}
    for name, method in (("random", at_random), ("Optuna TPE", search)):
        results[name] = [played(item, [method(item, item.starts[seed], seed) for seed in seeds]) for item in found]
    results["Optuna GP"] = [played(item, recorded_gp(item)) for item in found]
    programs = sum(map(len, found))
    failed = programs - sum(int(np.isfinite(item.time_s).sum()) for item in found)
    each = [f"| landscape | programs (fit) | correlation | {' | '.join(f'regret after 3: {n}' for n in results)} |"]
    each.append("|---|--:|--:|" + "--:|" * len(results))
    for i, item in enumerate(found):
        shown = " | ".join(percent(float(results[name][i].regret.mean(axis=0)[2])) for name in results)
        fits = int(np.isfinite(item.time_s).sum())
        each.append(f"| {item.name} | {len(item)} ({fits}) | {correlation(item):.2f} | {shown} |")
    text = _COMPILED.format(programs=programs, landscapes=len(found), failed=failed)
    rows = table(results, list(results), range(len(found)))
    return ["## Programs priced by the TPU compiler", text, *_block(rows), *_block(each)]


def report() -> str:
    quiet()
    found = landscapes()
    results, own = all_played(found)
    everything = range(len(found))
    PLOTS.mkdir(exist_ok=True)
    curves = {
        name: np.mean([each.regret.mean(axis=0) for each in results[name]], axis=0) for name in (OURS, *BASELINES)
    }
    (PLOTS / "campaigns-trajectories.svg").write_text(trajectories_plot(curves), encoding="utf-8")
    shares = {name: [sum(standing(results, (name,), n)[:2]) for n in range(1, BUDGET + 1)] for name in BASELINES}
    shares["every baseline"] = [sum(standing(results, BASELINES, n)[:2]) for n in range(1, BUDGET + 1)]
    (PLOTS / "campaigns-ahead.svg").write_text(ahead_plot(shares), encoding="utf-8")
    head = "\n\n".join(" ".join(part.split()) for part in _HEAD.split("\n\n"))
    sections = [head.format(date=f"{datetime.now(UTC):%Y-%m-%d}", workloads=len(found), seeds=SEEDS, budget=BUDGET,
                             sizes=f"{min(map(len, found))} to {max(map(len, found))}")]  # fmt: skip
    sections += ["## All workloads", *_block(table(results, (OURS, *BASELINES), everything))]
    for source, title in SOURCES.items():
        rows = [i for i in everything if found[i].source == source]
        heading = f"### {title} ({len(rows)} {'workload' if len(rows) == 1 else 'workloads'})"
        sections += [heading, *_block(table(results, (OURS, *BASELINES), rows))]
    sections += ["## Ahead, level, behind", _STANDING, *_block(standings(results))]
    sections += ["## Known limitations", _HARDEST, *_block(hardest(found, results))]
    sections += ["## Ablation", _ABLATION, *_block(table(results, (OURS, *ABLATIONS), everything))]
    sections += [*on_cpus(), *on_compiled()]
    sections += ["## With a profile", _PROFILE, *_block(profile_table()), "## When it stops", convergence(found, own)]
    return "\n\n".join(sections) + "\n"


def _block(lines: Sequence[str]) -> list[str]:
    return ["\n".join(lines)]


_HEAD = """# Accuracy of tuning campaigns

Written by `make accuracy` on {date} (`python -m evaluation.campaigns.evaluate`). Errors of the model that a campaign
corrects: [accuracy.md](accuracy.md).

{workloads} recorded landscapes with at least five layouts that ran, {sizes} layouts each: OptiCo's Figure 5 and the
workloads of the measured sweeps; a layout that failed is a failed trial. Each is simulated {seeds} times with a
random baseline among the layouts that are more than 2 % slower than the fastest; every method knows its step time and
has {budget} trials. *Trials*: until the best so far is within 2 % of the fastest, failures included ({budget} + 1 if
never). *Regret*: time per token of the best so far over the fastest, minus 1, mean over seeds and workloads.
*Failed*: share of failed trials up to the best.

**Held-out data.** Efficiencies and the division of the model's error are fitted without the workload and the others of
its fold (an eighth of all); none is fitted on OptiCo's. Not out of fold: the memory model's constants for nanotron and
the choice of its terms; neighbouring workloads of Megatron-DeepSpeed on few GPUs, which are similar in any fold.
Expected improvement was not tuned; the common share of the memory model's error and the weight of a stall are
judgements stated in the code; the stopping rule was chosen on these landscapes.

**Baselines.** *Random*, and two samplers of Optuna 5, multivariate TPE and Gaussian process, with four random trials
first instead of ten (half of the budget). They choose among the legal layouts, as the campaign does, never repeat one
(a request is mapped to the nearest untried layout), and see a failed trial as twice as slow as the slowest.

![Regret of the best so far by trial](accuracy/campaigns-trajectories.svg)

![Share of workloads on which the campaign is ahead or level, by trial](accuracy/campaigns-ahead.svg)"""
_STANDING = (
    "Share of workloads by mean regret over the seeds. *Level*: equal to the best baseline; late in a campaign this "
    "means that both have found the fastest."
)
_HARDEST = "Workloads with a median of more than three trials, or a mean above that of TPE. Trials: means."
_ABLATION = (
    "As in OptiCo's Table 2. *Without pool*: only the last trial is known, so layouts are repeated. *Without model*: "
    "a Gaussian process over the settings without predicted step time and memory."
)
_CPU = (
    "{layouts} configurations of the reference step, a decoder of 1.6 M parameters on eight forced CPU devices of a "
    "machine with two cores, run once by `python -m evaluation.campaigns.cpu_runs` "
    "(evaluation/data/campaigns/cpu_runs.json); twelve timed steps each in four rounds of different order on a busy "
    "machine, of which the fastest counts. It is the hardest case: the performance model describes another chip and, "
    "relative to the baseline, has a correlation of {correlation} with the measured log step times, so that only the "
    "trials themselves can help. The second fastest is {second} behind the fastest, less than the scatter of the "
    "steps of one configuration; so hardly any method ends within 2 % in {budget} trials."
)
_COMPILED = (
    "{programs} programs of {landscapes} dense models on TPU slices, compiled for their topology by `python -m "
    "evaluation.campaigns.compiled_programs` (libtpu, quick effort; evaluation/data/compiled/programs.jsonl); "
    "{failed} of them do not fit and are failed trials. A program's price is the compiler's estimate of its "
    "instructions, times their executions, plus its collectives at link bandwidth without overlap. This is not a "
    "chip's step time (the reference step's attention is not fused, and quick effort overlaps nothing) but the "
    "compiler's ranking of its own programs, independent of the performance model except for link bandwidth. Meshes, "
    "remat policies, weight shardings and micro-batches were drawn from all legal ones that the memory model puts at "
    "most 20 % above the chip's memory. A campaign's prices are relative to its baseline. *Correlation*: of "
    "predicted and compiled log time."
)
_PROFILE = (
    "On the simulated worlds of [accuracy-calibration.md](accuracy-calibration.md), since recorded sweeps have no "
    "profiles: eight trials from a baseline more than 2 % slower than the fastest of all legal meshes."
)


def main() -> None:
    DOCUMENT.write_text(wrapped(report()), encoding="utf-8")


if __name__ == "__main__":
    main()
