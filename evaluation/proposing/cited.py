"""What proposals cite, for a reader to grade: `python -m evaluation.proposing.cited [--draw NAME]` prints 20 runs.

The paper's three experiments as they ship, twelve recipes from a poorer start and five labelled steps, drawn by a hash
of the draw's name.  With each citation stand the change that it supports and the run's own quantities that its
condition compares, so that it can be judged against the passage (knowledge/passages).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from hashlib import sha256

from diagnosis.analyzer import diagnose
from evaluation.proposing import experiments, published_cases
from evaluation.steps import generated
from evaluation.steps.scenario import config as configured
from evaluation.steps.scenarios import SCENARIOS
from experiments.step_profile import StepProfile
from perfmodel.config import ExperimentConfig
from proposals.candidate import candidate
from proposals.plan import ProposalPlan
from proposals.proposer import Pricer

RECIPES, STEPS = 12, 5


def runs(draw: str) -> Iterator[tuple[str, StepProfile, ExperimentConfig]]:
    """(name, profile, configuration) of 20 runs."""

    def order(name: str) -> str:
        return sha256(f"{draw} {name}".encode()).hexdigest()

    for number in experiments.EXPERT:
        yield (f"experiment {number}", *experiments.case(number))
    for case in sorted(published_cases.recipes(), key=lambda item: order(item.id))[:RECIPES]:
        yield case.id, case.profile(), case.start
    for scenario in sorted(SCENARIOS, key=lambda item: order(item.name))[:STEPS]:
        yield scenario.name, generated.profile(scenario), configured(scenario)


def show(name: str, profile: StepProfile, config: ExperimentConfig) -> Iterator[str]:
    """The run in a few lines, then its proposals with what each cites."""
    diagnosis = diagnose(profile, config)
    training, model = config.training, config.model
    yield f"# {name}"
    yield f"{config.hardware.chip} {config.hardware.topology} × {config.hardware.slices}, {config.mesh.text()}"
    yield f"model {model.name or model if model else 'unknown'}; {training}"
    yield f"verdict {diagnosis.bottleneck.primary}; findings {', '.join(item.rule for item in diagnosis.findings)}"
    bench = Pricer(profile, config, diagnosis)
    step = bench.observed.step_s
    spent = {**bench.observed.work_s, **bench.observed.traffic_s}
    yield "observed " + ", ".join(f"{part} {value / step:.0%}" for part, value in spent.items() if value > 0)
    for item in bench.propose().proposals:
        yield from _proposal(item, config)
    yield ""


def _proposal(item: ProposalPlan, config: ExperimentConfig) -> Iterator[str]:
    tokens = config.training.global_batch_tokens
    new = candidate(config, item.mesh, item.changes)
    after = new.training.global_batch_tokens
    chips = f"; tokens per chip {tokens / config.hardware.chips:.0f}" if tokens else ""
    chips += f" → {after / new.hardware.chips:.0f}" if after and after != tokens else ""
    yield f"## {item.rank} {item.title}: {new.mesh.text()} {item.changes}{chips}"
    yield from (f"- {cite.source} `{cite.key}` {cite.title} | {cite.supports}" for cite in item.citations)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", default="first")
    for name, profile, config in runs(parser.parse_args().draw):
        print("\n".join(show(name, profile, config)), flush=True)


if __name__ == "__main__":
    main()
