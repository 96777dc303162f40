"""The rules.  Each reads `Facts` and yields findings; `run` ranks them by what they could save."""

from __future__ import annotations

from diagnosis.analyzer.facts import Facts
from diagnosis.analyzer.rules import (
    across_slices,
    experts,
    matrix_units,
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
    wire_use,
)
from diagnosis.analyzer.rules.base import Rule
from diagnosis.report import Finding

RULES: tuple[Rule, ...] = (
    tensor_parallel.tensor_parallel,
    weights.fsdp_gathers,
    weights.gradient_reduction,
    weights.replicated_weights,
    sequence.sequence_parallel,
    experts.expert_dispatch,
    experts.expert_imbalance,
    across_slices.exposed_dcn,
    pipeline.pipeline_bubble,
    placement.slow_links,
    rings.open_rings,
    wire_use.wires_half_empty,
    placement.resharding,
    opaque.stalled_collectives,
    overview.unplaced_collectives,
    overview.all_communication,
    memory_traffic.elementwise_chains,
    memory_traffic.optimizer_update,
    memory_traffic.data_shuffle,
    memory_traffic.near_capacity,
    matrix_units.low_efficiency,
    matrix_units.unaligned_shapes,
    matrix_units.attention_dominates,
    matrix_units.recompute,
    stalls.stragglers,
    stalls.input_pipeline,
    stalls.host_gaps,
    stalls.device_transfers,
    stalls.uneven_steps,
    opaque.opaque_custom_calls,
)


def run(facts: Facts) -> tuple[Finding, ...]:
    """All findings, largest possible saving first; what saves nothing by itself comes last.

    That there is little to gain stands before everything: it says how to read the rest.
    """
    found = [finding for rule in RULES for finding in rule(facts)]
    found.sort(key=lambda finding: -(finding.saving_share if finding.saving_share is not None else -1.0))
    return (*overview.little_to_gain(facts, found), *found, *overview.record_more(facts))
