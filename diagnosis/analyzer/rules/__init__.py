"""The rules.  Each reads `Facts` and yields claims, which are ranked by what they could save."""

from __future__ import annotations

from collections.abc import Sequence

from diagnosis.analyzer.facts import Facts, total_exposed
from diagnosis.analyzer.rules import (
    communication,
    links,
    matmuls,
    memory_traffic,
    overview,
    stalls,
    uneven,
    weights,
)
from diagnosis.analyzer.rules.base import OPPOSITE, Claim, Rule
from diagnosis.report import Finding

#: Each rule with what it needs of the recording beside `program` (`Recording.meets`).
RULES: dict[Rule, tuple[str, ...]] = {
    communication.tensor_parallel: ("configuration",),
    communication.fsdp_gathers: ("training", "configuration"),
    communication.gradient_reduction: ("training",),
    weights.replicated_weights: ("training", "configuration"),
    weights.whole_weight_matmuls: ("training", "configuration"),
    communication.sequence_parallel: (),
    communication.expert_dispatch: (),
    uneven.expert_imbalance: (),
    communication.embedding_exchange: ("recommender",),
    communication.exposed_dcn: ("configuration",),
    uneven.pipeline_bubble: ("training", "configuration"),
    links.slow_links: ("configuration",),
    links.open_rings: ("configuration",),
    links.low_link_bandwidth: (),
    links.resharding: (),
    communication.stalled_collectives: (),
    communication.unplaced_collectives: (),
    communication.all_communication: ("most ops",),
    memory_traffic.elementwise_chains: (),
    memory_traffic.optimizer_update: ("training",),
    memory_traffic.stacked_layers: (),
    memory_traffic.data_shuffle: (),
    memory_traffic.near_capacity: ("memory",),
    matmuls.low_efficiency: (),
    matmuls.unaligned_shapes: ("configuration",),
    matmuls.attention_dominates: (),
    matmuls.recompute: ("training",),
    uneven.stragglers: ("per_core_times",),
    stalls.input_pipeline: (),
    stalls.host_gaps: (),
    stalls.host_offload: (),
    stalls.host_copies_in_step: (),
    stalls.device_transfers: (),
    uneven.uneven_steps: ("marked steps",),
    matmuls.opaque_custom_calls: ("roofline",),
}
#: Findings that say of collectives how long they take, not what for.
UNPLACED, WAITS = "collectives_of_unknown_axis", "async_collective_waits"
#: Exposed time that two claims share from this part (0–1) of it on has one cause.
SAME_CAUSE = 0.9


def run(facts: Facts) -> tuple[Finding, ...]:
    """All findings, largest possible saving first; what saves nothing by itself comes last.

    That there is little to gain stands before everything: it says how to read the rest.
    """
    applicable = (rule for rule, needs in RULES.items() if facts.recording.meets(("program", *needs)))
    claims = [claim for rule in applicable for claim in rule(facts)]
    claims.sort(key=lambda claim: -(claim.finding.saving_share if claim.finding.saving_share is not None else -1.0))
    findings = [claim.finding for claim in agreeing(claims)]
    first, last = overview.little_to_gain(facts, findings), overview.record_more(facts)
    ranked = (*(one.finding for one in first), *findings, *(one.finding for one in last))
    return tuple(finding.numbered(f"finding-{index}") for index, finding in enumerate(ranked))


def agreeing(claims: Sequence[Claim]) -> list[Claim]:
    """The claims, largest saving first, without those that advise the opposite of a larger one, and without the
    collectives of unknown axis whose purpose another one names."""
    kept: list[Claim] = []
    for claim in claims:
        if claim.finding.rule == UNPLACED and any(_names(other, claim) for other in claims):
            continue
        if claim.advice not in {OPPOSITE[one.advice] for one in kept if one.advice}:
            kept.append(claim)
    return kept


def _names(claim: Claim, general: Claim) -> bool:
    """Return whether a claim says what nearly all of the time of a general one is for."""
    ops = set() if claim.finding.rule in (UNPLACED, WAITS) else {op.key for op in claim.ops}
    return total_exposed(op for op in general.ops if op.key in ops) >= SAME_CAUSE * total_exposed(general.ops)
