"""How often the Analyzer is right: `python -m evaluation.steps.evaluate` writes what docs/accuracy.md links to.

Three sets: the labelled scenarios, steps drawn at random, and the paper's three experiments as printed and as shipped,
all with durations off by ±10 % and ops missing.  What is true comes from the generator's ledger: a rule is *wanted*
where its cause takes a tenth of the step or more; its claim of a tenth or more is *false* where the cause takes less
than a twentieth.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from diagnosis.analyzer import diagnose
from diagnosis.report import BOTTLENECKS, Diagnosis
from evaluation.report import percent, wrapped
from evaluation.steps import drawn, paper
from evaluation.steps.generated import made
from evaluation.steps.scenario import Ledger, Scenario, config
from evaluation.steps.scenarios import SCENARIOS
from evaluation.steps.variants import perturbed
from experiments.ingest import read_profile
from experiments.samples.samples import FOLDER
from experiments.step_profile import StepProfile
from perfmodel.config import ExperimentConfig
from perfmodel.config_file import read_config

ROOT = Path(__file__).parents[2]
JSON_FILE = ROOT / "diagnosis" / "accuracy.json"
REPORT = ROOT / "docs" / "accuracy-diagnosis.md"
DRAWN = range(3000, 3800)
SEEDS = range(20)
WANTED, CLAIMED, FALSE = 0.10, 0.10, 0.05


def _replicated(s: Scenario, of: dict[str, float]) -> float:
    """Nothing splits the layers: what whole weights cost in updates and in matmuls that only read them."""
    if any(size > 1 for axis, size in s.ici if axis in ("model", "expert", "pipeline")):
        return 0.0
    if s.weight_sharding == "none":
        return of.get("optimizer", 0.0) + of.get("whole weights", 0.0)
    return of.get("whole weights", 0.0)


#: Share of the step that a rule's cause took, by the ledger alone.
CAUSES: dict[str, Callable[[Scenario, dict[str, float]], float]] = {
    "tensor_parallel_communication": lambda s, of: of.get("tensor", 0.0),
    "fsdp_gathers_exposed": lambda s, of: of.get("gathers", 0.0),
    "gradient_reduction": lambda s, of: of.get("gradients", 0.0),
    "exposed_dcn": lambda s, of: of.get("dcn", 0.0),
    "expert_all_to_all": lambda s, of: of.get("experts", 0.0) + of.get("imbalance", 0.0),
    "expert_imbalance": lambda s, of: of.get("imbalance", 0.0),
    "sequence_parallel_exposed": lambda s, of: of.get("sequence", 0.0),
    "resharding": lambda s, of: of.get("reshard", 0.0),
    "low_link_bandwidth": lambda s, of: of.get("slow links", 0.0),
    "replicated_weights": _replicated,
    "hbm_bound_elementwise": lambda s, of: of.get("elementwise", 0.0),
    "optimizer_update": lambda s, of: of.get("optimizer", 0.0),
    "data_shuffle": lambda s, of: of.get("shuffle", 0.0),
    "low_matrix_efficiency": lambda s, of: of.get("lost products", 0.0),
    "unaligned_shapes": lambda s, of: of.get("padding", 0.0),
    "attention_dominates": lambda s, of: of.get("attention", 0.0) - 0.25,
    "recompute": lambda s, of: _spared(s, of),
    "stragglers": lambda s, of: of.get("straggler", 0.0),
    "input_pipeline": lambda s, of: s.input,
    "host_gaps": lambda s, of: s.host,
    "idle_gaps": lambda s, of: 0.0 if _piped(s) else s.idle,
    "pipeline_bubble": lambda s, of: of["idle"] if _piped(s) else 0.0,
    "memory_near_capacity": lambda s, of: 1.0 if s.memory >= 0.93 else 0.0 if s.memory < 0.87 else 0.07,
}  # fmt: skip


#: Causes that a claim may have besides its own: a rank that waits in a collective leaves its links idle.
_ALSO = {"low_link_bandwidth": ("straggler", "imbalance")}
_NEED_FLOPS = ("low_matrix_efficiency", "unaligned_shapes")


def _spared(s: Scenario, of: dict[str, float]) -> float:
    """What is recomputed although there is room; from 80 to 90 % full nobody can say whether there is."""
    cost = of.get("recompute", 0.0)
    return cost if s.memory < 0.8 else min(cost, 0.07) if s.memory < 0.9 else 0.0


def _piped(s: Scenario) -> bool:
    return any(axis == "pipeline" and size > 1 for axis, size in s.ici)


@dataclass
class Tally:
    """Of one rule: positive steps, those detected; steps where it claims much, of those falsely."""

    wanted: int = 0
    found: int = 0
    claimed: int = 0
    false: int = 0


@dataclass
class Score:
    """What one set of steps showed."""

    verdicts: Counter[tuple[str, str]] = field(default_factory=Counter)
    confidence: list[tuple[float, bool]] = field(default_factory=list)
    rules: dict[str, Tally] = field(default_factory=lambda: {rule: Tally() for rule in CAUSES})

    def add(self, truth: str, diagnosis: Diagnosis) -> None:
        primary = diagnosis.bottleneck.primary
        self.verdicts[truth, primary] += 1
        self.confidence.append((diagnosis.bottleneck.confidence, primary == truth))

    def add_rules(self, s: Scenario, ledger: Ledger, diagnosis: Diagnosis) -> None:
        savings = {one.rule: one.saving_share for one in reversed(diagnosis.findings)}
        for rule, of in CAUSES.items():
            cost, tally = of(s, ledger.causes), self.rules[rule]
            also = sum(ledger.causes.get(cause, 0.0) for cause in _ALSO.get(rule, ()))
            # A few ops show only some causes, ops without FLOPs no efficiency: what is not there cannot be wanted.
            if cost >= WANTED and not s.listed and (s.measured_flops or rule not in _NEED_FLOPS):
                tally.wanted += 1
                tally.found += rule in savings
            if rule in savings and ((share := savings[rule]) is None or share >= CLAIMED):
                tally.claimed += 1
                tally.false += cost + also < FALSE

    @property
    def accuracy(self) -> float:
        return sum(n for (truth, said), n in self.verdicts.items() if truth == said) / self.verdicts.total()

    @property
    def precision(self) -> float:
        claimed = sum(tally.claimed for tally in self.rules.values())
        return 1.0 - sum(tally.false for tally in self.rules.values()) / claimed if claimed else 1.0

    @property
    def recall(self) -> float:
        wanted = sum(tally.wanted for tally in self.rules.values())
        return sum(tally.found for tally in self.rules.values()) / wanted if wanted else 1.0


def labelled(seeds: range = range(3)) -> Score:
    """The scenarios, each as generated and as measured on other days."""
    score = Score()
    for s in SCENARIOS:
        for seed in seeds:
            profile, ledger = made(s, seed)
            diagnosis = diagnose(perturbed(profile, seed) if seed else profile, config(s))
            score.add(s.label, diagnosis)
            score.add_rules(s, ledger, diagnosis)
    return score


def at_random(seeds: range = DRAWN) -> Score:
    score = Score()
    for seed in seeds:
        s, profile, ledger = drawn.step(seed)
        diagnosis = diagnose(profile, config(s))
        score.add(ledger.truth, diagnosis)
        score.add_rules(s, ledger, diagnosis)
    return score


@cache
def _shipped(number: int) -> tuple[StepProfile, ExperimentConfig]:
    folder = FOLDER / f"asap-experiment-{number}"
    return read_profile(sorted(folder.glob("*.xplane.pb.gz"))), read_config(folder / "config.json")[0]


def _of_the_paper() -> Iterator[tuple[str, StepProfile, ExperimentConfig]]:
    for number in (1, 2, 3):
        yield paper.BOTTLENECK[number], paper.profile(number), paper.config(number)
        yield paper.BOTTLENECK[number], *_shipped(number)


def papers(seeds: range = SEEDS) -> Score:
    score = Score()
    for truth, profile, run in _of_the_paper():
        for seed in seeds:
            score.add(truth, diagnose(perturbed(profile, seed), run))
    return score


BINS = ((0.0, 0.6), (0.6, 0.7), (0.7, 0.8), (0.8, 0.9), (0.9, 0.95), (0.95, 1.01))


def reliability(score: Score) -> list[dict[str, float]]:
    """By range of stated confidence: verdicts, mean confidence, share that was right."""
    rows = []
    for low, high in BINS:
        part = [(stated, right) for stated, right in score.confidence if low <= stated < high]
        if part:
            mean, right = (sum(column) / len(part) for column in zip(*part, strict=True))
            rows.append({"from": low, "to": min(1.0, high), "verdicts": len(part), "confidence": mean, "right": right})
    return rows


def as_json(sets: dict[str, Score]) -> dict[str, Any]:
    return {
        name: {
            "verdicts": score.verdicts.total(),
            "accuracy": score.accuracy,
            "precision": score.precision if any(t.claimed for t in score.rules.values()) else None,
            "recall": score.recall if any(t.wanted for t in score.rules.values()) else None,
            "confusion": [{"truth": a, "said": b, "count": n} for (a, b), n in sorted(score.verdicts.items())],
            "reliability": reliability(score),
            "rules": {rule: vars(tally) for rule, tally in score.rules.items() if tally.wanted or tally.claimed},
        }
        for name, score in sets.items()
    }


def _confusion(score: Score) -> list[str]:
    names = [name for name in BOTTLENECKS if any(name in pair for pair in score.verdicts)]
    lines = [f"| true \\ predicted | {' | '.join(names)} | precision | recall |", f"|---|{'--:|' * (len(names) + 2)}"]
    for truth in names:
        counts = [score.verdicts[truth, said] for said in names]
        said = sum(score.verdicts[other, truth] for other in names)
        right = score.verdicts[truth, truth]
        cells = [str(n) if n else "·" for n in counts]
        parts = [percent(right / said) if said else "–", percent(right / sum(counts)) if sum(counts) else "–"]
        lines.append(f"| {truth} | {' | '.join([*cells, *parts])} |")
    return lines


def report(sets: dict[str, Score]) -> str:
    chosen, random, printed = sets["labelled"], sets["drawn"], sets["paper"]
    lines = [
        "# Accuracy of the diagnosis",
        "",
        "Written by `python -m evaluation.steps.evaluate`. Predictions: [accuracy.md](accuracy.md).",
        "",
        "Steps are generated op by op from FLOPs, bytes, links (`perfmodel`) and stated efficiencies; the generator "
        "keeps a ledger of every second and imports nothing of the Analyzer. The true bottleneck follows from the "
        "ledger by the documented threshold (the largest of input, host, idle and exposed communication time where "
        "together they take 30 % of the step; else the larger of compute and HBM). A step is a *positive* of a rule if "
        "its cause takes 10 % of the step or more, *detected* if the rule fires at all; the rule *claims* if it says "
        "that 10 % or more could be saved, *falsely* if its cause takes less than 5 %. Durations vary by ±10 % and one "
        "op in twenty is missing (occasionally the whole of a cause), except in the first of the three seeds of a "
        "labelled step.",
        "",
        "These are generated steps. Real programs are less predictable, so no stated confidence exceeds 97 %.",
        "",
        "| set | verdicts | bottleneck right | rules: precision | recall |",
        "|---|--:|--:|--:|--:|",
    ]
    titles = {
        "labelled": f"{len(SCENARIOS)} labelled steps, 3 seeds",
        "drawn": f"{len(DRAWN)} randomly generated steps",
        "paper": f"the paper's experiments, printed and reconstructed, {len(SEEDS)} seeds",
    }
    for name, score in sets.items():
        rules = any(tally.wanted for tally in score.rules.values())
        cells = [percent(score.precision), percent(score.recall)] if rules else ["–", "–"]
        lines.append(f"| {titles[name]} | {score.verdicts.total()} | {percent(score.accuracy)} | {' | '.join(cells)} |")
    lines += ["", "## Randomly generated steps", "", *_confusion(random)]
    lines += ["", "## Labelled steps", "", *_confusion(chosen)]
    lines += ["", "## The paper's experiments", "", *_confusion(printed)]
    lines += [
        "",
        "## Confidence",
        "",
        "On the random steps; its two curves were fitted on seeds 1000–2199 and are evaluated on others.",
        "",
        "| stated | verdicts | mean stated | right |",
        "|---|--:|--:|--:|",
    ]
    for row in reliability(random):
        span = f"{row['from']:.0%}–{row['to']:.0%}".replace("%", " %")
        lines.append(f"| {span} | {row['verdicts']} | {percent(row['confidence'])} | {percent(row['right'])} |")
    lines += ["", "## Rules", "", "Labelled and random steps together.", ""]
    lines += ["| rule | positives | detected | recall | claims | false claims | precision |"]
    lines += ["|---|--:|--:|--:|--:|--:|--:|"]
    for rule in CAUSES:
        one, two = chosen.rules[rule], random.rules[rule]
        wanted, given = one.wanted + two.wanted, one.found + two.found
        claimed, false = one.claimed + two.claimed, one.false + two.false
        recall = percent(given / wanted) if wanted else "–"
        precision = percent(1 - false / claimed) if claimed else "–"
        lines.append(f"| `{rule}` | {wanted} | {given} | {recall} | {claimed} | {false} | {precision} |")
    lines += [
        "",
        "Rules about the placement of axes (`axis_on_slow_links`, `open_rings`), aggregate rules, and rules for "
        "transfers and custom calls have no cause in the ledger; each has a case in `tests/diagnosis`.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    sets = {"labelled": labelled(), "drawn": at_random(), "paper": papers()}
    JSON_FILE.write_text(json.dumps(as_json(sets), indent=1) + "\n")
    REPORT.write_text(wrapped(report(sets)))
    for name, score in sets.items():
        print(f"{name}: {score.verdicts.total()} verdicts, {score.accuracy:.1%} right", end="")
        print(f", rules: precision {score.precision:.1%}, recall {score.recall:.1%}" if name != "paper" else "")


if __name__ == "__main__":
    main()
