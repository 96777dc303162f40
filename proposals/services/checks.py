"""The last gate before a person sees proposals: legal, and fitting in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from experiments.models import Run
from experiments.sentences import values
from experiments.services import events
from perfmodel.config import ConfigError, ExperimentConfig
from perfmodel.price import Evidence, violations
from proposals.candidate import candidate
from proposals.models import PlanRecord, Proposal
from proposals.services import context


@dataclass(frozen=True)
class Verdict:
    """What the check found.  broken: a sentence per proposal that is illegal or does not fit; it is never shown.

    values: how many values the sentences of the proposals hold, each with its source.
    """

    broken: tuple[str, ...]
    values: int


def check(record: PlanRecord, only: int | None = None) -> Verdict:
    """Check the stored proposals again, from what is stored, by the evidence that priced them.

    only: the rank of the one to check; by default all.
    """
    broken: list[str] = []
    count = 0
    config = context.of_plan(record).config
    chosen = record.proposals.order_by("rank")
    for proposal in chosen if only is None else chosen.filter(rank=only):
        broken += _broken(proposal, config, context.pricer(record).evidence)
        plan = proposal.value
        texts = (plan.reasoning, plan.expected_impact, plan.trade_offs, plan.raises, plan.lowers)
        count += sum(len(values(text)) for group in texts for text in group)
    return Verdict(tuple(broken), count)


def _broken(proposal: Proposal, config: ExperimentConfig, evidence: Evidence) -> Iterator[str]:
    """Yield what forbids the proposal."""
    try:
        made = replace(candidate(config, proposal.value), measured=None)
    except ConfigError as error:
        yield f"Proposal {proposal.rank} cannot run: {error}"
        return
    for violation in violations(made, evidence):
        yield f"Proposal {proposal.rank} breaks the rule {violation.rule}: {violation.message}"


def store(run: Run, verdict: Verdict) -> None:
    """Note that the proposals passed.

    A plan with an illegal proposal is our fault, never the user's: it raises RuntimeError and is not shown.
    """
    if verdict.broken:
        raise RuntimeError("; ".join(verdict.broken))
    count = verdict.values
    sources = f"; {count} {'number has a source' if count == 1 else 'numbers have a source'}" if count else ""
    events.progress(run, f"The proposals are legal and fit in memory{sources}", fraction=1.0)
