"""Searches that know nothing of physics: random, and Optuna's samplers, on recorded landscapes.

They choose among the layouts that the rules of legality allow and never try one twice: what a sampler asks for is taken
as the nearest untried layout, in doublings.  Each knows the baseline before the campaign, as ours does.  A failed trial
is reported as twice as slow as the slowest that ran.

Optuna's Gaussian process needs PyTorch, which the project does not; so it is run once in an environment of its own
(`python -m evaluation.campaigns.baselines`, with torch beside the development tools) and its trials are kept in
data/campaigns/optuna_gp.json.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
import optuna

from evaluation.campaigns import compiled_programs
from evaluation.campaigns.recorded import POLICIES, Recorded, landscapes

GP_FILE = Path(__file__).parents[1] / "data" / "campaigns" / "optuna_gp.json"
#: Trials of a campaign here.
BUDGET = 20
#: Reported time of a failed trial, over the slowest that ran.
PENALTY = float(np.log(2.0))
#: Random trials before a sampler's model is used; Optuna's own ten are half of the budget.
STARTUP = 4

Sampler = Callable[[int], optuna.samplers.BaseSampler]
Search = Callable[[Recorded, int, int], list[int]]


def at_random(landscape: Recorded, start: int, seed: int) -> list[int]:
    rows = np.flatnonzero(landscape.candidates.legal)
    order = np.random.default_rng(seed).permutation(rows)
    return [int(i) for i in order if i != start][:BUDGET]


def tpe(seed: int) -> optuna.samplers.BaseSampler:
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP, multivariate=True)


def gaussian_process(seed: int) -> optuna.samplers.BaseSampler:
    return optuna.samplers.GPSampler(seed=seed, n_startup_trials=STARTUP, deterministic_objective=True)


def by_optuna(sampler: Sampler) -> Search:
    def search(landscape: Recorded, start: int, seed: int) -> list[int]:
        return _search(landscape, start, sampler(seed))

    return search


def _search(landscape: Recorded, start: int, sampler: optuna.samplers.BaseSampler) -> list[int]:
    """Indices tried, until one is the fastest of all or the budget is spent."""
    parameters = landscape.parameters
    table = np.array(list(parameters.values())).T
    policies = np.array([name in POLICIES for name in parameters])
    left = landscape.candidates.legal.copy()
    left[start] = False
    values = np.log(landscape.per_token)
    slowest = float(values[start])
    study = optuna.create_study(sampler=sampler)
    space = _space(parameters)

    def tell(row: int, value: float) -> None:
        params = {name: column[row] for name, column in parameters.items()}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=space, value=value))

    tell(start, slowest)
    tried: list[int] = []
    while left.any() and len(tried) < BUDGET:
        asked = study.ask(space)
        away = np.abs(table - np.array([asked.params[name] for name in parameters]))
        apart = np.where(policies, 2.0 * (away > 0), away).sum(axis=1)
        chosen = int(np.argmin(np.where(left, apart, np.inf)))
        study.tell(
            asked, state=optuna.trial.TrialState.FAIL
        )  # successful trials are reported below, as the layout that it was
        left[chosen] = False
        tried.append(chosen)
        failed = bool(np.isnan(values[chosen]))
        slowest = slowest if failed else max(slowest, float(values[chosen]))
        tell(chosen, slowest + PENALTY if failed else float(values[chosen]))
        if landscape.regret[chosen] == 0.0:
            break
    return tried


def _space(parameters: Mapping[str, Sequence[int]]) -> dict[str, optuna.distributions.BaseDistribution]:
    return {
        name: optuna.distributions.CategoricalDistribution(sorted(set(values)))
        if name in POLICIES
        else optuna.distributions.IntDistribution(min(values), max(values))
        for name, values in parameters.items()
    }


def quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


def fingerprint(landscape: Recorded) -> str:
    """Of the layouts in their order, so that recorded trials are not read for others."""
    text = "".join(config.name for config in landscape.candidates.configs)
    return sha256(text.encode()).hexdigest()[:12]


def recorded_gp(landscape: Recorded) -> list[list[int]]:
    """What Optuna's Gaussian process tried, by seed.  Raises KeyError where it was not run on these layouts."""
    row = json.loads(GP_FILE.read_text(encoding="utf-8"))[landscape.name]
    if row["fingerprint"] != fingerprint(landscape):
        raise KeyError(f"{GP_FILE.name} holds trials of other layouts of {landscape.name}; run this module again")
    return [list(tried) for tried in row["tried"]]


def main() -> None:
    """Run Optuna's Gaussian process on every landscape; goes on where it was interrupted."""
    quiet()
    known = json.loads(GP_FILE.read_text(encoding="utf-8")) if GP_FILE.exists() else {}
    search = by_optuna(gaussian_process)
    for landscape in (*landscapes(), *compiled_programs.landscapes()):
        if known.get(landscape.name, {}).get("fingerprint") == fingerprint(landscape):
            continue
        tried = [search(landscape, start, seed) for seed, start in enumerate(landscape.starts)]
        known[landscape.name] = {"fingerprint": fingerprint(landscape), "tried": tried}
        rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in known.items())
        GP_FILE.parent.mkdir(parents=True, exist_ok=True)
        GP_FILE.write_text(f"{{{rows}}}\n", encoding="utf-8")
        print(landscape.name, flush=True)


if __name__ == "__main__":
    main()
