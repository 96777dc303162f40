"""The reference step trains the same model on every mesh, and holds its weights where the configuration says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from math import log, prod
from pathlib import Path
from typing import Any

import pytest

from perfmodel import accounting
from perfmodel.catalogue import get_model, model_names
from reference_step.sharded_arrays import weight_arrays
from tests.xla import COMPILED_QUICKLY

ROOT = Path(__file__).resolve().parents[2]
DENSE = {"layers": 3, "d_model": 64, "d_ff": 128, "heads": 8, "kv_heads": 4, "head_dim": 8, "vocab": 128}
MIXTURE = DENSE | {
    "layers": 3, "experts": 4, "experts_per_token": 2, "d_ff_expert": 32, "shared_experts": 1, "first_dense_layers": 1,
    "moe_layer_step": 2,
}  # fmt: skip
LATENT = {key: value for key, value in DENSE.items() if key not in ("kv_heads", "head_dim")} | {
    "attention": "mla", "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
    "v_head_dim": 8, "mlp": "plain", "tied_embeddings": True, "sliding_window": 8, "sliding_window_every": 3,
}  # fmt: skip
#: No token is dropped: every expert has room for all of them.
DROPLESS = {"capacity_factor": 2.0}


def case(
    mesh: dict[str, int], model: dict[str, Any] = DENSE, *, slices: int = 1, dcn: dict[str, int] | None = None,
    options: dict[str, Any] | None = None, steps: int = 3, **training: Any,
) -> dict[str, Any]:  # fmt: skip
    return {
        "config": {
            "hardware": {"chip": "v5e", "topology": [1, prod(mesh.values())], "slices": slices},
            "mesh": {"ici": mesh, "dcn": dcn or {}},
            "model": model,
            "training": {"global_batch": 8, "seq_len": 32, "precision": "fp32", **training},
        },
        "options": options or {},
        "steps": steps,
    }


def run(cases: dict[str, dict[str, Any]]) -> dict[str, Any]:
    environment = {
        **os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT),
        "XLA_FLAGS": f"{COMPILED_QUICKLY} --xla_force_host_platform_device_count=8",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tests.reference_step.program"], input=json.dumps(cases), capture_output=True, text=True,
        env=environment, timeout=1200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


#: Programs to compile are what this file takes its time for: a mesh stands for each way in which the step is written,
#: and two that do not meet share one.
TRAINED: dict[str, tuple[dict[str, Any], dict[str, dict[str, Any]]]] = {
    "dense": (
        case({"data": 1}),
        {
            "data, seq, model": case({"data": 2, "seq": 2, "model": 2}),
            "replica": case({"replica": 2, "fsdp": 2, "tensor": 2}, weight_sharding="zero1", remat="minimal"),
            "slices, micro-batches": case(
                {"data": 2, "model": 2}, slices=2, dcn={"data": 2}, grad_accum=2, weight_sharding="none", remat="none"
            ),
        },
    ),
    "mixture": (
        case({"data": 1}, MIXTURE, options=DROPLESS),
        {
            "expert": case({"data": 2, "expert": 2, "model": 2}, MIXTURE, options=DROPLESS),
            "tensor": case({"seq": 2, "model": 4}, MIXTURE, options=DROPLESS, remat="minimal"),
        },
    ),
    # The window lies over queries and keys of either attention.
    "latent attention within a window": (
        case({"data": 1}, LATENT), {"latent": case({"data": 2, "seq": 2, "model": 2}, LATENT, remat="none")},
    ),
}  # fmt: skip


#: Said without compiling anything.
PLACED = {
    name: case({"data": 2, "seq": 2, "model": 2}, weight_sharding=name, steps=0) for name in ("zero1", "none")
}  # fmt: skip
REFUSED = {
    "pipeline": case({"pipeline": 2, "data": 2}),
    "heads": case({"model": 8}, DENSE | {"kv_heads": 8, "heads": 12 * 8, "vocab": 100}),
    "optimizer": case({"data": 2}, optimizer="lion"),
    "batch": case({"data": 3}),
    "precision": case({"data": 2}, precision="fp8", steps=0),
}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What one process makes of all cases, since each would import JAX anew."""
    trained = {f"{model}: {name}": each for model, (alone, others) in TRAINED.items()
               for name, each in ({"alone": alone} | others).items()}  # fmt: skip
    return run(trained | PLACED | REFUSED)


@pytest.mark.slow
@pytest.mark.parametrize("model", TRAINED)
def test_every_mesh_trains_the_same_model(model: str, found: dict[str, Any]) -> None:
    alone, *others = (found[f"{model}: {name}"] for name in ("alone", *TRAINED[model][1]))
    losses = alone["losses"]
    assert losses[0] == pytest.approx(log(128), rel=0.3)  # an untrained model guesses among 128 tokens
    assert losses == sorted(losses, reverse=True)
    for name, other in zip(TRAINED[model][1], others, strict=True):
        assert other["losses"] == pytest.approx(losses, abs=2e-5), name
        assert other["parameters"] == other["counted"]


@pytest.mark.slow
def test_weights_and_optimizer_lie_where_the_configuration_says(found: dict[str, Any]) -> None:
    """What is said of arrays without making them, and where those of trained steps do lie."""
    fsdp, expert = found["dense: data, seq, model"], found["mixture: expert"]
    shared = ["data", "seq"]
    assert fsdp["specs"]["params"]["wq"] == [[], shared, ["model"], []]
    assert fsdp["specs"]["mean"] == fsdp["specs"]["params"]
    assert fsdp["held"]["w_down"] == [3, 64, 16] and fsdp["held"]["embedding"] == [64, 16]
    assert found["zero1"]["specs"]["params"]["wq"] == [[], [], ["model"], []]
    assert found["zero1"]["specs"]["mean"] == fsdp["specs"]["mean"]
    assert found["none"]["specs"]["mean"] == found["zero1"]["specs"]["params"] == found["none"]["specs"]["params"]
    experts = expert["specs"]["params"]
    assert experts["expert_up"] == [[], ["expert"], ["data"], ["model"]]
    assert experts["wo"] == [[], ["model"], [], ["data", "expert"]]
    assert expert["held"]["expert_up"] == [1, 2, 32, 16]


@pytest.mark.slow
def test_what_cannot_be_built_is_said(found: dict[str, Any]) -> None:
    assert "pipeline" in found["pipeline"]["unsupported"]
    assert "vocab 100 is not divisible by 8 tensor shards" in found["heads"]["unsupported"]
    assert "not lion" in found["optimizer"]["unsupported"]
    assert "8 sequences is not divisible by 3" in found["batch"]["unsupported"]
    assert "fp8" in found["precision"]["notes"][0]


@pytest.mark.parametrize("name", model_names())
def test_the_weights_of_every_catalogue_model_are_those_the_performance_model_counts(name: str) -> None:
    shape = get_model(name)
    assert sum(prod(array.shape) for array in weight_arrays(shape)) == accounting.parameters(shape).total
