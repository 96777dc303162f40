"""Fit what memory profiles cannot know from the program's source, and write perfmodel/memory_fit.toml.

`python -m evaluation.memory_report --fit` does it, and writes the page.  Peaks: robust least squares on log(predicted /
measured), each constant shrunk to what the source says.  Who ran out of memory: the likeliest share that cannot be
filled, spread, and share of failures that are not memory.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache

import numpy as np
from scipy.optimize import least_squares, minimize
from scipy.special import ndtr

from evaluation import memory_rows
from evaluation.memory_rows import Floats, Mask, Rows, peak, peak_rows, sweep_rows, unrunnable_rows
from perfmodel import memory
from perfmodel.execution import (
    FIT_FILE,
    MemoryConstants,
    MemoryProfile,
    constants,
    fitted_constants,
    load_memory_profiles,
)

#: Constants fitted on peaks, with the standard deviation of their logarithm around what the program's source says.
PEAK_PRIORS: Mapping[str, Mapping[str, float]] = {
    "nanotron": {
        "workspace_bytes": 0.5,
        "logit_bytes": 0.05,
        "transient_gradient_bytes": 0.2,
        "optimizer_gather_bytes": 0.2,
        "held_tensors": 0.5,
        "held_share": 0.7,
        "fragmentation": 0.7,
    }
}
#: Sweeps whose peaks are fitted, and the profile that ran them.
FITTED = {"nanotron": "ultrascale"}
#: Errors up to here count as noise, beyond it linearly: repeated runs differ by about as much.
NOISE = 0.06
#: Normal quantile of the edges of an 80 % interval.
Z80 = 1.2815515655446004
#: Share of the memory that cannot be filled, and of the held tensors that are still needed then: standard deviations.
CRASH_PRIORS = {"unfilled": 0.1, "held_needed": 0.3}
ROUNDS = 2
Profiles = Mapping[str, MemoryProfile]


@dataclass(frozen=True)
class CrashFit:
    """other: share of runs that fail for another reason than memory."""

    unfilled: float
    held_needed: float
    spread: float
    other: float


def fit_peaks(rows: Rows, name: str, start: Profiles, without: str | None = None) -> MemoryProfile:
    """The profile with its constants fitted to the rows' peaks.  without: a constant that keeps its value in
    `start`."""
    priors = {key: sd for key, sd in PEAK_PRIORS[name].items() if key != without}
    centre = load_memory_profiles(fitted=False)[name]
    log_prior = np.log([centre[key] for key in priors])
    deviation = np.array(list(priors.values()))

    def profile(x: Floats) -> MemoryProfile:
        values = dict(zip(priors, np.exp(log_prior + x * deviation).tolist(), strict=True))
        return {**start[name], **values}

    def residuals(x: Floats) -> Floats:
        error = np.log(peak(rows, constants({**start, name: profile(x)})) / rows.measured_bytes) / NOISE
        robust = np.sign(error) * np.sqrt(2.0 * (np.sqrt(1.0 + error**2) - 1.0))
        return np.concatenate([robust, x])

    near = np.array([max(start[name][key], 1e-9) for key in priors])
    begin = np.clip((np.log(near) - log_prior) / deviation, -5.9, 5.9)
    return profile(least_squares(residuals, begin, bounds=(-6.0, 6.0), xtol=1e-5, ftol=1e-6).x)


def fit_crash(rows: Rows, name: str, start: Profiles) -> CrashFit:
    """Which runs ran out of memory: rows that the program cannot run for other reasons must be left out before."""

    def unlikely(x: Floats) -> float:
        unfilled, needed, spread, other = x[0], x[1], np.exp(x[2]), x[3]
        profile = {**start[name], "unfilled": unfilled, "held_needed": needed}
        used = memory.per_chip(rows.work, constants({**start, name: profile}))
        room = ndtr(np.log(used.capacity / used.needed) / spread)
        ran = np.clip((1.0 - other) * room, 1e-9, 1.0 - 1e-9)
        moved = {"unfilled": unfilled, "held_needed": needed}
        prior = load_memory_profiles(fitted=False)[name]
        shrunk = sum(((moved[key] - prior[key]) / deviation) ** 2 for key, deviation in CRASH_PRIORS.items())
        return float(0.5 * shrunk - np.sum(np.log(np.where(rows.ran, ran, 1.0 - ran))))

    first = np.array([*(start[name][key] for key in CRASH_PRIORS), np.log(start[name]["crash_spread"]), 0.05])
    solution = minimize(unlikely, first, method="L-BFGS-B", bounds=[(0.0, 0.3), (0.0, 1.0), (-4.0, -0.5), (0.0, 0.3)]).x
    return CrashFit(float(solution[0]), float(solution[1]), float(np.exp(solution[2])), float(solution[3]))


@dataclass(frozen=True)
class Fit:
    profiles: Profiles
    crash: Mapping[str, CrashFit]

    @property
    def constants(self) -> MemoryConstants:
        return constants(self.profiles)


def fit(left_out: Mask | None = None, start: Fit | None = None) -> Fit:
    """The fit on all rows of the sweeps, or without some.

    left_out: mask over `sweep_rows("ultrascale")`.  start: a fit near to it, from which it is found sooner.
    """
    profiles = dict(start.profiles if start else load_memory_profiles(fitted=False))
    crashes = {}
    for name, source in FITTED.items():
        every = sweep_rows(source)
        kept = np.ones(len(every), dtype=bool) if left_out is None else ~left_out
        peaks = every.take(kept & np.isfinite(every.measured_bytes))
        judged = every.take(kept & ~unrunnable_rows(every))
        for _ in range(1 if start else ROUNDS):
            profiles[name] = fit_peaks(peaks, name, profiles)
            crash = fit_crash(judged, name, profiles)
            profiles[name] = {
                **profiles[name],
                "unfilled": crash.unfilled, "held_needed": crash.held_needed, "crash_spread": crash.spread,
            }  # fmt: skip
        crashes[name] = crash
    return Fit(profiles, crashes)


@cache
def left_out_fits(by: str) -> tuple[tuple[str, Fit], ...]:
    """(what was left out, the fit without it) over whole `workloads`, `models`, or fifths of the `meshes`."""
    return tuple((group, fit(mask, whole_fit())) for group, mask in folds(by))


@cache
def whole_fit() -> Fit:
    """The fit on everything."""
    return fit()


def folds(by: str) -> list[tuple[str, Mask]]:
    """Masks over the sweep's rows."""
    rows = sweep_rows("ultrascale")
    if by == "meshes":
        part = np.random.default_rng(10).permutation(len(rows)) % 5
        return [(f"fifth {i + 1}", part == i) for i in range(5)]
    names = getattr(rows, by)
    return [(str(name), names == name) for name in sorted(set(names))]


def out_of_fold(by: str) -> Floats:
    """log(predicted / measured) of every measured run of the sweep, by a fit that has not seen it."""
    rows = sweep_rows("ultrascale")
    error = np.full(len(rows), np.nan)
    for (_, mask), (_, fitted) in zip(folds(by), left_out_fits(by), strict=True):
        error[mask] = np.log(peak(rows.take(mask), fitted.constants) / rows.measured_bytes[mask])
    return error[np.isfinite(error)]


def unseen_source(source: str) -> Floats:
    """log(predicted / measured) by what the program's source says alone."""
    rows = peak_rows(source)
    return np.asarray(np.log(peak(rows, constants(load_memory_profiles(fitted=False))) / rows.measured_bytes))


def ablated(name: str, changed: MemoryProfile, without: str | None, changed_rows: Rows | None = None) -> Floats:
    """log(predicted / measured) of the sweep, each model by a fit of the peaks of the other, with a changed profile
    of this name.

    without: the constant that is not fitted.  changed_rows: the sweep's peaks with something changed in their runs.
    """
    rows = peak_rows("ultrascale") if changed_rows is None else changed_rows
    error = np.empty(len(rows))
    for model in sorted(set(rows.models)):
        mask = rows.models == model
        profiles = {**whole_fit().profiles, name: changed}
        fitted = fit_peaks(rows.take(~mask), name, profiles, without)
        chosen = rows.take(mask)
        error[mask] = np.log(peak(chosen, constants({**profiles, name: fitted})) / chosen.measured_bytes)
    return error


def spread_of(error: Floats) -> float:
    """Standard deviation at which 80 % of the errors lie in the 80 % interval."""
    return float(np.quantile(np.abs(error), 0.8) / Z80)


def finished(fitted: Fit) -> Profiles:
    """The profiles with their spreads.  Where nobody published who ran out of memory, that of the peaks decides."""
    profiles = dict(fitted.profiles)
    source = spread_of(np.concatenate([unseen_source(name) for name in memory_rows.PRINTED]))
    spreads = ("spread_mesh", "spread_workload", "spread_source")
    for name in profiles:
        profiles[name] = {**profiles[name], **dict.fromkeys(spreads, source)}
    # Two models are all that the sweep ran: a workload of a user is more often another model than another scale.
    workload = max(spread_of(out_of_fold("workloads")), spread_of(out_of_fold("models")))
    meshes = spread_of(out_of_fold("meshes"))
    profiles["nanotron"] = {**profiles["nanotron"], "spread_mesh": meshes, "spread_workload": workload}
    # Both sources ran Megatron-LM, and nothing is fitted on either.
    seen = spread_of(np.concatenate([unseen_source("simumax"), unseen_source("optico")]))
    profiles["megatron-lm"] = {**profiles["megatron-lm"], **dict.fromkeys(spreads[:2], seen)}
    return {
        name: profile
        if name in FITTED
        else {**profile, "crash_spread": profile["spread_workload" if profile["measured"] else "spread_source"]}
        for name, profile in profiles.items()
    }


def write_fit(profiles: Profiles) -> None:
    """memory_fit.toml: what differs from the sources' own values, by profile, each with its source."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    rows = sweep_rows("ultrascale")
    measured, judged = int(np.isfinite(rows.measured_bytes).sum()), int((~unrunnable_rows(rows)).sum())
    lines = [
        "# Written by `python -m evaluation.memory_report --fit`; see docs/accuracy-memory.md.  Values replace those",
        "# of memory_profiles.toml, which are their priors.",
        "",
        "[provenance]",
        'state = "fitted"',
        f'date = "{datetime.now(UTC):%Y-%m-%d}"',
        f'commit = "{commit or "unknown"}"',
        f"peaks = {measured}",
        f"ran_or_failed = {judged}",
    ]
    says = {
        "nanotron": f"evaluation/data/sweeps/ultrascale.json: {measured} peaks, {judged} runs that ran or failed",
        "megatron-lm": "evaluation/data/sweeps/simumax.json: spreads only, no constant is fitted",
    }
    for name, profile in profiles.items():
        before = load_memory_profiles(fitted=False)[name]
        values = {
            key: profile[key]
            for key in (*PEAK_PRIORS.get("nanotron", {}), *CRASH_PRIORS, "crash_spread")
            if profile[key] != before[key]
        }
        values |= {key: profile[key] for key in ("spread_mesh", "spread_workload", "spread_source")}
        source = says.get(name, "spreads only: programs whose peaks were predicted before any was fitted")
        lines += ["", f"[profile.{name}]", f'source = "{source}"', *(f"{k} = {v:.5g}" for k, v in values.items())]
    FIT_FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for cached in (load_memory_profiles, fitted_constants):
        cached.cache_clear()
