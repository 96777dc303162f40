"""A proposal with its sentences: the values of a case and what is said of them."""

from __future__ import annotations

from dataclasses import replace

from formatting import plain, span
from history.similarity import Alike
from proposals.candidate import chips_ratio
from proposals.plan import ProposalPlan
from proposals.proposer import effects, wording
from proposals.proposer.case import Case, answered, probability
from proposals.proposer.citations import cite


def worded(case: Case) -> ProposalPlan:
    """The proposal of a case, without what only its neighbours and its terms tell."""
    config = case.config
    citations = cite(case)
    if case.precedent is not None:
        citations += (replace(case.precedent.citation(), supports=_bears(case.bears)),)
    if case.warning is not None:
        risk = f" {case.warns.reason[0].upper()}{case.warns.reason[1:]}." if case.warns is not None else ""
        text = f"The risk: a very similar run failed.{risk}"
        citations += (replace(case.warning.citation(), supports=text),)
    fewer = chips_ratio(config, case.changes)
    return ProposalPlan(
        rank=case.rank,
        kind=case.kind,
        title=wording.title(case),
        mesh=case.mesh.to_json(),
        changes=case.changes,
        predicted=case.predicted,
        confidence=probability(case),
        reasoning=tuple(wording.reasoning(case)),
        expected_impact=tuple(effects.expected_impact(case)),
        trade_offs=tuple(effects.trade_offs(case)),
        citations=citations,
        raises=tuple(effects.raises(case)),
        lowers=tuple(effects.lowers(case)),
        findings=tuple(finding.rule for finding in answered(case)),
        violations=case.broken,
        doublings=case.doublings,
        utility=case.utility,
        disputed=case.disputed,
        parts=case.parts,
        speedup_per_chip=case.predicted.speedup / fewer if case.predicted.speedup and fewer < 1 else None,
    )


def _bears(alike: Alike | None) -> str:
    """Why a record is a precedent, and the effect expected of it here."""
    if alike is None:
        return "Covers the whole change."
    text, effect = f"Covers the whole change: {alike.reason}.", alike.expected
    if effect is None:
        return text
    within = span(effect.low80, effect.high80, "speedup")
    return f"{text} Expected from this record alone: {plain(effect.speedup, 'speedup')} (80 % interval {within})."
