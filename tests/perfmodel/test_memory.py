"""Memory per chip against measurements, limits and hand-derived cases."""

import numpy as np
import pytest

from perfmodel import accounting
from perfmodel.memory import per_chip
from perfmodel.step_time import predict
from perfmodel.workload import from_config
from tests.perfmodel.cases import LLAMA3_8B, a100, tpu

#: OptiCo (arXiv), Figure 5: expert tuning of Llama3-8B on eight A100 80 GB, fp16, sequence 8192.
#: (tensor, stages, global batch, micro-batch, TFLOP/s per GPU, highest memory in MiB); None where it ran out of memory.
OPTICO = [
    (1, 1, 512, 1, None, None),
    (1, 2, 512, 1, 210.86, 77291.52),
    (1, 4, 512, 1, 187.81, 73717.76),
    (1, 8, 512, 1, None, None),
    (2, 1, 512, 1, 209.13, 57026.56),
    (2, 2, 512, 1, 198.04, 54865.92),
    (2, 4, 512, 1, 177.71, 44533.76),
    (4, 1, 512, 1, 186.98, 39526.4),
    (4, 2, 512, 1, 182.6, 36894.72),
    (8, 1, 512, 1, 152.44, 29962.24),
    (2, 1, 256, 1, 198.15, 66191.36),
    (2, 1, 1024, 1, 208.5, 57128.96),
    (1, 1, 512, 1, None, None),
    (2, 1, 512, 2, None, None),
    (8, 1, 512, 1, 152.44, 29962.24),
    (8, 1, 512, 2, 165.09, 40744.96),
]


def total_mib(row):
    return float(per_chip(from_config(a100(*row[:4]))).total[0]) / 2**20


def test_optico_peaks_within_ten_percent():
    """Two of twelve rows are further off: one whose halved batch took 9 GB more, which nothing in a step explains, and
    one of four stages."""
    errors = [abs(total_mib(row) / row[5] - 1) for row in OPTICO if row[5]]
    assert np.median(errors) < 0.05
    assert sum(error <= 0.1 for error in errors) >= len(errors) - 2


def test_optico_out_of_memory_is_recognised_with_at_most_one_false_alarm():
    fits = {row: predict(a100(*row[:4])).fits for row in OPTICO}
    assert not any(fits[row] for row in OPTICO if row[5] is None)
    assert sum(not fits[row] for row in OPTICO if row[5]) <= 1


def test_states_of_a_replicated_gpu_are_18_bytes_per_parameter():
    """Megatron in fp16: weights 2, gradients 4, master copy and two moments 12."""
    used = per_chip(from_config(a100(8, 1)))
    states = float((used.params + used.optimizer + used.gradients)[0])
    assert states == pytest.approx(18 * accounting.parameters(LLAMA3_8B).total / 8, rel=1e-3)


def test_fsdp_divides_the_states_by_all_batch_and_sequence_shards():
    whole = per_chip(from_config(tpu({"data": 512}, weight_sharding="none")))
    sharded = per_chip(from_config(tpu({"data": 64, "seq": 8}, weight_sharding="fsdp")))
    for part in ("params", "optimizer", "gradients"):
        assert getattr(whole, part)[0] == pytest.approx(512 * getattr(sharded, part)[0])


def test_zero1_divides_the_optimizer_only():
    whole = per_chip(from_config(tpu({"data": 512}, weight_sharding="none")))
    first = per_chip(from_config(tpu({"data": 512}, weight_sharding="zero1")))
    assert first.params[0] == whole.params[0]
    assert first.optimizer[0] == pytest.approx(whole.optimizer[0] / 512)


def test_recomputing_more_keeps_less():
    kept = [
        float(per_chip(from_config(tpu(remat=r, batch=4096))).activations[0])
        for r in ("none", "minimal", "full", "offload")
    ]
    assert kept == sorted(kept, reverse=True)
    assert kept[0] > 2 * kept[2]


def test_replica_axis_shards_nothing():
    sharded = per_chip(from_config(tpu({"data": 512})))
    replicated = per_chip(from_config(tpu({"replica": 512})))
    assert replicated.params[0] == pytest.approx(512 * sharded.params[0])
    assert replicated.activations[0] == pytest.approx(sharded.activations[0])


def test_overridden_capacity_decides():
    small = tpu(overrides={"hbm_bytes": 1e9})
    assert predict(small).fits is False
    assert any(v.rule == "memory" for v in predict(small).violations)
    assert predict(tpu(batch=64)).fits is True
