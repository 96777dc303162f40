"""What the verdict asks for: less of the part of the step that it names, and which candidates give that."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnosis.report import Diagnosis
from proposals.proposer.pricing import ProposalPrices, axes_of_group
from proposals.proposer.space import Candidates

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

#: A candidate gives what is asked for where the part falls by this share, per token and chip.
FALLS_BY = 0.1


@dataclass(frozen=True)
class Asked:
    """part: of the step, in words; given: whether each candidate makes it smaller."""

    part: str
    given: Bools


def asked_by(diagnosis: Diagnosis, c: Candidates, prices: ProposalPrices) -> Asked | None:
    """None where the verdict asks for nothing that a mesh or a training key could give: input and host, and steps
    whose limit is not clear."""
    parts, verdict = prices.parts_s, diagnosis.bottleneck.primary
    if verdict == "communication":
        name = _largest(parts, c.baseline)
        if name is None:  # no collective is listed, so that nothing is known to shorten it
            return None
        return Asked(_communication(name, c), _falls(parts[name], c))
    if verdict == "memory":
        return Asked("HBM traffic", _falls(parts["hbm"], c))
    if verdict == "compute":
        return Asked("compute time", _falls(parts["compute"], c))
    if verdict == "idle":
        waits = [parts[name] for name in ("idle", "kernel_launches") if name in parts]
        return Asked("idle time", _falls(sum(waits, np.zeros(len(c))), c))
    return None


def _largest(parts: dict[str, Floats], baseline: int) -> str | None:
    """The collectives that take the most time in the current configuration."""
    talk = {name: float(values[baseline]) for name, values in parts.items() if name.startswith("ici") or name == "dcn"}
    name = max(talk, key=lambda each: talk[each], default=None)
    return name if name is not None and talk[name] > 0 else None


def _communication(name: str, c: Candidates) -> str:
    if name == "dcn":
        return "DCN communication"
    axes = axes_of_group(name.partition(":")[2], c.config, c.config.mesh) if ":" in name else []
    return f"communication on {', '.join(axes)}" if axes else "exposed communication"


def _falls(part: Floats, c: Candidates) -> Bools:
    each = part / (c.tokens_ratio * c.chips_ratio)
    return np.asarray(each < (1.0 - FALLS_BY) * each[c.baseline])
