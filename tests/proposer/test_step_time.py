"""Proposals without a profile: from a measured step time, or from the performance model alone, each said so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asapweb.cli import main
from diagnosis.analyzer import diagnose
from experiments.step_profile import STEP_PROFILE
from experiments.without_profile import without_profile
from perfmodel.config import ConfigError, ExperimentConfig
from perfmodel.config_file import parse_config
from perfmodel.prediction import predict
from proposals.candidate import Candidate, candidate
from proposals.constraints import Constraints
from proposals.proposer import Pricer

pytestmark = pytest.mark.slow

TPU: dict[str, Any] = {
    "name": "llama3.1-8b on v6e-16",
    "hardware": {"chip": "v6e", "topology": [4, 4]},
    "mesh": {"ici": {"data": 4, "seq": 1, "model": 4}},
    "model": {"name": "llama3.1-8b"},
    "training": {"global_batch": 32, "seq_len": 8192, "weight_sharding": "fsdp", "remat": "full"},
}
GPU: dict[str, Any] = {
    "hardware": {"chip": "h100", "topology": [8, 8]},
    "mesh": {"ici": {"pipeline": 4, "data": 2, "model": 8}},
    "model": {"name": "llama3-70b"},
    "training": {"global_batch": 128, "seq_len": 4096, "micro_batch": 1},
}
MEASURED = {"step_time_s": 6.0, "peak_memory_bytes": 24e9}


def read(data: dict[str, Any], measured: dict[str, float] | None = None) -> ExperimentConfig:
    return parse_config(data | ({"measured": measured} if measured else {}))[0]


def pricer(config: ExperimentConfig) -> Pricer:
    profile = without_profile(config)
    return Pricer(profile, config, diagnose(profile, config))


def propose(capsys: pytest.CaptureFixture[str], path: Path, *options: str) -> tuple[int, Any, str]:
    code = main(["propose", "--config", str(path), *options, "--json"])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else None, said.err


@pytest.fixture
def written(tmp_path: Path) -> Any:
    def write(data: dict[str, Any]) -> Path:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(data))
        return path

    return write


def test_the_contract_from_a_step_time(written: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, found, _ = propose(capsys, written(TPU | {"measured": MEASURED}))
    assert code == 0 and len(found["proposals"]) == 3
    verdict = found["diagnosis"]
    assert verdict["basis"] == found["basis"] == "step_time"
    assert {key for key, value in verdict["kpis"].items() if value is not None} == {
        "step_time_s", "mfu", "memory_peak_share",
    }  # fmt: skip
    assert verdict["top_ops"] == [] and verdict["kpis"]["step_time_s"] == 6.0
    assert "Predicted, not measured" in verdict["bottleneck"]["statement"]
    assert 0.5 <= verdict["bottleneck"]["confidence"] <= 0.75
    assert {item["origin"] for item in verdict["bottleneck"]["evidence"]} == {"predicted", "measured"}
    assert sum(verdict["breakdown_s"].values()) == pytest.approx(6.0)
    assert found["baseline"]["step_time_s"]["estimate"] == pytest.approx(6.0)
    assert any("only the step time was measured" in note for note in found["notes"])
    for item in found["proposals"]:
        step = item["predicted"]["step_time_s"]
        if item["kind"] != "keep":
            assert step["low80"] < step["estimate"] < step["high80"]


def test_the_contract_from_the_model_alone(written: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, found, _ = propose(capsys, written(TPU))
    assert code == 0 and len(found["proposals"]) == 3
    assert found["diagnosis"]["kpis"]["step_time_s"] is None and found["diagnosis"]["kpis"]["mfu"] is None
    assert found["basis"] == "model" and any("Nothing was measured" in note for note in found["notes"])
    base = found["baseline"]["step_time_s"]
    assert base["low80"] < base["estimate"] < base["high80"]
    assert base["estimate"] == pytest.approx(predict(read(TPU)).step_time_s["estimate"])  # type: ignore[index]
    assert not any("measured:" in line for item in found["proposals"] for line in item["expected_impact"])


@pytest.mark.parametrize(
    "data",
    [
        {key: value for key, value in TPU.items() if key != "model"},
        {key: value for key, value in TPU.items() if key != "model"} | {"measured": MEASURED},
        TPU | {"measured": {"step_time_s": 0.001}},
        TPU | {"measured": {"step_time_s": float(10**9)}},
    ],
)
def test_too_little_or_impossible_is_one_sentence(
    written: Any, capsys: pytest.CaptureFixture[str], data: dict[str, Any]
) -> None:
    code, found, err = propose(capsys, written(data))
    assert (code, found) == (2, None) and err.count("\n") == 1 and len(err) <= 301


def test_an_own_mesh_and_constraints_work_without_a_profile(written: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(TPU | {"measured": MEASURED})
    _, found, _ = propose(capsys, path, "--mesh", "data=16")
    assert found["evaluation"]["predicted"]["step_time_s"]["estimate"] > 0
    _, kept, _ = propose(capsys, path, "--keep-axis", "model", "--keep-remat")
    assert all(item["mesh"]["ici"]["model"] == 4 for item in kept["proposals"])
    assert main(["propose", "--config", str(path)]) == 0
    assert "Predicted, not measured" in capsys.readouterr().out


@pytest.mark.parametrize("data", [TPU, GPU], ids=["tpu", "gpu"])
def test_twice_the_step_time_about_doubles_the_times(data: dict[str, Any]) -> None:
    alone = predict(read(data)).step_time_s
    assert alone is not None
    step = 1.1 * alone["estimate"]
    once, twice = (pricer(read(data, {"step_time_s": step * factor})).search(top=5) for factor in (1.0, 1.0 + 1e-9))
    assert [item.mesh for item in once] == [item.mesh for item in twice]
    own = {"ici": {"data": 16}} if data is TPU else {"ici": {"pipeline": 4, "data": 4, "model": 4}}
    times = []
    for factor in (1.0, 2.0):
        found = pricer(read(data, {"step_time_s": step * factor})).evaluate(Candidate(own)).predicted.step_time_s
        assert found is not None
        times.append(found.estimate)
    # What a longer step most likely waits for is what a candidate may gain; time that nothing explains stays.
    assert 1.3 < times[1] / times[0] < 2.6


def test_a_candidate_was_not_measured() -> None:
    config = read(TPU, MEASURED)
    assert candidate(config, Candidate({"ici": {"data": 16}})).measured is None
    assert candidate(config, Candidate(config.mesh.to_json(), {"remat": "minimal"})).measured is None
    assert candidate(config, Candidate(config.mesh.to_json())).measured == config.measured


def test_a_profile_without_files_survives_its_file() -> None:
    for config in (read(TPU), read(TPU, MEASURED)):
        value = without_profile(config)
        assert STEP_PROFILE.read(json.loads(json.dumps(STEP_PROFILE.write(value)))) == value
        assert value.basis == ("step_time" if config.measured else "model")


def test_the_longer_a_step_takes_than_predicted_the_less_sure_is_where_it_goes() -> None:
    alone = predict(read(GPU)).step_time_s
    assert alone is not None
    sure = []
    for factor in (1.0, 1.5, 4.0):
        config = read(GPU, {"step_time_s": alone["estimate"] * factor})
        found = diagnose(without_profile(config), config)
        sure.append(found.bottleneck.confidence)
        above = [item for item in found.findings if item.rule == "step_above_prediction"]
        assert bool(above) == (factor >= 1.25)
        if above:
            assert above[0].saving_share == pytest.approx(1.0 - 1.0 / factor)
    assert sure[0] > max(sure[1:]) and min(sure) >= 0.5


def test_a_predicted_verdict_is_the_largest_predicted_part() -> None:
    """Batches over slow links are communication-bound; a pipeline with few micro-batches idles in its bubble.  A bubble
    of 3 ÷ (32 + 3) = 8.6 % and what else is idle do not make a step idle whose compute takes most of it."""
    thin = GPU | {"hardware": {"chip": "h100", "topology": [1, 32]}, "mesh": {"ici": {"data": 32}},
                  "model": {"name": "llama3-8b"},
                  "training": {"global_batch": 32, "seq_len": 512, "weight_sharding": "fsdp"}}  # fmt: skip
    deep = GPU | {"mesh": {"ici": {"pipeline": 16, "model": 4}},
                  "training": {"global_batch": 4, "seq_len": 4096, "micro_batch": 1}}  # fmt: skip
    filled = GPU | {"mesh": {"ici": {"pipeline": 4, "data": 2, "model": 8}},
                    "training": {"global_batch": 40, "seq_len": 4096, "micro_batch": 1, "grad_accum": 20}}  # fmt: skip
    for data, expected in ((thin, "communication"), (deep, "idle"), (filled, "compute")):
        config = read(data)
        found = diagnose(without_profile(config), config)
        assert found.bottleneck.primary == expected, found.breakdown_share
        assert found.bottleneck.primary not in ("input", "host")
    assert found.breakdown_share["idle"] > 0.1


@pytest.mark.parametrize("measured", [False, True])
def test_waits_for_kernel_launches_are_no_pipeline_bubble(measured: bool) -> None:
    """Sixteen groups of experts, one short sequence at a time: launching the small kernels takes longer than they run.
    Without pipeline stages there is no bubble."""
    data = {
        "hardware": {"chip": "h100", "topology": [8, 2]},
        "mesh": {"ici": {"expert": 16}},
        "model": {"layers": 48, "d_model": 2048, "d_ff": 4096, "heads": 16, "kv_heads": 16, "head_dim": 128,
                  "vocab": 32000, "experts": 64, "experts_per_token": 4, "d_ff_expert": 1024},
        "training": {"global_batch": 1024, "seq_len": 1024, "micro_batch": 1, "grad_accum": 64},
        "software": {"framework": "megatron"},
    }  # fmt: skip
    config = read(data, {"step_time_s": 25.0} if measured else None)
    found = diagnose(without_profile(config), config)
    assert "idle" not in found.breakdown_s and "host" not in found.breakdown_s
    assert found.breakdown_share["kernel_launches"] > 0.5 and found.bottleneck.primary == "idle"
    assert "kernel launches" in found.bottleneck.statement and "bubble" not in found.bottleneck.statement


def test_constraints_that_leave_nothing_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    bench = pricer(read(TPU, MEASURED))
    with pytest.raises(ConfigError):
        bench.propose(Constraints(fixed={"nothing": 3}))
    assert replace(bench.observed).basis == "step_time"
