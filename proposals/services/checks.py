"""The last gate before a person sees proposals: legal, fitting, and no number from nowhere."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace

from django.db import transaction

from diagnosis.report import Diagnosis
from experiments.models import Run
from experiments.services import events
from experiments.services.text import clean_json
from experiments.step_profile import StepProfile
from perfmodel.chips import load_chips
from perfmodel.config import ConfigError, ExperimentConfig
from perfmodel.step_time import Prediction, predict
from proposals.candidate import candidate, chips_ratio
from proposals.models import PlanRecord, Proposal
from proposals.services import backing

logger = logging.getLogger(__name__)

#: Of 20,000 ops some number fits any sentence; only those of the table a reader sees first can be cited.
CITABLE_OPS = 20
#: The sentences of a proposal that make claims; its title names the mesh.
TEXTS = ("reasoning", "expected_impact", "trade_offs", "raises", "lowers")


@dataclass(frozen=True)
class Struck:
    """A sentence that was taken out, with the numbers that nothing backs."""

    rank: int
    field: str
    sentence: str
    numbers: tuple[str, ...]


@dataclass(frozen=True)
class Verdict:
    """What the check found.  broken: a sentence per proposal that is illegal or does not fit; it is never shown."""

    broken: tuple[str, ...]
    struck: tuple[Struck, ...]
    claims: int


def check(
    record: PlanRecord,
    config: ExperimentConfig,
    diagnosis: Diagnosis,
    profile: StepProfile,
    only: int | None = None,
    returned: Iterable[float] = (),
) -> Verdict:
    """Check the stored proposals again, from what is stored: legality, memory, and every number in their text.

    only: the rank of the one to check; by default all.  returned: numbers of the tool results that an agent wrote from,
    which a proposal may cite as well.
    """
    known = [*_common(record, config, diagnosis, profile), *returned]
    broken: list[str] = []
    struck: list[Struck] = []
    count = 0
    running = predict(config)
    chosen = record.proposals.order_by("rank")
    for proposal in chosen if only is None else chosen.filter(rank=only):
        broken += _broken(proposal, config, running)
        data = proposal.data
        own = {key: value for key, value in data.items() if key not in TEXTS and key != "title"}
        derived = list(backing.derived(record.data.get("baseline") or {}, data.get("predicted") or {}))
        if proposal.predicted_speedup:
            derived = [*derived, proposal.predicted_speedup / chips_ratio(config, data.get("changes") or {})]
        facts = backing.Facts([*known, *backing.numbers(own), *derived])
        for field in TEXTS:
            for sentence in data.get(field, ()):
                count += sum(1 for _ in backing.claims(sentence))
                if missing := backing.unbacked(sentence, facts):
                    struck.append(Struck(proposal.rank, field, sentence, tuple(missing)))
    return Verdict(tuple(broken), tuple(struck), count)


def _broken(proposal: Proposal, config: ExperimentConfig, running: Prediction) -> Iterator[str]:
    """What forbids the proposal; what holds of the configuration that ran forbids nothing."""
    try:
        found = predict(candidate(config, proposal.data["mesh"], proposal.data.get("changes") or {}))
    except ConfigError as error:
        yield f"Proposal {proposal.rank} cannot run: {error}"
        return
    for violation in found.violations:
        if violation.rule != "memory" and violation not in running.violations:
            yield f"Proposal {proposal.rank} breaks the rule {violation.rule}: {violation.message}"
    if found.fits is False and not (running.fits is False and _bytes(found) <= _bytes(running)):
        yield f"Proposal {proposal.rank} does not fit in memory per chip"


def _bytes(prediction: Prediction) -> float:
    return float((prediction.hbm_per_chip_bytes or {}).get("total") or 0.0)


def _common(
    record: PlanRecord, config: ExperimentConfig, diagnosis: Diagnosis, profile: StepProfile
) -> Iterator[float]:
    """The facts of the run that any proposal may cite."""
    yield from backing.numbers({key: value for key, value in record.data.items() if key != "rejected"})
    found = diagnosis.to_json(top=CITABLE_OPS)
    found.pop("roofline")  # a point per op
    yield from backing.numbers(found)
    measured = replace(profile, ops=profile.ops[:CITABLE_OPS], cores=(), files=()).to_json()
    yield from backing.numbers(measured)
    hardware, training = config.hardware, config.training
    yield from backing.numbers([hardware.topology, hardware.slices, hardware.chips, hardware.chips_per_slice])
    yield from backing.numbers([dict(hardware.overrides), config.mesh.to_json(), asdict(training)])
    if training.global_batch_tokens:
        yield from (float(training.global_batch_tokens), training.global_batch_tokens / hardware.chips)
    if config.model is not None:
        yield from backing.numbers(asdict(config.model))
    chip = load_chips().get(hardware.chip)
    if chip is not None:
        values = (value for name, value in vars(chip).items() if name != "sources")
        yield from backing.numbers([dict(v) if hasattr(v, "items") else v for v in values])


def store(run: Run, record: PlanRecord, verdict: Verdict) -> None:
    """Take the struck sentences out of the proposals, with an Event that says which and why.

    A plan with an illegal proposal is our fault, never the user's: it raises RuntimeError and is not shown.
    """
    if verdict.broken:
        raise RuntimeError("; ".join(verdict.broken))
    with transaction.atomic():
        events.lock(run.experiment_id)
        for proposal in record.proposals.order_by("rank"):
            gone = {(item.field, item.sentence) for item in verdict.struck if item.rank == proposal.rank}
            if not gone:
                continue
            for field in TEXTS:
                kept = [text for text in proposal.data.get(field, ()) if (field, text) not in gone]
                proposal.data[field] = kept
            if not proposal.data["reasoning"]:
                proposal.data["reasoning"] = ["The reasons could not be traced to the profile and were removed."]
            proposal.save(update_fields=["data"])
        for item in verdict.struck:
            logger.error("run %s, proposal %s: nothing backs %s in %r", run.pk, item.rank, item.numbers, item.sentence)
            events.append(
                run.experiment_id,
                "rejected_claim",
                "coordinator",
                run=run,
                data=clean_json(
                    {**asdict(item), "text": "A sentence was removed: its numbers have no source in this run."}
                ),
            )
        if verdict.claims:
            text = f"{verdict.claims - sum(len(s.numbers) for s in verdict.struck)} of {verdict.claims} numbers traced"
            events.progress(run, f"The proposals are legal and fit in memory; {text} to their source", fraction=1.0)
