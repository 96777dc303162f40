"""The published measurements as configurations of ours, each with what was measured.

A row that does not say enough (no batch, no mesh, no shape) is listed with the reason, never guessed.  What NVIDIA's
tables leave out, their configuration scripts say (`settings` of a row; its fields: data/published/README.md).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import gcd, prod
from pathlib import Path
from typing import Any

from perfmodel.catalogue import UnknownModelError, architecture, get_model
from perfmodel.chips import Chip, get_chip
from perfmodel.config import CANONICAL_ROLES, ExperimentConfig, Mesh, ModelShape
from perfmodel.config_file import config_to_json, parse_config
from perfmodel.memory import before_activations

RUNS_FILE = Path(__file__).parent / "data" / "published" / "published_runs.json"


class UnmappedError(Exception):
    """A row that cannot become a configuration; the message is the reason."""


@dataclass(frozen=True)
class PublishedRun:
    """One published run.

    config: as `asap predict` would take it.  step_time_s: measured, or derived from the published tokens/s or TFLOP/s
    (`derived_from` says which).  family: models that share an architecture.  workload: rows of one workload differ in
    mesh and software only.  parallelism: the kinds of axes larger than one, e.g. `fsdp+model`.
    """

    id: str
    config: ExperimentConfig
    step_time_s: float
    derived_from: str
    family: str
    workload: str
    parallelism: str
    row: Mapping[str, Any]

    @property
    def chip(self) -> Chip:
        return get_chip(self.config.hardware.chip)

    @property
    def shape(self) -> ModelShape:
        assert self.config.model is not None
        return self.config.model

    @property
    def mixture(self) -> bool:
        return self.shape.experts > 0

    @property
    def settings(self) -> Mapping[str, Any]:
        """What the configuration script of the release says of this run; empty where none was found."""
        return self.row.get("settings") or {}

    @property
    def configuration(self) -> str:
        """The same text for rows that differ in software only."""
        data = config_to_json(self.config)
        for key in ("name", "notes", "software"):
            data.pop(key, None)
        data["training"].pop("xla_flags")
        return json.dumps(data, sort_keys=True)


@dataclass(frozen=True)
class Published:
    runs: tuple[PublishedRun, ...]
    unmapped: Mapping[str, str]
    """Reason by row id."""


@cache
def load_published() -> Published:
    """All rows of data/published/published_runs.json."""
    runs, unmapped = [], {}
    for row in json.loads(RUNS_FILE.read_text(encoding="utf-8")):
        try:
            runs.append(map_row(row))
        except UnmappedError as reason:
            unmapped[row["id"]] = str(reason)
    return Published(tuple(runs), unmapped)


def map_row(row: Mapping[str, Any]) -> PublishedRun:
    """Raises UnmappedError with the reason."""
    if row["kind"] != "llm-pretrain":
        raise UnmappedError(f"{row['kind']}: not a pre-training step")
    framework = row["framework"]
    megatron = framework.startswith(("Megatron-Bridge", "Megatron-LM"))
    if framework != "MaxText" and not megatron:
        raise UnmappedError("the artifact names a planner and publishes neither batch nor mesh")
    shape = _shape(row)
    data = _megatron(row) if megatron else _maxtext(row)
    data |= {"name": f"{row['id']} {row['model']} on {row['accelerator']}", "model": {"name": shape.name}}
    data["training"] |= {"global_batch": row["global_batch"] or data["training"].get("global_batch")}
    data["training"] |= {"seq_len": row["seq_len"], "optimizer": "adamw", "precision": _precision(row)}
    data["training"]["xla_flags"] = row["xla_flags"] or []
    data["software"] = {"framework": framework} | ({"date": date} if (date := _software_date(row)) else {})
    for key in ("global_batch", "seq_len"):
        if data["training"][key] is None:
            raise UnmappedError(f"{key} is not published")
    config, warnings = parse_config(data)
    assert not warnings, warnings
    if before_activations(config)[1] is False:
        raise UnmappedError(
            "weights, gradients and optimizer state alone exceed the chip's memory on the published mesh"
        )
    step_time_s, derived_from = _step_time(row, shape, config)
    return PublishedRun(
        id=row["id"],
        config=config,
        step_time_s=step_time_s,
        derived_from=derived_from,
        family=architecture(shape),
        workload=_workload(config),
        parallelism=parallelism(config.mesh),
        row=row,
    )


_NAMES = {
    "gpt3-175b": "gpt3-175b",
    "gpt3-175B": "megatron-175b",
    "turing-530B": "megatron-530b",
}


def _shape(row: Mapping[str, Any]) -> ModelShape:
    name = re.sub(r"\s*\(.*\)$", "", row["model"])
    try:
        return get_model(_NAMES.get(name, name))
    except UnknownModelError:
        raise UnmappedError(f"the shape of {row['model']} is not published") from None


def parallelism(mesh: Mesh) -> str:
    """Kinds of axes larger than one, e.g. `fsdp+model`, `data+pipeline`."""
    text = "+".join(kind for kind in CANONICAL_ROLES if mesh.ici_size(kind) > 1) or "one chip"
    return text + ("+slices" if mesh.dcn_product > 1 else "")


def _workload(config: ExperimentConfig) -> str:
    training, shape = config.training, config.model
    assert shape is not None
    return (
        f"{shape.name} {config.hardware.chip} x{config.hardware.chips} "
        f"B{training.global_batch} S{training.seq_len} {training.precision}"
    )


_PRECISIONS = {
    "fp8_full": "fp8",
    "fp8/int8 quantized": "int8",
    "fp8-cs": "fp8",
    "fp8-mx": "mxfp8",
}


def _precision(row: Mapping[str, Any]) -> str:
    """The rows of the 25.09 release name none; their TFLOP/s exceed what bf16 allows, and the release's other rows and
    its successor run the same workloads in FP8."""
    text = (row["precision"] or "fp8").split(" (")[0].lower() if row["precision"] != "fp8/int8 quantized" else "int8"
    return _PRECISIONS.get(text, text)


def _software_date(row: Mapping[str, Any]) -> str | None:
    """NeMo containers carry year and month in their name; the Selene rows are of May 2022 (arXiv 2205.05198)."""
    if row["framework"].startswith("Megatron-LM"):
        return "2022-05"
    match = re.match(r"(\d\d)\.(\d\d)(?:\.\d+)? NeMo", row["notes"])
    return f"20{match[1]}-{match[2]}" if match else None


# TPU: MaxText

_TPU_CHIPS = {"TPU v4": "v4", "TPU v5e": "v5e", "TPU v5p": "v5p", "TPU v6e": "v6e", "TPU7x": "tpu7x"}
#: Slices by name; v4 and v5p count TensorCores, two per chip.
_TPU_SLICES: Mapping[str, tuple[int, ...]] = {
    "v6e-8": (2, 4),
    "v6e-16": (4, 4),
    "v6e-32": (4, 8),
    "v6e-64": (8, 8),
    "v6e-128": (8, 16),
    "v6e-256": (16, 16),
    "v5e-256": (16, 16),
    "v4-128": (4, 4, 4),
    "v5p-8": (2, 2, 1),
    "v5p-128": (4, 4, 4),
    "v5p-1024": (8, 8, 8),
    "v5p-2048": (8, 8, 16),
    "v5p-4096": (8, 16, 16),
}
#: MaxText's mesh order, and what each axis is to us.  Its `data` axis replicates weights.
_MAXTEXT_AXES = (
    ("data", "replica"),
    ("pipeline", "pipeline"),
    ("fsdp", "fsdp"),
    ("fsdp_transpose", "fsdp"),
    ("sequence", "seq"),
    ("context", "seq"),
    ("tensor", "model"),
    ("expert", "expert"),
)


def _maxtext(row: Mapping[str, Any]) -> dict[str, Any]:
    if not row["parallelism"] or not row["chips"]:
        raise UnmappedError("the mesh is not published, or contradicts the number of chips")
    chip = next(key for name, key in _TPU_CHIPS.items() if row["accelerator"].startswith(name))
    topology = _tpu_topology(row)
    slices = row["num_slices"]
    devices = row["devices"] // slices
    sizes = _filled(row["parallelism"], "ici", devices)
    # One Ironwood chip is two JAX devices: the innermost axis that can holds both.
    extra = devices // prod(topology)
    for axis in reversed(sizes):
        shared = gcd(extra, sizes[axis])
        sizes[axis] //= shared
        extra //= shared
    ici: dict[str, int] = {}
    for axis, role in _MAXTEXT_AXES:
        if sizes.get(axis, 1) > 1:
            ici[role] = ici.get(role, 1) * sizes[axis]
    batch = row["global_batch"]
    if batch is None and row["per_device_batch"]:
        batch = int(row["per_device_batch"] * row["devices"])
    return {
        "hardware": {"chip": chip, "topology": list(topology), "slices": slices},
        "mesh": {"ici": ici or {"fsdp": 1}, "dcn": {"data": slices}},
        "training": {"weight_sharding": "fsdp", "remat": _maxtext_remat(row["remat"]), "global_batch": batch},
    }


def _tpu_topology(row: Mapping[str, Any]) -> tuple[int, ...]:
    name = row["topology"].split(" ")[0]
    if name in _TPU_SLICES:
        return _TPU_SLICES[name]
    match = re.fullmatch(r"tpu7x-(\d+)x(\d+)x(\d+)", name)
    if match is None:
        raise UnmappedError(f"the topology {row['topology']!r} is not clear")
    return tuple(int(size) for size in match.groups())


def _filled(parallelism: Mapping[str, int], where: str, devices: int) -> dict[str, int]:
    """Sizes by axis with MaxText's -1 (whatever is left) filled in."""
    sizes = {axis: int(parallelism.get(f"{where}_{axis}_parallelism", 1)) for axis, _ in _MAXTEXT_AXES}
    known = prod(size for size in sizes.values() if size > 0)
    for axis, size in sizes.items():
        if size < 0:
            sizes[axis] = devices // known
    if prod(sizes.values()) != devices:
        raise UnmappedError(f"the {where} axes multiply to {prod(sizes.values())}, not to {devices} devices")
    return sizes


#: Outputs of the MLP's first products: where they are kept, little is left to recompute.
_MLP_KEPT = ("mlpwi", "mlpwi_0", "mlpwi_1")
_PROJECTIONS_KEPT = ("query_proj", "key_proj", "value_proj")


def _maxtext_remat(remat: Mapping[str, str] | None) -> str:
    """Return our policy next to MaxText's by what stays on the chip: `offload` where layer inputs go to the host,
    `minimal` where the MLP's first products stay, which are most of the work, and `full` where less does, although some
    of it is then not computed again (`maxtext_kept`)."""
    if not remat:
        return "full"
    policy = remat.get("remat_policy", "full")
    if policy != "custom":
        return "minimal" if policy.startswith("minimal") else "full"
    if remat.get("decoder_layer_input") == "offload":
        return "offload"
    return "minimal" if any(remat.get(key) == "device" for key in _MLP_KEPT) else "full"


def maxtext_kept(remat: Mapping[str, str] | None) -> frozenset[str]:
    """Return MaxText's names of the outputs that a policy of our `full` or `offload` keeps, on the chip or the host,
    besides layer inputs."""
    given = remat or {}
    if given.get("remat_policy") == "qkv_proj_offloaded":
        return frozenset(_PROJECTIONS_KEPT)
    kept = {name for name, place in given.items() if place in ("device", "offload")}
    return frozenset(kept - {"decoder_layer_input"}) if given.get("remat_policy") == "custom" else frozenset()


# GPU: Megatron-Bridge, Megatron-LM

_GPU_CHIPS = {
    "DGX-GB300": "gb300",
    "DGX-GB200": "gb200",
    "DGX-B300": "b300",
    "DGX-B200": "b200",
    "DGX-H100": "h100",
    "A100-80GB": "a100-80gb",
}
#: An NVL72 rack trains on 64 of its GPUs, which divide evenly.
_RACK = 64


def _megatron(row: Mapping[str, Any]) -> dict[str, Any]:
    chip = get_chip(_GPU_CHIPS[row["accelerator"]])
    gpus = row["chips"]
    domain = min(_RACK if chip.nvlink_domain > _RACK else chip.nvlink_domain, gpus)
    sizes = dict(row["parallelism"])
    sequence_parallel = sizes.pop("sequence_parallel", None)
    given = {key: max(1, int(value or 1)) for key, value in sizes.items()}
    tensor, stages, context = given.get("tp", 1), given.get("pp", 1), given.get("cp", 1)
    settings = row.get("settings") or {}
    # Some tables have no column for it.
    fully = given["fsdp"] > 1 if "fsdp" in given else bool(settings.get("fsdp"))
    data = gpus // (tensor * stages * context)
    if gpus % domain or data * tensor * stages * context != gpus:
        raise UnmappedError("the parallelism does not divide the GPUs")
    # Megatron's expert groups span data and tensor ranks; ours shard tokens, and the tensor axis shards each expert.
    expert = gcd(given.get("ep", 1), data)
    axes = {
        "pipeline": stages,
        "fsdp" if fully else "data": data // expert,
        "expert": expert,
        "context": context,
        "model": tensor,
    }
    micro = row["micro_batch"] or 1
    return {
        "hardware": {"chip": chip.name, "topology": [domain, gpus // domain]},
        "mesh": {"ici": {axis: size for axis, size in axes.items() if size > 1} or {"data": 1}},
        "training": {
            "weight_sharding": "fsdp" if fully else "zero1",
            "remat": _megatron_remat(row["remat"], settings),
            "sequence_parallel": sequence_parallel,
            "micro_batch": micro,
            "grad_accum": max(1, row["global_batch"] // (data * micro)),
            "virtual_stages": given.get("vp", 1),
        },
    }


#: Recomputing the scores alone is what flash attention does anyway.
_FREE_MODULES = frozenset(("core_attn",))


def _megatron_remat(remat: Mapping[str, str] | None, settings: Mapping[str, Any]) -> str | None:
    """None where nobody says: recipes recompute or offload what does not fit.

    So it is, too, where activations go to the host and nothing is recomputed, for which there is no policy: `offload`
    keeps layer inputs on the host and recomputes the rest.
    """
    if remat:
        return {"full": "full", "attn_only": "minimal"}[remat["activation_recompute"]]
    offloaded = settings.get("activation_offload_layers") or settings.get("activation_offload_modules")
    if "recompute" not in settings or offloaded:
        return None
    if settings["recompute"] == "full":
        return "full"
    return "minimal" if set(settings.get("recompute_modules", ())) - _FREE_MODULES else "none"


# What was measured


def _step_time(row: Mapping[str, Any], shape: ModelShape, config: ExperimentConfig) -> tuple[float, str]:
    if row["step_time_s"]:
        return float(row["step_time_s"]), "step time"
    tokens = config.training.global_batch_tokens
    assert tokens is not None
    per_chip = tokens / config.hardware.chips
    if row["tokens_per_s_per_chip"]:
        return per_chip / row["tokens_per_s_per_chip"], "tokens/s"
    if row["tflops_per_chip"]:
        flops = per_chip * maxtext_flops_per_token(shape, config.training.seq_len or 0)
        return flops / (row["tflops_per_chip"] * 1e12), "TFLOP/s"
    raise UnmappedError("nothing measured is published")


def maxtext_flops_per_token(shape: ModelShape, seq_len: int) -> float:
    """Training FLOPs per token as MaxText counted them before 2025-07-22 (its pull request 1988): six per parameter of
    every product with weights, head included, and attention scores over the whole sequence, not the causal half."""
    if shape.attention == "mla":
        raise UnmappedError("MaxText's FLOP count of MLA is not reproduced here")
    matrices = 3 if shape.mlp == "gated" else 2
    width = shape.d_ff_expert * (shape.experts_per_token + shape.shared_experts) if shape.experts else shape.d_ff
    mlp = matrices * shape.d_model * width + shape.d_model * shape.experts
    attention = 2 * shape.d_model * shape.head_dim * (shape.heads + shape.kv_heads)
    scores = 12 * seq_len * shape.heads * shape.head_dim
    return float(6 * shape.layers * (mlp + attention) + 6 * shape.vocab * shape.d_model + shape.layers * scores)
