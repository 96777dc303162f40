"""A candidate as a proposal: its values and what is said of it."""

from __future__ import annotations

from perfmodel.chips import get_chip
from perfmodel.config import Mesh
from proposals.plan import Broken, Predicted, ProposalPlan
from proposals.proposer import effects, wording
from proposals.proposer.changes import Change
from proposals.proposer.citations import cite


def worded(case: wording.Case) -> ProposalPlan:
    config = case.config
    experts = config.mesh.size("expert") > 1 or (config.model is not None and config.model.experts > 0)
    kind = get_chip(config.hardware.chip).kind
    citations = cite(wording.tags(case), kind, case.diagnosis.bottleneck.primary, experts)
    citations += tuple(item.citation() for item in (case.precedent, case.warning) if item is not None)
    return ProposalPlan(
        rank=case.rank,
        kind=case.kind,
        title=wording.title(case),
        mesh=case.mesh.to_json(),
        changes=case.changes,
        predicted=case.predicted,
        confidence=wording.probability(case),
        reasoning=tuple(wording.reasoning(case)),
        expected_impact=tuple(effects.expected_impact(case)),
        trade_offs=tuple(effects.trade_offs(case)),
        citations=citations,
        raises=tuple(effects.raises(case)),
        lowers=tuple(effects.lowers(case)),
        findings=tuple(finding.rule for finding in wording.answered(case)),
        violations=case.broken,
        doublings=case.doublings,
    )


def impossible(mesh: Mesh, change: Change, wrong: tuple[Broken, ...], missing: tuple[str, ...]) -> ProposalPlan:
    """What names other chips than there are: no time, no memory, only what is wrong."""
    return ProposalPlan(
        rank=0,
        kind="own",
        title="Mesh impossible on this topology",
        mesh=mesh.to_json(),
        changes=dict(change),
        predicted=Predicted(missing=missing),
        confidence=0.0,
        reasoning=tuple(f"Invalid configuration: {item.reason}" for item in wrong),
        expected_impact=(),
        trade_offs=(),
        violations=wrong,
    )
