"""Profile alone: every measured part multiplied by how its modelled time changes, whatever the model expects of it.

This is how profiles were used before they became evidence about efficiencies; it is kept as the baseline to beat
(docs/accuracy-calibration.md).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from evaluation.landscape_scores import Priced
from perfmodel.calibration import Calibration
from perfmodel.observation import by_group
from perfmodel.step_time import combine
from perfmodel.terms import Terms, step_terms
from perfmodel.workload import REMAT, Workload, from_config

Floats = npt.NDArray[np.float64]

#: Standard deviation of log(time) of a part that keeps its size, per unit of |log(ratio)|, of a part that the baseline
#: did not have, and per doubling of axes.
SPREAD_KEPT, SPREAD_PER_LOG, SPREAD_NEW, SPREAD_PER_DOUBLING = 0.02, 0.25, 0.5, 0.025


def rescaled(calibration: Calibration, workload: Workload, distance: Floats) -> Priced:
    """Gains of candidates by the observation of a calibration, its posterior left aside."""
    observation, efficiencies = calibration.observation, calibration.posterior.values.efficiencies
    base_work = from_config(calibration.baseline)
    before_terms, after_terms = step_terms(base_work), step_terms(workload)
    before, after = combine(before_terms, efficiencies), combine(after_terms, efficiencies)
    seen = observation.parts_s
    parts: dict[str, Floats] = {}
    spreads: dict[str, Floats] = {}

    def times(name: str, measured: float, one: Floats, other: Floats) -> None:
        ratio = np.asarray(other) / np.maximum(one, 1e-30)
        parts[name] = measured * ratio
        spreads[name] = SPREAD_KEPT + SPREAD_PER_LOG * np.abs(np.log(np.maximum(ratio, 1e-9)))

    times("compute", seen.get("compute", 0.0), before.parts_s["compute"], after.parts_s["compute"])
    times("weights", seen.get("hbm:weights", 0.0), before_terms.hbm_weights_s, after_terms.hbm_weights_s)
    activations = seen.get("hbm:activations", 0.0) + observation.copies_s
    times("activations", activations, _activations(before_terms), _activations(after_terms))
    times("optimizer", seen.get("hbm:optimizer", 0.0), before_terms.hbm_optimizer_s, after_terms.hbm_optimizer_s)
    cover = after.parts_s["compute"] / np.maximum(before.parts_s["compute"], 1e-30)
    groups, unplaced = by_group(calibration.baseline.mesh, observation, before)
    across = {
        name: sum((t.dcn_s for t in terms.traffic.values()), np.zeros(1))
        for name, terms in (("one", before_terms), ("other", after_terms))
    }
    links = [
        (f"ici:{name}", groups.get(name, 0.0), before.resources_s[f"ici:{name}"], after.resources_s[f"ici:{name}"])
        for name in after_terms.traffic
    ]
    for key, measured, one, other in (*links, ("dcn", seen.get("dcn", 0.0), across["one"], across["other"])):
        ratio = other / np.maximum(one, 1e-30)
        known = (one > 0) & (measured > 0)
        appears = np.maximum(0.0, after.parts_s[key] - np.where(one > 0, before.parts_s[key] * cover, 0.0))
        parts[key] = np.where(known, measured * ratio, appears)
        moved = SPREAD_KEPT + SPREAD_PER_LOG * np.abs(np.log(np.maximum(np.where(known, ratio, 1.0), 1e-3)))
        spreads[key] = np.where(known, moved, SPREAD_NEW)
    batch = workload.training.global_batch / base_work.training.global_batch
    fixed = {
        "input": seen.get("input", 0.0) * batch,
        "unplaced": (unplaced + sum(observation.unexplained_s.values())) * np.ones(1),
    }
    inside = ("compute", "weights", "activations", "optimizer", "ici:model", "ici:seq", "ici:expert")
    busy_before = observation.work_s + sum(groups.get(name, 0.0) for name in ("model", "seq", "expert"))
    bubble_before = float(before_terms.bubble.reshape(-1)[0]) * busy_before
    busy = sum((parts[name] for name in inside), np.zeros(1))
    fixed["gaps"] = max(0.0, observation.gaps_s - bubble_before) + after_terms.bubble * busy
    parts |= fixed
    spreads |= {name: np.full(1, SPREAD_KEPT) for name in fixed}
    total = sum(parts.values(), np.zeros(1))
    variance = sum(((parts[name] * spreads[name]) ** 2 for name in parts), np.zeros(1)) / total**2
    sigma = np.sqrt(variance + SPREAD_PER_DOUBLING**2 * distance)
    return Priced(np.log(observation.measured_s / total * batch), np.broadcast_to(sigma, total.shape))


def _activations(terms: Terms) -> Floats:
    again = np.isin(terms.work.training.remat, (REMAT.index("full"), REMAT.index("offload")))
    return np.asarray(terms.hbm_activations_s + np.where(again, terms.hbm_recompute_s, 0.0))
