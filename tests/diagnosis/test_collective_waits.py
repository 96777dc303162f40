"""What findings say of collectives: how far they are hidden, what moves, which links carry it, which flags are on."""

from __future__ import annotations

from typing import Any

import pytest

from diagnosis.analyzer import diagnose
from tests.diagnosis.build import CORES, STEPS, collective, config, find, matmul, profile, rules

_ALL = "replica_groups=[1,16]<=[16]"
_ON_SEQ = "replica_groups=[4,4]<=[16]"
_BACK = "jit(step)/transpose(jvp(loss))/layer/attention/psum"


def _done(hidden: float, **more: Any) -> Any:
    """A wait of 0.2 s per step, the exposed part of a flight of which `hidden` is hidden."""
    exposed = 0.2 * CORES * STEPS
    return collective(
        "all-gather-done", 0.2, _ALL, name="all-gather-done.1", exposed_s=exposed,
        in_flight_s=exposed / (1.0 - hidden), **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("hidden", "said", "unsaid"),
    [(0.0, "each is awaited as soon as it starts", "start early"), (0.9, "start early", "where it starts")],
)
def test_what_is_said_of_a_wait_follows_from_how_much_is_hidden(hidden: float, said: str, unsaid: str) -> None:
    found = find(diagnose(profile(matmul("fusion.1", 0.8), _done(hidden)), config({"data": 16})),
                 "async_collective_waits")  # fmt: skip
    assert said in found.insight and unsaid not in found.insight


def test_gradients_of_keys_and_values_are_no_exchange() -> None:
    mesh = config({"data": 4, "seq": 4}, (4, 4))
    again = collective("all-reduce", 0.3, _ON_SEQ, op_name=_BACK)
    found = find(diagnose(profile(matmul("fusion.1", 0.7), again), mesh), "sequence_parallel_exposed")
    assert "Double-buffer" not in found.action and "half the bytes" in found.action
    ring = collective("all-gather", 0.3, _ON_SEQ, op_name="jit(step)/jvp(loss)/layer/attention/all_gather")
    found = find(diagnose(profile(matmul("fusion.1", 0.7), ring), mesh), "sequence_parallel_exposed")
    assert "Double-buffer" in found.action


def test_one_link_has_one_bandwidth() -> None:
    """Four chips in a row of v5e: each sends 3 ÷ 4 of the array over 45 GB/s; on a ring over twice that, 67.5 GB/s of
    what it sends.  What a finding calls the links' bandwidth is what others hold the achieved one against."""
    line = config({"data": 64, "model": 4}, (16, 16))
    gather = collective("all-gather", 0.4, "replica_groups=[64,4]<=[256]", operand="bf16[256,4096]")
    found = diagnose(profile(matmul("fusion.1", 0.6), gather), line)
    rates = {row.label: row.value for row in find(found, "open_rings").evidence}
    assert rates["link bandwidth per chip of axis model"] == pytest.approx(45e9)
    assert rates["of a ring with wraparound"] == pytest.approx(67.5e9)
    assert found.ops[1].possible_bytes_per_s == pytest.approx(45e9)
    assert "whole" not in find(found, "open_rings").action  # a dimension of 16 would quadruple the axis


def test_exposure_without_a_step_is_of_device_time() -> None:
    waits = collective("all-reduce", 0.2, _ALL, exposed_s=0.15 * CORES * STEPS, in_flight_s=0.2 * CORES * STEPS)
    kpis = diagnose(profile(matmul("fusion.1", 0.8), waits, step_s=None), config({"data": 16})).kpis
    assert kpis["communication_exposed"] == pytest.approx(0.15)
    assert kpis["communication_overlapped"] == pytest.approx(0.05)


def test_no_exposure_where_communication_is_unknown() -> None:
    from experiments.step_profile import Core

    cores = [Core("GPU:0", "host", collective_s=0.0, exposed_s=0.0)]
    made = profile(matmul("fusion.1", 1.0), cores=cores, kpis={"duty_cycle": 1.0, "communication": None},
                   not_measured={"communication": "7 of 8 devices recorded no ops."})  # fmt: skip
    found = diagnose(made, config({"data": 8}))
    assert found.kpis["communication"] is None and found.kpis["communication_exposed"] is None
    assert found.not_measured["communication_exposed"] == "7 of 8 devices recorded no ops."
    assert "gradient_reduction" not in rules(found)
