"""`asap campaign`: tune a configuration trial by trial: on this machine, or by the model alone."""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median
from typing import Any

from asapweb.cli.arguments import positive
from asapweb.user_error import UserError
from campaigns.backends import Backend, Compiled, Local, Modelled
from campaigns.engine.candidates import TrialCandidates
from campaigns.engine.loop import iterate
from campaigns.engine.pool import Pool, Trial
from campaigns.engine.space import parameters_of, searched
from formatting import plain
from perfmodel.config import ExperimentConfig
from perfmodel.config_file import read_config
from perfmodel.price import NOTHING, Evidence, baseline_of, evidence_of
from perfmodel.roofline import mfu
from proposals.compiling import targets
from proposals.compiling.cache import Cache


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("campaign", help="tune a configuration trial by trial")
    parser.add_argument("config", metavar="CONFIG", help="current configuration, JSON or YAML")
    parser.add_argument(
        "--trials", type=positive, default=12, metavar="N", help="maximum number of trials after the first (default 12)"
    )
    parser.add_argument(
        "--backend", choices=("modelled", "compiled", "local", "cluster"), default="modelled",
        help="modelled: predicted times, nothing runs (default); compiled: predicted times, memory from the compiler "
        "(`asap compile`); local: `asap trial` on the devices of this machine; "
        "cluster: only in the web application",
    )  # fmt: skip


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Best, trials and why it ended.  Raises ConfigError or UserError."""
    if args.backend == "cluster":
        raise UserError(
            "--backend cluster works only in the web application: start the campaign on the Campaigns tab of the "
            "experiment, or with POST /api/campaigns/"
        )
    config, warnings = read_config(Path(args.config))
    if config.measured is not None and config.measured.step_time_s is not None:
        baseline_of(config)  # an impossible step time is an error, not a missing one
    evidence = evidence_of(config) if args.backend != "local" else NOTHING
    space = searched(config, evidence=evidence)
    candidates = space.candidates
    played, whys, ended = _played(candidates, space.baseline, _backend(args.backend, config, evidence), args.trials)
    best = played.fastest(candidates.tokens)
    return {
        "name": config.name,
        "best": None if best is None else _row(candidates, best),
        "trials": [
            {**_row(candidates, trial), "why": why} for trial, why in zip(played.trials, whys, strict=True)
        ],
        "ended": ended,
        "candidates": len(candidates),
        "warnings": warnings,
    }  # fmt: skip


def _backend(named: str, config: ExperimentConfig, evidence: Evidence) -> Backend:
    if named == "compiled":
        target = targets.target(config.hardware)
        if isinstance(target, str):
            raise UserError(target)
        if not targets.installed(target.platform):
            raise UserError(targets.not_installed(target.platform))
        return Compiled(evidence, Cache.of_user())
    return Local() if named == "local" else Modelled(evidence)


def _played(c: TrialCandidates, baseline: int | None, backend: Backend, most: int) -> tuple[Pool, list[str], str]:
    pool, whys = Pool(), []
    if baseline is not None:
        pool = pool.with_(_tried(c, baseline, backend))
        whys.append("The current configuration.")
    first = len(pool)
    scale = isinstance(backend, Local)
    while len(pool) - first < most:
        now = _scaled(c, pool) if scale else c
        step = iterate(now, pool)
        if not step.choices:
            return pool, whys, str(step.ended)
        choice = step.choices[0]
        pool = pool.with_(_tried(c, choice.candidate, backend))
        whys.append(str(choice.why))
    return pool, whys, f"The budget of {most} trials is spent."


def _scaled(c: TrialCandidates, pool: Pool) -> TrialCandidates:
    """Predicted times in those of this machine, by the first trial that ran."""
    return c.in_units_of(pool.done[0].candidate, pool.done[0].step_time_s or 1.0) if pool.done else c


def _tried(c: TrialCandidates, row: int, backend: Backend) -> Trial:
    config = c.configs[row]
    outcome = backend.measure(config, lambda: False)
    if not outcome.step_times_s:
        return Trial(row, "failed", failure=outcome.failure(config))
    return Trial(
        row, "done", median(outcome.step_times_s), outcome.peak_bytes, duty_cycle=outcome.duty_cycle,
        modelled=outcome.predicted,
    )  # fmt: skip


def _row(c: TrialCandidates, trial: Trial) -> dict[str, Any]:
    failure, config = trial.failure, c.configs[trial.candidate]
    return {
        "parameters": parameters_of(config),
        "state": trial.state,
        "step_time_s": trial.step_time_s,
        "mfu": mfu(config, trial.step_time_s, config.training.precision),
        "peak_memory_bytes": trial.peak_bytes,
        "failure": None if failure is None else failure.to_json(),
    }


def as_text(result: dict[str, Any]) -> str:
    lines = []
    for number, trial in enumerate(result["trials"]):
        took = plain(trial["step_time_s"], "s") if trial["step_time_s"] else "failed"
        said = trial["failure"]["sentence"] if trial["failure"] else ""
        lines.append(f"{number:>3}  {took:>10}  {trial['why']}{' ' + said if said else ''}")
    best = result["best"]
    if best is not None:
        parameters = ", ".join(
            f"{name} {value}" for name, value in best["parameters"].items() if value not in (None, [])
        )
        lines.append(f"\nBest: {plain(best['step_time_s'], 's')} with {parameters}")
    return "\n".join([*lines, result["ended"]])
