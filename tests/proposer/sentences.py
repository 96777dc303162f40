"""What the sentences of a plan must hold: every quantity a value that equals what it names."""

from __future__ import annotations

from typing import Any

import pytest

from diagnosis.report import Diagnosis
from experiments.sentences import Value, spans_of
from proposals.plan import Plan, ProposalPlan
from tests.diagnosis.test_numbers import QUANTITY

#: Texts that a sentence quotes: of records, of rules, of constraints and of what a price doubts.
QUOTES = (
    "The profile recorded", "precedent", "Precedent", "similar change", "similar run", "Invalid configuration",
    "constraint",
)  # fmt: skip


def check_sentences(plan: Plan, diagnosis: Diagnosis, *more: ProposalPlan) -> int:
    """How many values there are in the sentences of a plan, and of further proposals, each of which was checked."""
    counted = check_values(plan.notes, {"plan": plan}, diagnosis)
    for item in (*plan.proposals, *more):
        texts = (*item.reasoning, *item.expected_impact, *item.trade_offs, *item.raises, *item.lowers)
        counted += check_values(texts, {"plan": plan, "proposal": item}, diagnosis)
    return counted


def check_values(texts: tuple[str, ...], roots: dict[str, Any], diagnosis: Diagnosis) -> int:
    counted = 0
    panels = {item.field: item.value for item in diagnosis.cited} | {"confidence": diagnosis.bottleneck.confidence}
    for text in texts:
        for span in spans_of(text):
            if isinstance(span, Value):
                named = panels[span.field] if span.panel else sum(_at(path, roots) for path in span.field.split(" + "))
                assert span.value == pytest.approx(named), (span, text)
                counted += 1
            elif not any(quote in text for quote in QUOTES):
                assert not QUANTITY.search(span.replace("80 % interval", "")), text
    return counted


def _at(path: str, roots: dict[str, Any]) -> float:
    """The number at `proposal.predicted.breakdown_s.ici:data+seq`."""
    found: Any = roots
    for name in path.split("."):
        found = found[name] if isinstance(found, dict) else getattr(found, name)
    return float(found)
