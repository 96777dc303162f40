"""Records shown as similar to runs, for a reader to grade: `python -m evaluation.similar_drawn [--draw NAME]`.

20 runs, the paper's experiments first, then published recipes from a poorer start, TPU and GPU in turn, drawn by a hash
of the draw's name; the records of their own model on their own chip are left out.  Then the pages of some records.
With each record stands everything that tells whether its effect carries over.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from itertools import chain, zip_longest

from diagnosis.analyzer import diagnose
from diagnosis.report import Diagnosis
from evaluation.history_ablation import same_work
from evaluation.proposing import experiments, published_cases
from experiments.step_profile import StepProfile
from history import seeds
from history.case import Case, cases_of, hardware_kind
from history.record import Record, Side
from history.similarity import Alike, most_similar
from perfmodel import accounting
from perfmodel.chips import get_chip
from perfmodel.config import ExperimentConfig
from proposals.plan import ProposalPlan
from proposals.proposer import Pricer
from proposals.proposer.precedents import case_of_change, precedents_of, published, situation

RUNS, RECORDS, SHOWN = 20, 30, 3


def runs(draw: str) -> Iterator[tuple[str, StepProfile, ExperimentConfig]]:
    """(name, profile, configuration)."""
    for number in experiments.EXPERT:
        yield (f"ASAP paper, experiment {number}", *experiments.case(number))
    cases = sorted(published_cases.recipes(), key=lambda item: sha256(f"{draw} {item.id}".encode()).hexdigest())
    kinds = [[case for case in cases if get_chip(case.start.hardware.chip).kind == kind] for kind in ("tpu", "gpu")]
    drawn = [case for case in chain.from_iterable(zip_longest(*kinds)) if case is not None]
    for case in drawn[: RUNS - len(experiments.EXPERT)]:
        yield case.id, case.profile(), case.start


def show(name: str, profile: StepProfile, config: ExperimentConfig, own: bool) -> Iterator[str]:
    """The run, its proposals, and what is shown beside each.  own: whether its own records stay."""
    diagnosis = diagnose(profile, config)
    ran = situation(config, diagnosis)
    known = _known()
    held = {item.id for item in published() if same_work(item, ran)}
    records = [
        record
        for record in seeds.records()
        if own or not (record.id in held or (record.chip == ran.chip and _same_model(record, ran)))
    ]
    training, hardware, model = config.training, config.hardware, config.model
    tokens = f"{ran.tokens_per_chip:,.0f} tokens per chip" if ran.tokens_per_chip else "tokens per chip not known"
    size = f"{accounting.parameters(model).total / 1e9:.3g}B parameters" if model else "model not known"
    yield f"## Run: {name}"
    yield f"- hardware: {hardware.chips} × {hardware.chip} ({hardware.topology} × {hardware.slices} slices)"
    yield f"- model: {model.name if model else 'not known'}, {size}"
    yield (
        f"- runs: {config.mesh.text()}; batch {training.global_batch} × {training.seq_len} tokens, {tokens}; "
        f"micro-batch {training.micro_batch}, accumulation {training.grad_accum}, remat {training.remat}, weights "
        f"{training.weight_sharding}, {training.precision}"
    )
    yield f"- bottleneck: {diagnosis.bottleneck.primary}"
    yield ""
    yield "### Similar records of the run, whatever it changes"
    yield from _records(records, ran)
    bench = Pricer(profile, config, diagnosis, precedents_of(records, [known[record.id] for record in records]))
    for item in bench.propose().proposals:
        yield from _proposal(records, item, config, diagnosis)
    yield ""


def _same_model(record: Record, ran: Case) -> bool:
    sizes = record.parameters, ran.parameters
    return bool(sizes[0] and sizes[1] and abs(sizes[0] / sizes[1] - 1.0) < 0.05)


def _proposal(
    records: list[Record], item: ProposalPlan, config: ExperimentConfig, diagnosis: Diagnosis
) -> Iterator[str]:
    yield f"### Proposal {item.rank}: {item.title}"
    yield f"- mesh {item.mesh.get('ici')} {item.mesh.get('dcn') or ''}, changes {item.changes or 'nothing else'}"
    cited = [cite for cite in item.citations if cite.source == "history"]
    for cite in cited:
        yield f"- cited as precedent: {cite.key}; {cite.supports}"
    case = case_of_change(config, diagnosis, item)
    if case.move:
        yield from _records(records, case)
    else:
        yield "- (keeps the current configuration)"


@cache
def _known() -> dict[str, Case]:
    """What every shipped record is known by."""
    every = seeds.records()
    return {record.id: case for record, case in zip(every, cases_of(every), strict=True)}


def _records(records: list[Record], case: Case) -> Iterator[str]:
    shown = most_similar([_known()[record.id] for record in records], case, SHOWN)
    if not shown:
        yield "- none shown"
    for n, found in shown:
        yield from _record(records[n], found)


def _record(record: Record, found: Alike) -> Iterator[str]:
    yield f"- **{record.id}** ({found.likeness:.2f}): {record.title}"
    yield f"  - shown reason: {found.reason}"
    yield from _told(record)
    if found.expected is not None:
        told = found.expected
        yield f"  - shown as expected here: {told.speedup:.2f}× ({told.low80:.2f}× to {told.high80:.2f}×)"


def _told(record: Record) -> Iterator[str]:
    theirs = _known()[record.id]
    size = f"{record.parameters / 1e9:.3g}B parameters" if record.parameters else "size not known"
    tokens = f"{theirs.tokens_per_chip:,.0f} tokens per chip" if theirs.tokens_per_chip else "tokens not known"
    yield f"  - ran on {record.chips} × {record.chip}, {record.model_name or 'model not named'}, {size}, {tokens}"
    yield f"  - before: {_side(record.before)}; after: {_side(record.after)}"
    yield f"  - changed: {record.change}; bottleneck before: {record.bottleneck or 'not known'}"
    yield f"  - effect: {record.outcome}, {record.effect or '–'}; speed-up {record.speedup}"
    yield f"  - source: {record.source} {record.url}"


def _side(side: Side) -> str:
    keys = ("global_batch", "micro_batch", "grad_accum", "seq_len", "remat", "weight_sharding", "precision")
    training = ", ".join(f"{key} {side.training[key]}" for key in keys if side.training.get(key) is not None)
    return f"{(side.mesh or {}).get('ici') or 'mesh not stated'} ({training or 'settings not stated'})"


def of_records(draw: str) -> Iterator[str]:
    """Records drawn from those whose change has a direction, of TPUs and GPUs in turn, and what their pages show."""
    every = sorted(seeds.records(), key=lambda record: sha256(f"{draw} {record.id}".encode()).hexdigest())
    kinds = [[r for r in every if hardware_kind(r.chip) == kind and _known()[r.id].directed] for kind in ("tpu", "gpu")]
    drawn = [record for record in chain.from_iterable(zip_longest(*kinds)) if record is not None]
    for record in drawn[:RECORDS]:
        case = _known()[record.id]
        yield f"## Page of the record {record.id}: {record.title}"
        yield from _told(record)
        yield "### Similar records"
        yield from _records([other for other in every if other.id != record.id], case)
        yield ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", default="A")
    draw = parser.parse_args().draw
    for name, profile, config in runs(draw):
        print("\n".join(show(name, profile, config, name.startswith("ASAP"))), flush=True)
    print("\n".join(of_records(draw)))


if __name__ == "__main__":
    main()
