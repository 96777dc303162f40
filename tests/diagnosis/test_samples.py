"""Profiles as files, through XProf: the shipped ones, and a real one of GPUs where it is at hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import formatting
from asapweb.cli import main
from diagnosis.analyzer import diagnose
from diagnosis.report import Diagnosis
from evaluation.steps import paper
from evaluation.steps.shipped import sample
from evaluation.steps.variants import perturbed
from experiments.ingest import read_profile
from experiments.samples.samples import SAMPLES as SHIPPED
from experiments.step_profile import StepProfile
from perfmodel.config import ExperimentConfig
from tests.diagnosis.build import find, rules

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "experiments" / "samples"
REAL = Path("/work/shared/profiles/934987a2fc2f.xplane.pb")


def reconstruction(number: int) -> tuple[StepProfile, ExperimentConfig]:
    return sample(f"asap-experiment-{number}")


def diagnosed(number: int) -> Diagnosis:
    return diagnose(*reconstruction(number))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_reconstructions(number: int) -> None:
    diagnosis = diagnosed(number)
    assert diagnosis.bottleneck.primary == paper.BOTTLENECK[number]
    assert diagnosis.kpis["step_time_s"] == pytest.approx(paper.STEP_S[number], rel=1e-3)
    assert diagnosis.kpis["duty_cycle"] == pytest.approx(paper.DUTY[number], abs=1e-3)
    assert sum(diagnosis.breakdown_s.values()) == pytest.approx(paper.STEP_S[number], rel=1e-3)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_reconstructions_under_noise(number: int) -> None:
    profile, config = reconstruction(number)
    for seed in range(20):
        assert diagnose(perturbed(profile, seed), config).bottleneck.primary == paper.BOTTLENECK[number]


def test_experiment_1_observations() -> None:
    diagnosis = diagnosed(1)
    assert {"opaque_custom_calls", "async_collective_waits"} <= rules(diagnosis)
    assert "point_to_point_transpose" in find(diagnosis, "opaque_custom_calls").insight


def test_experiment_2_observations() -> None:
    diagnosis = diagnosed(2)
    assert "tensor axis" in find(diagnosis, "whole_weight_matmuls").action
    assert {"async_collective_waits", "gradient_reduction"} <= rules(diagnosis)
    assert any("duty cycle" in text for text in diagnosis.bottleneck.contradictions)


def test_experiment_3_observations() -> None:
    diagnosis = diagnosed(3)
    assert find(diagnosis, "tensor_parallel_communication").mesh_axis == "model"
    assert "the model axis" in diagnosis.bottleneck.statement
    axes = {op.name: op.mesh_axis for op in diagnosis.ops[:5]}
    assert axes["all-reduce.1"] == "model" and axes["collective-permute.1"] == "seq"


@pytest.mark.parametrize("name", ["cpu-data8", "cpu-data2-seq2-model2"])
def test_cpu_recording(name: str) -> None:
    """Real timings without a roofline: axes and shares are known, bandwidth and MFU are not."""
    profile, config = sample(name)
    diagnosis = diagnose(profile, config)
    talking = [op for op in diagnosis.ops if op.collective and op.collective != "collective"]
    assert talking and sum(op.mesh_axis is not None for op in talking) >= 0.9 * len(talking)
    assert {
        axis for op in talking for axis in ([op.mesh_axis] if isinstance(op.mesh_axis, str) else op.mesh_axis or ())
    } <= {axis for axis, size in config.mesh.ici if size > 1}
    assert diagnosis.kpis["mfu"] is None and diagnosis.kpis["hbm_utilization"] is None
    assert all(op.possible_bytes_per_s is None for op in talking)
    assert diagnosis.bottleneck.confidence <= 0.75
    assert "roofline" in find(diagnosis, "record_more").insight


@pytest.mark.skipif(not REAL.exists(), reason="the recorded GPU profile is not at hand")
def test_real_gpu_profile() -> None:
    """Attention kernels without FLOPs take half of the time: compute by what they are, and said so."""
    diagnosis = diagnose(read_profile([REAL]))
    assert diagnosis.kpis["step_time_s"] == pytest.approx(2.59e-3, rel=0.01)  # from executions of the program
    assert diagnosis.bottleneck.primary == "compute" and diagnosis.bottleneck.confidence < 0.8
    assert diagnosis.breakdown_share["compute"] > 0.5 and "no FLOPs were recorded" in diagnosis.bottleneck.statement
    assert diagnosis.ops[0].name == "te_fused_attn_backward_ffi.18"
    assert diagnosis.ops[0].module == "attention"
    assert "opaque_custom_calls" in rules(diagnosis)
    assert "StepTraceAnnotation" in find(diagnosis, "record_more").action


@pytest.mark.skipif(not REAL.exists(), reason="the recorded GPU profile is not at hand")
def test_what_one_device_of_eight_cannot_tell_is_not_measured() -> None:
    diagnosis = diagnose(read_profile([REAL]))
    for key in ("communication", "communication_ops"):
        assert diagnosis.kpis[key] is None and diagnosis.not_measured[key]
    assert "7 of 8 devices" in diagnosis.not_measured["communication"]
    assert any(
        "only 1 of 8 devices recorded any op; times and rates are of that one" in text for text in diagnosis.warnings
    )
    assert "not measured" in find(diagnosis, "idle_gaps").insight
    assert "already fused" in find(diagnosis, "attention_dominates").action


def test_parts_of_communication_do_not_exceed_the_whole() -> None:
    """Both are exposed time; exposed and raw self time of the same ops differ where others hide them."""
    for name in ("cpu-data2-seq2-model2", "asap-experiment-3"):
        found = find(diagnose(*sample(name)), "exposed_communication")
        total, *parts = (item.value or 0.0 for item in found.evidence if "collectives" in item.label)
        assert len(parts) > 1 and 0.99 * total < sum(parts) < 1.001 * total  # the four largest are named
    assert "nearly all of it on the data axis" in diagnose(*sample("cpu-data8")).bottleneck.statement


def test_the_verdict_of_experiment_3_is_that_of_its_breakdown() -> None:
    """The findings together promise what the verdict says, and no more."""
    diagnosis = diagnosed(3)
    talking = sum(value for bar, value in diagnosis.breakdown_share.items() if bar.startswith("ici"))
    assert talking > 0.4 > diagnosis.breakdown_share["hbm"]
    assert find(diagnosis, "exposed_communication").saving_share == pytest.approx(talking, rel=0.01)
    assert "41.0 % of the step" in diagnosis.bottleneck.statement


def test_idle_time_below_the_overviews_last_digit_is_kept() -> None:
    diagnosis = diagnosed(3)
    assert diagnosis.kpis["idle"] == pytest.approx(diagnosis.breakdown_share["idle"], rel=0.01)


def test_gradient_reductions_name_the_axes_of_the_matrix() -> None:
    found = find(diagnosed(2), "gradient_reduction")
    assert "over the data and seq axes" in found.insight and "data+seq" in {
        row.axis for row in diagnosed(2).collectives
    }


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-c", "import sys; from asapweb.cli import main; sys.exit(main())"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([*start, *arguments], capture_output=True, text=True, cwd=ROOT, env=environment, timeout=240)


def test_command_line_contract() -> None:
    folder = SAMPLES / "asap-experiment-3"
    files = [str(path) for path in sorted(folder.glob("*.xplane.pb.gz"))]
    done = command("diagnose", *files, "--config", str(folder / "config.json"), "--top", "7", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert {
        "step_time_s",
        "duty_cycle",
        "idle",
        "communication",
        "input",
        "hbm_utilization",
        "flops_utilization",
        "mfu",
        "goodput",
    } <= set(answer["kpis"])
    assert len(answer["top_ops"]) == 7
    assert {"name", "category", "time_share", "bound_by", "mesh_axis", "roofline_efficiency"} <= set(
        answer["top_ops"][0]
    )
    shares = [op["time_share"] for op in answer["top_ops"]]
    assert shares == sorted(shares, reverse=True)
    assert answer["bottleneck"]["primary"] == "communication" and answer["bottleneck"]["evidence"]
    assert 0 <= answer["bottleneck"]["confidence"] <= 1
    for finding in answer["findings"]:
        assert (
            finding["title"] and finding["insight"] and finding["action"] and finding["impact"] and finding["evidence"]
        )


@pytest.mark.parametrize("case", ["no such file", "text", "bad mesh"])
def test_command_line_errors(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = SAMPLES / "asap-experiment-3"
    good = str(next(folder.glob("*.xplane.pb.gz")))
    arguments = ["diagnose", str(tmp_path / "absent.xplane.pb")]
    if case == "text":
        (tmp_path / "a.xplane.pb").write_text("hello")
        arguments = ["diagnose", str(tmp_path / "a.xplane.pb")]
    elif case == "bad mesh":
        raw = json.loads((folder / "config.json").read_text())
        raw["mesh"]["ici"]["model"] = 3
        (tmp_path / "config.json").write_text(json.dumps(raw))
        arguments = ["diagnose", good, "--config", str(tmp_path / "config.json")]
    assert main([*arguments, "--json"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.strip().splitlines()) == 1 and len(said.err.strip()) <= 300


@pytest.mark.parametrize("name", [item.key for item in SHIPPED])
def test_exposed_communication_is_one_number(name: str) -> None:
    """The KPI, the breakdown and the statement have the same share."""
    diagnosis = diagnose(*sample(name))
    parts = diagnosis.breakdown_s
    links = sum(value for key, value in parts.items() if key.startswith(("ici", "dcn")))
    exposed = diagnosis.kpis["communication_exposed"]
    assert exposed is not None and links / sum(parts.values()) == pytest.approx(exposed, rel=1e-6)
    stated = [item.text for item in diagnosis.bottleneck.evidence if item.label == "exposed communication"]
    assert set(stated) <= {str(formatting.share(exposed))}
