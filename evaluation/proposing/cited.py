"""What proposals cite, for a reader to grade: `python -m evaluation.proposing.cited [--draw NAME]` prints 20 runs.

The paper's three experiments and the two recordings that ship, a TPU training step that others recorded where it is at
hand (`evaluation.steps.real`), ten recipes from a poorer start and four labelled steps, drawn by a hash of the draw's
name.  With each citation stand the whole passage, what it is cited for, and the run's own quantities that
its condition compares, so that it can be judged by somebody who sees nothing else.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from diagnosis.analyzer import diagnose
from evaluation.proposing import experiments, published_cases
from evaluation.steps import generated, real
from evaluation.steps.scenario import config as configured
from evaluation.steps.scenarios import SCENARIOS
from experiments.ingest import read_profile
from experiments.samples.samples import SAMPLES
from experiments.step_profile import StepProfile
from knowledge.passage_file import ShippedPassage, read_all
from perfmodel.config import ExperimentConfig, Mesh, micro_batches
from perfmodel.config_file import parse_config, read_config
from proposals.candidate import candidate
from proposals.plan import Citation, Memory, Plan, ProposalPlan
from proposals.proposer import Pricer
from proposals.proposer.build import supporting
from proposals.proposer.case import Case
from proposals.proposer.facts import facts, value_of
from proposals.proposer.words import verdict_words

RECIPES, STEPS = 10, 4
#: For the reader.
HOW = """Each citation is to be graded **relevant** (the passage's text bears on this change or verdict of this run,
and what the text says of when it applies holds here), **weak** (true and in the neighbourhood, but it does
not help to judge this change), or **wrong** (its condition does not hold here, or it speaks against what it
is cited for). Citations of source `history` are past runs and graded elsewhere: leave them out. A citation is
judged by the passage and the values of the run; "Quantities compared" are what the product looked at (`was_`
before a name: of the run, without it: of the proposal; shares are of the step). `memory_without_X` is the
memory that the proposal would need without its change of X, over what a program can fill. Recordings named
`cpu-…` are of CPUs; the named chip is a placeholder.
"""
#: Profiles that others recorded, with what is known of their configuration from the files (shapes of their ops).
RECORDED: Mapping[str, Mapping[str, Any]] = {
    "xprof_tpu_training": {
        "hardware": {"chip": "v5p", "topology": [2, 2, 1]},
        "mesh": {"ici": {"fsdp": 4}},
        "model": {"layers": 16, "d_model": 2048, "d_ff": 7168, "heads": 16, "kv_heads": 16, "head_dim": 128,
                  "vocab": 32000},
        "training": {"global_batch": 4, "seq_len": 2048, "weight_sharding": "fsdp", "remat": "full"},
    },
}  # fmt: skip


def runs(draw: str) -> Iterator[tuple[str, StepProfile, ExperimentConfig]]:
    """(name, profile, configuration) of 20 runs."""

    def order(name: str) -> str:
        return sha256(f"{draw} {name}".encode()).hexdigest()

    for number in experiments.EXPERT:
        yield (f"experiment {number}", *experiments.case(number))
    for sample in SAMPLES:
        if not sample.key.startswith("asap-experiment"):
            yield sample.key, read_profile(list(sample.files)), read_config(sample.config)[0]
    for name, profile in real.others():
        if name in RECORDED:
            yield name, profile, parse_config(RECORDED[name])[0]
    for case in sorted(published_cases.recipes(), key=lambda item: order(item.id))[:RECIPES]:
        yield case.id, case.profile(), case.start
    for scenario in sorted(SCENARIOS, key=lambda item: order(item.name))[:STEPS]:
        yield scenario.name, generated.profile(scenario), configured(scenario)


def show(name: str, profile: StepProfile, config: ExperimentConfig) -> Iterator[str]:
    """The run in a few lines, then its proposals with what each cites."""
    diagnosis = diagnose(profile, config)
    bench = Pricer(profile, config, diagnosis)
    plan = bench.propose()
    yield f"## {name}\n"
    yield f"- {config.hardware.chip} {config.hardware.topology} × {config.hardware.slices}, mesh {config.mesh.text()}"
    yield f"- model {_model(config)}; {_training(config)}"
    kpis = {key: value for key, value in diagnosis.kpis.items() if isinstance(value, float) and 0 < value}
    yield "- KPIs: " + ", ".join(f"{key} {value:.3g}" for key, value in kpis.items())
    yield f"- bottleneck {diagnosis.bottleneck.primary}; findings: {', '.join(f.title for f in diagnosis.findings)}"
    shares = {part: value / bench.observed.step_s for part, value in bench.observed.parts_s.items()}
    yield "- the step as observed: " + ", ".join(f"{part} {v:.0%}" for part, v in shares.items() if v >= 0.005)
    peak = diagnosis.kpis.get("memory_peak_share")
    measured = f"; its peak was measured at {peak:.2f}" if peak else "; its peak was not measured"
    yield f"- memory of the run by the model: {_memory(plan.baseline.hbm_per_chip_bytes)}{measured}\n"
    for item in plan.proposals:
        yield from _proposal(bench, plan, item)


def _model(config: ExperimentConfig) -> str:
    model = config.model
    if model is None:
        return "unknown"
    experts = f", {model.experts} experts of which {model.experts_per_token} per token" if model.experts else ""
    return f"{model.name} (layers {model.layers}, d_model {model.d_model}, d_ff {model.d_ff}{experts})"


def _training(config: ExperimentConfig) -> str:
    t = config.training
    return (
        f"global batch {t.global_batch}, sequence {t.seq_len}, {t.precision}, weight sharding {t.weight_sharding}, "
        f"remat {t.remat}, micro-batches per step {micro_batches(t, config.mesh):g}, virtual stages "
        f"{t.virtual_stages}" + (f", {len(t.xla_flags)} XLA flags" if t.xla_flags else "")
    )


def _memory(used: Memory | None) -> str:
    return f"{used.total / used.capacity:.2f} of what a program can fill" if used else "not computed"


def _proposal(bench: Pricer, plan: Plan, item: ProposalPlan) -> Iterator[str]:
    mesh = Mesh(tuple(item.mesh["ici"].items()), tuple(item.mesh["dcn"].items()), bench.config.mesh.axis_roles)
    case = Case(
        item.rank, item.kind, bench.config, bench.diagnosis, bench.observed, plan.baseline, mesh, item.changes,
        item.predicted, faster=item.confidence, runs=1.0, keeping=0.5, exposed_s=0.0, utility=0.0, missing=(),
    )  # fmt: skip
    new = candidate(bench.config, item)
    tokens, after = (each.training.global_batch_tokens for each in (bench.config, new))
    said = item.predicted.speedup
    yield f"### {item.rank}. {item.title}\n"
    changes = {key: value for key, value in item.changes.items() if key != "xla_flags"}
    added = [flag for flag in item.changes.get("xla_flags", ()) if flag not in bench.config.training.xla_flags]
    yield f"- mesh {new.mesh.text()}; changes {changes or 'none'}" + (f"; flags {' '.join(added)}" if added else "")
    per_chip = (
        f"; tokens per chip {tokens / bench.config.hardware.chips:,.0f} → {after / new.hardware.chips:,.0f}"
        if tokens and after
        else ""
    )
    faster = f"{said:.2f}" if said else "unknown"
    memory = _memory(item.predicted.hbm_per_chip_bytes)
    yield f"- predicted speed-up per token {faster}; memory by the model {memory}{per_chip}"
    before, then = plan.baseline.breakdown_s, item.predicted.breakdown_s
    moved = (f"{part} {before.get(part, 0):.3g} → {then.get(part, 0):.3g} s" for part in {**before, **then})
    yield f"- predicted parts of the step: {', '.join(moved)}\n"
    for number, cite in enumerate(item.citations, 1):
        yield from _citation(f"{item.rank}.{number}", cite, case)


def _citation(number: str, cite: Citation, case: Case) -> Iterator[str]:
    passage = next((p for file in read_all() for p in file.passages if p.id == cite.key), None)
    yield f"**{number} `{cite.key}`** ({cite.source}) says for it: *{cite.supports}*\n"
    yield f"> **{cite.title}.** " + (_whole(passage) if passage else cite.statement).replace("\n", "\n> ") + "\n"
    if compared := _compared(case, cite):
        yield f"Quantities compared: {'; '.join(compared)}\n"


def _whole(passage: ShippedPassage) -> str:
    parts = (("", passage.text), ("Formula: ", passage.formula), ("Applies when: ", passage.applies_when),
             ("Not when: ", passage.counter_indications))  # fmt: skip
    return "\n\n".join(label + " ".join(text.split()) for label, text in parts if text)


def _compared(case: Case, cite: Citation) -> Sequence[str]:
    """What the conditions of its line compare, with the values of the run."""
    of = facts(case)
    primary = case.diagnosis.bottleneck.primary
    asked = [*case.changed]
    asked += [replace(asked[0], subject="verdict", direction=primary)] if asked else []
    found = {}
    for item in asked:
        words = verdict_words(primary) if item.subject == "verdict" else f"{item.words}: "
        for passage, support in supporting(item, of):
            if passage.id == cite.key and support.words in cite.supports and words.lower() in cite.supports.lower():
                for condition in support.conditions:
                    for name in condition.names:
                        found[name] = value_of(of, name)
    return [f"{name} {_number(value)}" for name, value in found.items()]


def _number(value: object) -> str:
    if isinstance(value, frozenset):
        return ", ".join(sorted(value))
    return f"{value:,.3g}" if isinstance(value, float) and abs(value) < 100 else (
        f"{value:,.0f}" if isinstance(value, float) else str(value)
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", default="first")
    draw = parser.parse_args().draw
    print(f"# What 20 runs cite, draw “{draw}”\n\n{HOW}", flush=True)
    for name, profile, config in runs(draw):
        print("\n".join(show(name, profile, config)), flush=True)


if __name__ == "__main__":
    main()
