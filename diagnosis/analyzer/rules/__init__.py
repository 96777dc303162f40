"""The rules.  Each reads `Facts` and yields claims; those that obey the laws are ranked by what they could save."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from diagnosis.analyzer.facts import Facts
from diagnosis.analyzer.rules import (
    across_slices,
    consistency_checks,
    experts,
    link_use,
    matmuls,
    memory_traffic,
    opaque,
    overview,
    pipeline,
    placement,
    rings,
    sequence,
    stalls,
    tensor_parallel,
    weights,
)
from diagnosis.analyzer.rules.base import Claim, Rule
from diagnosis.report import Finding

RULES: tuple[Rule, ...] = (
    tensor_parallel.tensor_parallel,
    weights.fsdp_gathers,
    weights.gradient_reduction,
    weights.replicated_weights,
    weights.whole_weight_matmuls,
    sequence.sequence_parallel,
    experts.expert_dispatch,
    experts.expert_imbalance,
    across_slices.exposed_dcn,
    pipeline.pipeline_bubble,
    placement.slow_links,
    rings.open_rings,
    link_use.low_link_bandwidth,
    placement.resharding,
    opaque.stalled_collectives,
    overview.unplaced_collectives,
    overview.all_communication,
    memory_traffic.elementwise_chains,
    memory_traffic.optimizer_update,
    memory_traffic.stacked_layers,
    memory_traffic.data_shuffle,
    memory_traffic.near_capacity,
    matmuls.low_efficiency,
    matmuls.unaligned_shapes,
    matmuls.attention_dominates,
    matmuls.recompute,
    stalls.stragglers,
    stalls.input_pipeline,
    stalls.host_gaps,
    stalls.host_offload,
    stalls.device_transfers,
    stalls.uneven_steps,
    opaque.opaque_custom_calls,
)


@dataclass(frozen=True)
class Weighed:
    """One claim and the law it breaks, None where it obeys all."""

    claim: Claim
    broken: consistency_checks.ConsistencyCheck | None


def run(facts: Facts) -> tuple[Finding, ...]:
    """All findings, largest possible saving first; what saves nothing by itself comes last.

    That there is little to gain stands before everything: it says how to read the rest.
    """
    findings = [one.claim.finding for one in weighed_claims(facts) if one.broken is None]
    findings.sort(key=lambda finding: -(finding.saving_share if finding.saving_share is not None else -1.0))
    first = (
        one for one in overview.little_to_gain(facts, findings) if consistency_checks.failed_check(facts, one) is None
    )
    last = (one for one in overview.record_more(facts) if consistency_checks.failed_check(facts, one) is None)
    ranked = (*(one.finding for one in first), *findings, *(one.finding for one in last))
    return tuple(finding.numbered(f"finding-{index}") for index, finding in enumerate(ranked))


def weighed_claims(facts: Facts) -> Iterator[Weighed]:
    """Every claim of every rule with the law that strikes it, if one does."""
    for rule in RULES:
        for claim in rule(facts):
            yield Weighed(claim, consistency_checks.failed_check(facts, claim))
