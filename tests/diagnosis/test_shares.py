"""Shares: of one thing on one page, and of ops that ran beside each other."""

from __future__ import annotations

import pytest

from diagnosis.analyzer import diagnose
from experiments import bars
from tests.diagnosis.build import collective, config, matmul, profile


def test_time_and_share_of_an_op_agree_where_streams_overlap() -> None:
    """Compute for 0.9 s and a collective for 0.6 s of a step of 1 s: half a second is both."""
    ops = (matmul("fusion.1", 0.9), collective("all-reduce", 0.6, "replica_groups=[1,8]<=[8]"))
    found = diagnose(profile(*ops), config({"data": 8}))
    for op in found.ops:
        assert op.time_s == pytest.approx(op.time_share * 1.0)
    assert sum(op.time_share for op in found.ops) == pytest.approx(1.0)
    assert any("count overlapping time once" in line for lines in found.report.values() for line in lines)
    apart = diagnose(profile(matmul("fusion.1", 0.4), ops[1]), config({"data": 8}))
    assert not any("overlapping time" in line for lines in apart.report.values() for line in lines)


def test_links_are_ici_on_tpus_only() -> None:
    assert bars.term("ici:model", 1.0).label == "Collectives on model"
    assert bars.term("ici", 1.0).label == "Collectives"
