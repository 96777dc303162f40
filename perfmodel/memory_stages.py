"""Pipeline stages as memory sees them: layers and micro-batches of the first and the last stage.

Either layers fall on stages evenly, or balanced by cost (nanotron's `build_model`): blocks go to a stage until its
share of the cost is reached, the head counting as the layers it is worth, so that the first stage gets more layers than
the last.
Schedules are 1F1B (Megatron-LM, arXiv 2104.04473, 2.2): the first stage holds as many micro-batches as there are
stages, the last one; interleaved schedules hold more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfmodel.topology import Floats
from perfmodel.workload import Workload


@dataclass(frozen=True)
class Stage:
    """layers: of the stage.  micro_batches: whose activations it holds at once.  has_head: 1 where the loss is here.

    vocabulary: parameters of embedding and head on the stage, before a tensor axis shards them.
    """

    layers: Floats
    micro_batches: Floats
    has_head: Floats
    vocabulary: Floats


def first_stage(w: Workload) -> Stage:
    stages, layers = w.mesh.pipeline, w.model.layers
    virtual = _virtual(w)
    held = stages + np.where(virtual > 1, (stages - 1.0) / virtual, 0.0)
    alone = stages <= 1
    own = np.where(w.training.balanced_stages > 0, np.minimum(layers, _blocks(w, 1.0)), layers / stages)
    return Stage(
        layers=np.where(alone, layers, own),
        micro_batches=np.minimum(held, w.training.micro_batches),
        has_head=np.where(alone, 1.0, 0.0),
        vocabulary=np.where(alone, w.model.params_vocabulary, w.model.d_model * w.model.vocab),
    )


def last_stage(w: Workload) -> Stage:
    """The same as the first where there is one stage."""
    stages, layers = w.mesh.pipeline, w.model.layers
    virtual = _virtual(w)
    held = (stages * (virtual - 1.0) + 1.0) / virtual
    alone = stages <= 1
    own = np.where(w.training.balanced_stages > 0, np.maximum(0.0, layers - _blocks(w, stages - 1.0)), layers / stages)
    return Stage(
        layers=np.where(alone, layers, own),
        micro_batches=np.minimum(held, w.training.micro_batches),
        has_head=np.ones_like(alone, dtype=np.float64),
        vocabulary=np.where(alone, w.model.params_vocabulary, w.model.d_model * w.model.vocab),
    )


def head_layers(w: Workload) -> Floats:
    """How many layers the head is worth, by parameters."""
    return w.model.d_model * w.model.vocab * w.model.layers / (w.model.params_dense + w.model.params_experts)


def has_too_few_micro_batches(w: Workload) -> npt.NDArray[np.bool_]:
    """nanotron's 1F1B engine asserts at least as many micro-batches as stages less one."""
    mask: npt.NDArray[np.bool_] = (w.training.balanced_stages > 0) & (w.training.micro_batches < w.mesh.pipeline - 1.0)
    return mask


def has_empty_stage(w: Workload) -> npt.NDArray[np.bool_]:
    """Shared out by cost, a head worth three stages or more leaves the last stages without a block: head, cast and loss
    take one each."""
    stages, head = w.mesh.pipeline, head_layers(w)
    balanced = (w.training.balanced_stages > 0) & (stages > 1)
    mask: npt.NDArray[np.bool_] = balanced & (stages * head >= 3.0 * (w.model.layers + head))
    return mask


def _virtual(w: Workload) -> Floats:
    return np.where(w.mesh.pipeline > 1, w.training.virtual_stages, 1.0)


def _blocks(w: Workload, stages: Floats | float) -> Floats:
    """Layers on the first `stages` stages: as many as reach their share of the cost, norms not counted."""
    share = (w.model.layers + head_layers(w)) * stages / w.mesh.pipeline
    return np.ceil(share - 1e-9)
