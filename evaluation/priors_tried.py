"""Judgements that were added to prices while looking at the paper's experiments, to be tried on cases kept apart.

*Stalls.*  Where the verdict is communication though its own time is below XProf's threshold, the difference is taken
from work that the roofline does not explain and follows the collectives that block.  *Causal imbalance.*  Half of what
contiguous parts of a causal sequence would cost.  Neither is used by the product (docs/accuracy-calibration.md).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from diagnosis.report import Diagnosis
from proposals.proposer.observed import Observed

Floats = npt.NDArray[np.float64]

#: Share of the step from which XProf's rules call communication the bottleneck (smart_suggestion/constants.h).
COMMUNICATION_SHARE = 0.30
#: How much of its own time a collective was believed to block others.
BLOCKS = {"tensor": 1.0, "expert": 1.0, "sequence": 0.5}
_GROUP_OF = {"tensor": "model", "expert": "expert", "sequence": "seq"}


def stalled_s(observed: Observed, diagnosis: Diagnosis) -> float:
    """Time per step that the verdict puts down to waiting around collectives, beyond their own time."""
    verdict = diagnosis.bottleneck
    if verdict.primary != "communication":
        return 0.0
    missing = COMMUNICATION_SHARE * observed.step_s - sum(observed.traffic_s.values())
    unexplained = observed.work_s["products"] + observed.work_s["attention"]
    efficiency = diagnosis.kpis.get("flops_utilization")
    if efficiency is not None:
        unexplained *= max(0.0, 1.0 - efficiency)
    return max(0.0, min(missing, unexplained)) * verdict.confidence


def stalls_s(parts: dict[str, Floats], observed: Observed, diagnosis: Diagnosis) -> Floats:
    """Change of the stalled time, per candidate; the baseline is the first."""
    change = np.zeros_like(next(iter(parts.values())))
    stalled = stalled_s(observed, diagnosis)
    weights = {kind: observed.traffic_s[kind] * share for kind, share in BLOCKS.items()}
    total = sum(weights.values())
    if not stalled or not total:
        return change
    for kind, weight in weights.items():
        own = parts[f"ici:{_GROUP_OF[kind]}"]
        ratio = own / own[0] if own[0] > 0 else np.ones_like(own)
        change = change + stalled * weight / total * (np.minimum(ratio, 3.0) - 1.0)
    return change


def imbalance_s(parts_of_sequence: Floats, observed: Observed) -> Floats:
    """Change of causal attention with the parts of the sequence, per candidate; the baseline is the first."""
    factor = 1.0 + 0.5 * (1.0 - 1.0 / parts_of_sequence)
    return np.asarray(observed.work_s["attention"] * (factor / factor[0] - 1.0))
