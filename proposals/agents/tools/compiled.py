"""What the compile check of a configuration says, as the tools tell it."""

from __future__ import annotations

from perfmodel.config import ExperimentConfig
from proposals.agents.priced import Compiled, Sent
from proposals.compiling import predicted
from proposals.compiling.result import CompileCheck
from proposals.compiling.wording import sentence


def compiled(check: CompileCheck | None, config: ExperimentConfig | None = None) -> Compiled | None:
    """Verdict and memory per chip; with the configuration also the bytes that a chip sends per step over each group of
    axes, beside the predicted."""
    if check is None:
        return None
    rows = predicted.by_axis(config, check) if config is not None and check.outcome == "fits" else []
    return Compiled(
        outcome=check.outcome,
        says=sentence(check),
        peak_bytes=check.peak_bytes,
        needed_at_least_bytes=check.needed_bytes,
        capacity_bytes=check.capacity_bytes,
        headroom_bytes=check.capacity_bytes - check.peak_bytes if check.capacity_bytes and check.peak_bytes else None,
        effort=check.effort,
        sent_per_step=tuple(
            Sent(axes=row.axes, kinds=row.kinds, compiled_bytes=row.compiled, predicted_bytes=row.predicted)
            for row in rows
        ),
    )
