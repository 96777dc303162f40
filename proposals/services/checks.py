"""The last gate before a person sees proposals: legal, and fitting in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from experiments.models import Run
from experiments.sentences import values
from experiments.services import events
from perfmodel.config import ConfigError, ExperimentConfig
from perfmodel.step_time import Prediction, predict
from proposals.candidate import candidate
from proposals.models import PlanRecord, Proposal


@dataclass(frozen=True)
class Verdict:
    """What the check found.  broken: a sentence per proposal that is illegal or does not fit; it is never shown.

    values: how many values the sentences of the proposals hold, each with its source.
    """

    broken: tuple[str, ...]
    values: int


def check(record: PlanRecord, config: ExperimentConfig, only: int | None = None) -> Verdict:
    """Check the stored proposals again, from what is stored.  only: the rank of the one to check; by default all."""
    broken: list[str] = []
    count = 0
    running = predict(config)
    chosen = record.proposals.order_by("rank")
    for proposal in chosen if only is None else chosen.filter(rank=only):
        broken += _broken(proposal, config, running)
        plan = proposal.value
        texts = (plan.reasoning, plan.expected_impact, plan.trade_offs, plan.raises, plan.lowers)
        count += sum(len(values(text)) for group in texts for text in group)
    return Verdict(tuple(broken), count)


def _broken(proposal: Proposal, config: ExperimentConfig, running: Prediction) -> Iterator[str]:
    """What forbids the proposal; what holds of the configuration that ran forbids nothing."""
    try:
        value = proposal.value
        prediction = predict(candidate(config, value))
    except ConfigError as error:
        yield f"Proposal {proposal.rank} cannot run: {error}"
        return
    for violation in prediction.violations:
        if violation.rule != "memory" and violation not in running.violations:
            yield f"Proposal {proposal.rank} breaks the rule {violation.rule}: {violation.message}"
    if prediction.fits is False and not (running.fits is False and _bytes(prediction) <= _bytes(running)):
        yield f"Proposal {proposal.rank} does not fit in memory per chip"


def _bytes(prediction: Prediction) -> float:
    return float((prediction.hbm_per_chip_bytes or {}).get("total") or 0.0)


def store(run: Run, verdict: Verdict) -> None:
    """Note that the proposals passed.

    A plan with an illegal proposal is our fault, never the user's: it raises RuntimeError and is not shown.
    """
    if verdict.broken:
        raise RuntimeError("; ".join(verdict.broken))
    count = verdict.values
    sources = f"; {count} {'number has a source' if count == 1 else 'numbers have a source'}" if count else ""
    events.progress(run, f"The proposals are legal and fit in memory{sources}", fraction=1.0)
