"""Whether a profile helps: `python -m evaluation.calibration_report` writes docs/accuracy-calibration.md.

Every scenario's baseline is recorded, diagnosed and calibrated as in the product, and its whole landscape priced: by
the model alone, by the profile alone (every part rescaled), and by both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from diagnosis.analyzer import diagnose
from diagnosis.report import Diagnosis
from evaluation.landscape_scores import Priced, Score, mean, score
from evaluation.landscapes import Scenario, scenarios
from evaluation.report import rounded, wrapped
from evaluation.rescaled import rescaled
from perfmodel.calibration import Calibration, calibrate
from perfmodel.efficiency import class_of
from perfmodel.observation import Observation
from perfmodel.posterior import INFORMED
from perfmodel.step_time import Z80, combine
from perfmodel.terms import step_terms
from proposals.proposer.observed import observe, work_of
from proposals.proposer.space import Candidates, side_by_side

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "docs" / "accuracy-calibration.md"
NUMBERS = Path(__file__).with_name("calibration.json")
METHODS = ("model alone", "profile alone", "both")

Floats = npt.NDArray[np.float64]


class Trial:
    """One scenario, measured and calibrated."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        config, profile = scenario.config, scenario.profile
        self.diagnosis: Diagnosis = diagnose(profile, config)
        self.observation: Observation = observe(profile, config, self.diagnosis)
        self.calibration: Calibration = calibrate(config, self.observation)
        self.candidates: Candidates = side_by_side(config, self.calibration.baseline, scenario.landscape)
        self.gain = np.log(scenario.baseline_s / scenario.times_s)

    @property
    def distance(self) -> Floats:
        return self.candidates.spread(self.candidates.mesh_doublings)

    def model_alone(self) -> Score:
        """Gains by the fitted efficiencies; two predictions err, each by the fit's spread."""
        efficiencies = self.calibration.posterior.values.efficiencies
        times = combine(step_terms(self.candidates.work), efficiencies).estimate_s
        kind = class_of(self.scenario.config)
        ends = [float(np.asarray(getattr(efficiencies, f"{side}80_{kind}"))) for side in ("low", "high")]
        spread = (ends[1] - ends[0]) / (2.0 * Z80)
        return score(Priced(np.log(times[0] / times[1:]), np.full(len(times) - 1, spread * 2**0.5)), self.gain)

    def profile_alone(self) -> Score:
        """With the attribution of then: an HBM-bound product waits for its weights, whatever its shape."""
        waiting = sum(
            op.time_s or 0.0 for op in self.diagnosis.ops if not op.collective and work_of(op) == "hbm:weights"
        )
        parts = dict(self.observation.parts_s)
        moved = max(0.0, waiting - parts["hbm:weights"])
        parts |= {"hbm:weights": parts["hbm:weights"] + moved, "compute": parts["compute"] - moved}
        seen = replace(self.calibration, observation=replace(self.observation, parts_s=parts))
        prices = rescaled(seen, self.candidates.work, self.distance)
        return score(Priced(prices.gain[1:], prices.sigma[1:]), self.gain)

    def both(self, seen: Observation | None = None, without: frozenset[str] = frozenset()) -> Score:
        """As the product prices.  seen: another observation; without: names that the profile may not inform."""
        informed = tuple(item for item in INFORMED if item.name not in without)
        calibration = calibrate(self.scenario.config, seen or self.observation, informed=informed)
        prices = calibration.price_workload(self.candidates.work, self.distance)
        return score(Priced(np.log(prices.speedup)[1:], prices.sigma[1:]), self.gain)


def _hidden(trial: Trial) -> Score:
    """With model, batch and sequence length withheld from the calibration."""
    config = trial.scenario.config
    training = replace(config.training, global_batch=None, seq_len=None)
    calibration = calibrate(replace(config, model=None, training=training), trial.observation)
    listed = [mesh for mesh, change in trial.scenario.landscape if not change]
    keep = [i for i, (_, change) in enumerate(trial.scenario.landscape) if not change]
    candidates = side_by_side(config, calibration.baseline, [(mesh, {}) for mesh in listed])
    prices = calibration.price_workload(candidates.work, candidates.spread(candidates.mesh_doublings))
    return score(Priced(np.log(prices.speedup)[1:], prices.sigma[1:]), trial.gain[keep])


def _in_bars(seen: Observation) -> Observation:
    """Resharding booked under the axes it runs on, copies under elementwise work."""
    parts = dict(seen.parts_s)
    for axes, seconds in seen.unexplained_s.items():
        key = "ici:" + "+".join(axes) if axes else "ici"
        parts[key] = parts.get(key, 0.0) + seconds
    parts["hbm:activations"] = parts.get("hbm:activations", 0.0) + seen.copies_s
    return replace(seen, parts_s=parts, unexplained_s={}, copies_s=0.0)


def _no_flight(seen: Observation) -> Observation:
    return replace(seen, collectives=tuple(replace(item, in_flight_s=0.0) for item in seen.collectives))


def _step_alone(seen: Observation) -> Observation:
    return Observation(step_time_s=seen.step_time_s, parts_s={})


#: Components removed from the calibration.
ABLATIONS: Mapping[str, Callable[[Trial], Score]] = {
    "full method": lambda t: t.both(),
    "step time alone": lambda t: t.both(_step_alone(t.observation)),
    "model, batch and sequence length withheld": _hidden,
    "without time in flight": lambda t: t.both(_no_flight(t.observation)),
    "resharding and copies attributed to their terms": lambda t: t.both(_in_bars(t.observation)),
    "without a global step factor": lambda t: t.both(without=frozenset({"whole"})),
    "without common link efficiency": lambda t: t.both(without=frozenset({"link"})),
    "without contiguous sequences": lambda t: t.both(without=frozenset({"contiguous"})),
    "without repeated elementwise work": lambda t: t.both(without=frozenset({"replicated"})),
}


def numbers() -> dict[str, Any]:
    rows = []
    ablation: dict[str, dict[bool, list[Score]]] = {name: {False: [], True: []} for name in ABLATIONS}
    for scenario in scenarios():
        trial = Trial(scenario)
        scores = {"model alone": trial.model_alone(), "profile alone": trial.profile_alone(), "both": trial.both()}
        for name, one in ABLATIONS.items():
            ablation[name][scenario.apart].append(one(trial))
        rows.append(
            {
                "name": scenario.name,
                "kind": scenario.kind,
                "chip": scenario.config.hardware.chip,
                "apart": scenario.apart,
                "candidates": len(trial.gain),
                "methods": {name: asdict(value) for name, value in scores.items()},
            }
        )
    return {
        "scenarios": rows,
        "ablation": {
            name: {"held out" if apart else "development": asdict(mean(values)) for apart, values in halves.items()}
            for name, halves in ablation.items()
        },
    }


def summed(rows: Iterable[Mapping[str, Any]], method: str) -> Score:
    return mean([Score(**row["methods"][method]) for row in rows])


def report(figures: Mapping[str, Any]) -> str:
    rows = figures["scenarios"]
    halves = {"held out": [r for r in rows if r["apart"]], "development": [r for r in rows if not r["apart"]]}
    lines = [
        "# Calibration with a profile",
        "",
        "Generated by `python -m evaluation.calibration_report`. Each scenario is a run in its own simulated world "
        "(`evaluation/simulated_cluster.py`), with one mesh recorded as a profile and every legal mesh simulated. The "
        "worlds share only geometry, data sheets and FLOP counts with the performance model: matmuls pay for tiles, "
        "waves and re-read operands, collectives for hops, calls and small messages, overlap is decided layer by "
        "layer, and efficiencies are drawn per scenario. They test the calibration and say nothing about the size "
        "of its errors on a cluster ([accuracy.md](accuracy.md) does).",
        "",
        "*Model alone*: fitted efficiencies, no profile. *Profile alone*: every measured part multiplied by the "
        "ratio of its modelled times. *Both*: the posterior "
        "([performance-model.md](performance-model.md#from-a-profile)). Spearman: rank correlation over the "
        "landscape. Regret: time of the first choice over the best, minus 1. Error: mean absolute error of the log "
        "gain over the baseline. Coverage: share of gains in the 80 % interval. Means over scenarios. Half of each "
        f"kind, by hash, was held out ({len(halves['held out'])} scenarios); the other {len(halves['development'])} "
        "were used during development. The held-out half was looked at once then, when an early version was worse "
        "there than the model alone; further development scenarios and a common link efficiency were added.",
        "",
        "## Summary",
        "",
        "| half | method | Spearman | regret | error | bias | coverage |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for half, members in halves.items():
        lines += [f"| {half} | {name} | {_cells(summed(members, name))} |" for name in METHODS]
    lines += ["", "## By kind", "", "Spearman, regret, error, coverage of each method.", ""]
    for half, members in halves.items():
        lines += [
            f"### {half.capitalize()}",
            "",
            f"| kind | n | {' | '.join(METHODS)} |",
            "|---|--:|" + "---|" * len(METHODS),
        ]
        for kind in dict.fromkeys(row["kind"] for row in members):
            part = [row for row in members if row["kind"] == kind]
            cells = " | ".join(_short(summed(part, name)) for name in METHODS)
            lines.append(f"| {kind} | {len(part)} | {cells} |")
        lines.append("")
    lines += [
        "## Ablation",
        "",
        "Components removed from *both*.",
        "",
        "| | half | Spearman | regret | error | bias | coverage |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for name, halves_of in figures["ablation"].items():
        lines += [f"| {name} | {half} | {_cells(Score(**halves_of[half]))} |" for half in ("development", "held out")]
    lines += [
        "",
        "## Every scenario",
        "",
        f"| scenario | half | meshes | {' | '.join(METHODS)} |",
        "|---|---|--:|" + "---|" * len(METHODS),
    ]
    for row in rows:
        cells = " | ".join(_short(Score(**row["methods"][name])) for name in METHODS)
        half = "held out" if row["apart"] else "development"
        lines.append(f"| {row['name'].rpartition(' ')[0]} | {half} | {row['candidates']} | {cells} |")
    return "\n".join(lines) + "\n"


def _cells(value: Score) -> str:
    return (
        f"{value.spearman:.3f} | {value.regret:.1%} | {value.error:.3f} | {value.bias:+.3f} | {value.coverage:.0%}"
    ).replace("%", " %")


def _short(value: Score) -> str:
    return f"{value.spearman:.2f}, {value.regret:.0%}, {value.error:.2f}, {value.coverage:.0%}".replace("%", " %")


def main() -> None:
    figures = numbers()
    NUMBERS.write_text(json.dumps(rounded(figures), indent=1) + "\n", encoding="utf-8")
    REPORT.write_text(wrapped(report(rounded(figures))), encoding="utf-8")


if __name__ == "__main__":
    main()
