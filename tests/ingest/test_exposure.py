"""Exposure of single collectives and the spread of ops over cores, from intervals written down by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.ingest import read_profile
from experiments.ingest.exposure import exposure
from experiments.ingest.in_flight import InFlight
from experiments.ingest.intervals import IntervalUnion
from experiments.ingest.timeline import read_core
from experiments.xplane import XSpace
from tests.ingest.conftest import Save
from tests.ingest.xspaces import OpSpec, PlaneWriter, tpu_xspace

PAIR = "%all-gather-done.1 = f32[8]{0} all-gather-done(f32[8]{0} %all-gather-start.1)"
#: In a step of 100 µs: a gather in flight from 10 to 60, of which a product hides 12 to 42; then a plain all-reduce.
OPS = (
    OpSpec("fusion.1", "convolution fusion", 0, 10),
    OpSpec("all-gather-start.1", "all-gather-start", 10, 2),
    OpSpec("fusion.2", "convolution fusion", 12, 30),
    OpSpec("all-gather-done.1", "all-gather-done", 42, 18, hlo=PAIR),
    OpSpec("all-reduce.3", "all-reduce", 60, 20),
)


def test_exposure_of_single_collectives(save: Save) -> None:
    profile = read_profile([save(space=tpu_xspace(OPS, cores=range(2), steps=3))])
    ops = {op.name: op for op in profile.ops}
    runs = 2 * 3
    gather, reduce = ops["all-gather-done.1"], ops["all-reduce.3"]
    assert gather.in_flight_s == pytest.approx(runs * 50e-6)
    assert gather.exposed_s == pytest.approx(runs * 20e-6)  # two µs of starting, eighteen of waiting
    assert (reduce.in_flight_s, reduce.exposed_s) == pytest.approx((runs * 20e-6, runs * 20e-6))
    assert ops["all-gather-start.1"].in_flight_s is None and ops["fusion.1"].exposed_s is None
    core = profile.cores[0]
    assert core.exposed_s == pytest.approx(40e-6) and core.collective_s == pytest.approx(70e-6)
    told = sum(op.exposed_s or 0.0 for op in profile.ops)
    assert told == pytest.approx(sum(c.exposed_s or 0.0 for c in profile.cores) * 3)


def test_spread_over_cores_and_strips(save: Save) -> None:
    profile = read_profile([save(space=tpu_xspace(OPS, cores=range(3), steps=2, slow_core=1))])
    product = next(op for op in profile.ops if op.name == "fusion.2")
    assert product.core_count == 3 and product.slowest_core.endswith("TPU:1")
    assert (product.core_max_s, product.core_min_s) == pytest.approx((2 * 60e-6, 2 * 30e-6))
    strip = profile.timeline
    assert strip.cores == ("TPU:0", "TPU:1", "TPU:2") and len(strip.steps) == 2
    assert strip.durations_s[0][0] == pytest.approx(100e-6) and strip.durations_s[1][0] == pytest.approx(200e-6)
    for row, durations in enumerate(strip.durations_s):
        for column, duration in enumerate(durations):
            assert sum(part[row][column] for part in strip.parts_s.values()) == pytest.approx(duration)
    assert strip.parts_s["collective"][0][0] == pytest.approx(40e-6)


def test_strips_are_bounded(save: Save) -> None:
    ops = (OpSpec("fusion.1", "loop fusion", 0, 50),)
    strip = read_profile([save(space=tpu_xspace(ops, cores=range(40), steps=60, slow_core=17))]).timeline
    assert strip.cores_total == 40 and strip.steps_total == 60
    assert len(strip.cores) * len(strip.steps) <= 1024 and "TPU:17" in strip.cores
    assert all(len(row) == len(strip.steps) for row in strip.durations_s)


def test_kernels_of_a_gpu_carry_the_names_of_their_ops() -> None:
    """One NCCL kernel runs for two all-reduces, on a stream beside the products; the second is half hidden."""
    writer = PlaneWriter(XSpace().planes.add())
    plane = writer.plane
    plane.name = "/device:GPU:0"
    product, reduce = writer.event_id("gemm_kernel"), writer.event_id("ncclDevKernel_AllReduce_Sum_bf16_RING_LL")
    writer.event("Stream #7(Compute)", product, 0, 10)
    writer.event("Stream #7(Compute)", product, 20, 10)
    for op, start in (("all-reduce.1", 10), ("all-reduce.2", 25)):
        kernel = writer.event("Stream #9(Compute)", reduce, start, 10)
        writer.set_stat(kernel.stats, "hlo_op", op)
        writer.set_stat(kernel.stats, "program_id", 17)
    core = read_core(plane, "host")
    assert core is not None
    first, second = (core.op_times["17", name] for name in ("all-reduce.1", "all-reduce.2"))
    assert (first.in_flight_s, first.exposed_s) == pytest.approx((10e-6, 10e-6))
    assert (second.in_flight_s, second.exposed_s) == pytest.approx((10e-6, 5e-6))
    assert core.exposed_s == pytest.approx(15e-6)


INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=6)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(INTERVALS, INTERVALS), min_size=1, max_size=4), INTERVALS, st.integers(0, 20), st.integers(1, 40)
)
def test_shares_of_exposure_sum_to_the_whole(
    collectives: list[tuple[list[tuple[int, int]], list[tuple[int, int]]]],
    others: list[tuple[int, int]],
    begin: int,
    length: int,
) -> None:
    """Counted point by point: a moment belongs to whose op runs, else to all in flight."""

    def arrays(items: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
        table = np.array(items, np.int64).reshape(-1, 2)
        return table[:, 0], table[:, 0] + table[:, 1]

    def points(items: list[tuple[int, int]]) -> set[int]:
        return {t for start, duration in items for t in range(start, start + duration)}

    own = [points(mine) for mine, _ in collectives]
    flown = [points(mine) | points(more) for mine, more in collectives]
    window = set(range(begin, begin + length))
    expected = [0.0] * len(collectives)
    for t in window - points(others):
        here = [i for i, mine in enumerate(own) if t in mine] or [i for i, mine in enumerate(flown) if t in mine]
        for i in here:
            expected[i] += 1.0 / len(here)
    running = InFlight.of([(i, *arrays(mine)) for i, (mine, _) in enumerate(collectives)])
    flights = InFlight.of([(i, *arrays(mine + more)) for i, (mine, more) in enumerate(collectives)])
    bounds = IntervalUnion(np.array([begin]), np.array([begin + length]))
    found = exposure(running, flights, IntervalUnion.of(*arrays(others)), bounds)
    for i, mine in enumerate(flown):
        in_flight, exposed = found.get(i, (0.0, 0.0))
        assert in_flight == pytest.approx(len(mine & window))
        assert exposed == pytest.approx(expected[i])
