"""What the compile check of a configuration says, as the tools tell it."""

from __future__ import annotations

from typing import Any

from perfmodel.config import ExperimentConfig
from proposals.agents.tools.common import present
from proposals.compiling import predicted
from proposals.compiling.result import CompileCheck
from proposals.compiling.wording import sentence


def compiled(found: CompileCheck | None, config: ExperimentConfig | None = None) -> dict[str, Any] | None:
    """Verdict and memory per chip; with the configuration also the bytes that a chip sends per step over each group of
    axes, beside the predicted."""
    if found is None:
        return None
    rows = predicted.by_axis(config, found) if config is not None and found.outcome == "fits" else []
    room = found.capacity_bytes - found.peak_bytes if found.capacity_bytes and found.peak_bytes else None
    return present(
        {
            "outcome": found.outcome,
            "says": sentence(found),
            "peak_bytes": found.peak_bytes,
            "asked_for_at_least_bytes": found.needed_bytes,
            "capacity_bytes": found.capacity_bytes,
            "headroom_bytes": room,
            "effort": found.effort,
            "sent_per_step": [
                present(
                    {
                        "axes": list(row.axes), "kinds": list(row.kinds), "compiled_bytes": row.compiled,
                        "predicted_bytes": row.predicted,
                    }
                )
                for row in rows
            ],
        }
    )  # fmt: skip
