"""Sets of flags and policies as proposals: only with what was measured of them."""

from __future__ import annotations

import pytest

from diagnosis.analyzer import diagnose
from perfmodel.catalogue import get_model
from perfmodel.config import ExperimentConfig, Hardware, Measured, Mesh, Training
from proposals.candidate import Candidate
from proposals.constraints import Constraints
from proposals.proposer import Pricer
from proposals.proposer.observed import start


def test_measured_flags_are_proposed_with_their_effect_and_records() -> None:
    setup = ExperimentConfig(
        Hardware("v6e", (2, 4)), Mesh((("fsdp", 8),)), get_model("llama3.1-8b"),
        Training(global_batch=24, seq_len=8192, weight_sharding="fsdp", remat="full"),
        measured=Measured(step_time_s=4.0),
    )  # fmt: skip
    profile = start(setup)
    bench = Pricer(profile, setup, diagnose(profile, setup))
    first = bench.propose().proposals[0]
    assert first.flags["speedup"] == pytest.approx(1.09, abs=0.02) and first.flags["trials"] >= 2
    assert first.predicted.speedup == pytest.approx(first.flags["speedup"]) and first.runs == 1.0
    largest, effect = bench.offers[0]
    with_risk = bench.evaluate(Candidate(setup.mesh.to_json(), {"xla_flags": list(largest)}))
    assert (effect.whole, with_risk.flags["failed"]) == (1, 1)  # a build of MaxText rejects two of them
    assert with_risk.runs == pytest.approx(2 / 3)  # of two recorded and one more that runs, two
    assert "trial-jx-l3-0426-e12" in {citation.key for citation in with_risk.citations}
    assert not any(item.flags for item in bench.propose(Constraints(no_flags=True)).proposals)
    unknown = bench.evaluate(Candidate(setup.mesh.to_json(), {"xla_flags": ["--xla_never_measured=true"]}))
    assert unknown.flags == {} and unknown.predicted.speedup == pytest.approx(1.0)
    policy = bench.evaluate(Candidate(setup.mesh.to_json(), {"remat": "offload"})).policies["remat"]
    assert policy["trials"] >= 3 and 0.9 < policy["measured"] < 1.1
