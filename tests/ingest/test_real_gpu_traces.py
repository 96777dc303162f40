"""Traces that others recorded: read, and equal to what an oracle without our code computes from the same file."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from evaluation import trace_oracle
from experiments.ingest import read_profile

pytestmark = pytest.mark.slow

SHARED = Path(__file__).resolve().parents[3] / "shared" / "profiles" / "kineto"
OTHERS = Path("/work/real")
TRACES = [*SHARED.glob("*.json.gz"), *(OTHERS / "nsys").rglob("*_2gpu_*.sqlite")]
TRACES += [
    *(OTHERS / "tracelens").rglob("eager_trace.json.gz"),
    *(OTHERS / "tracelens").rglob("gpu_only_trace.json.gz"),
]
TRACES += [*(OTHERS / "hta").rglob("nccl_data.json.gz"), *(OTHERS / "hta").rglob("sampled_rank-1.json.gz")]


@pytest.mark.parametrize("path", TRACES or [pytest.param(None, marks=pytest.mark.skip("no recorded traces here"))],
                         ids=lambda path: path.name if path else "none")  # fmt: skip
def test_a_recorded_trace_says_what_the_oracle_says(path: Path) -> None:
    profile = read_profile([path])
    said = (trace_oracle.nsight if path.suffix == ".sqlite" else trace_oracle.kineto)(path)
    assert profile.device.core_count == len(said)
    assert profile.kpis["duty_cycle"] == pytest.approx(fmean(device.busy for device in said), abs=1e-3)
    assert profile.kpis["communication"] == pytest.approx(fmean(device.communication for device in said), abs=1e-3)
    if said[0].step_s is None:
        assert profile.step_time_s is None
        assert profile.not_measured["step_time"]
        return
    assert len(profile.steps) == said[0].steps
    assert profile.step_time_s == pytest.approx(said[0].step_s, rel=1e-4)
    assert profile.cores[0].exposed_s == pytest.approx(said[0].exposed * said[0].step_s, abs=1e-3 * said[0].step_s)
    by_kernel: dict[str, float] = {}
    for op in profile.ops:
        by_kernel[op.name] = op.time_share
    name, share = said[0].kernels[0]
    same = [value for op, value in by_kernel.items() if name.partition("(")[0].rpartition("::")[2][:20] in op]
    assert max(same) <= share + 1e-3
    assert sum(same) >= share - 1e-3


def test_every_recorded_trace_with_kernels_of_nccl_has_communication() -> None:
    """The names changed from ncclKernel to ncclDevKernel in 2.18; a reader of the old ones finds nothing."""
    if not SHARED.exists():
        pytest.skip("no recorded traces here")
    profile = read_profile([SHARED / "resnet_act_checkpoint.json.gz"])
    assert profile.kpis["communication"] == pytest.approx(0.835, abs=0.001)
    assert {op.group_name for op in profile.ops if op.category == "all-reduce"} == {"default_pg"}
    assert {op.op_name.partition("/")[0] for op in profile.ops} >= {"forward", "backward", "recompute", "optimizer"}
