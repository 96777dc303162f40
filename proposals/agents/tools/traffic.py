"""Traffic of predicted communication: bytes, calls and link bandwidth of each group of axes."""

from __future__ import annotations

from typing import Any

from perfmodel.config import ExperimentConfig, missing_facts
from perfmodel.terms import step_terms
from perfmodel.workload import chip_of, from_config
from proposals.agents.tool_result import present
from proposals.proposer.detail import MOVES
from proposals.proposer.pricing import axes_of_group


def behind(config: ExperimentConfig) -> list[dict[str, Any]]:
    """Per kind of communication of a configuration: its axes, bytes that each chip sends inside its slice (or NVLink
    domains) per step, calls per step, seconds at full bandwidth, and the bandwidth that this is, per chip.

    Overlap and the fitted efficiency of links are not in it: they lie between these seconds and what is exposed.  Empty
    where a fact is missing that the bytes hang on.
    """
    if missing_facts(config):
        return []
    chip, rows = chip_of(config.hardware), []
    for name, item in step_terms(from_config(config)).traffic.items():
        sent, calls = float(item.sent_bytes.max()), float(item.calls.max())
        inside, network, dcn = (float(values.max()) for values in (item.ici_s, item.network_s, item.dcn_s))
        if not calls or not (inside or network or dcn):
            continue
        rows.append(
            present(
                {
                    "axes": axes_of_group(name, config, config.mesh),
                    "dcn_axes": [axis for axis, size in config.mesh.dcn if size > 1] if dcn else [],
                    "moves": MOVES[name],
                    "chips_of_the_group": int(item.ranks.max()),
                    "sent_bytes_per_chip": sent or None,
                    "calls_per_step": calls,
                    "sent_bytes_per_call": sent / calls if sent else None,
                    "at_full_bandwidth_s": inside or None,
                    "bandwidth_per_chip_bytes_per_s": sent / inside if inside and sent else None,
                    "between_nvlink_domains_s": network or None,
                    "across_slices_s": dcn or None,
                    "dcn_per_chip_bytes_per_s": chip.dcn_bytes_per_s_per_chip if dcn or network else None,
                }
            )
        )
    return rows
