"""The tools' own rules, re-stated as small checks: what would refuse a launch file at the start of a run.

Each function names its source; a violation raises AssertionError.
"""

from __future__ import annotations

from math import prod
from typing import Any

from perfmodel.chips import get_chip
from perfmodel.config import ExperimentConfig, ModelShape

GIVEN = "given"

#: MaxText base.yml, mesh_axes: every axis that has a flag; `stage` is the flag `pipeline`.
MAXTEXT_AXES = ("data", "pipeline", "fsdp", "context", "tensor", "expert")
#: MaxText src/maxtext/configs/types.py: QuantizationType, OptimizerType, DType.
MAXTEXT_QUANTIZATION = {"", "int8", "fp8", "nanoo_fp8", "fp8_full", "te_fp8_currentscaling", "te_mxfp8", "te_nvfp4"}
MAXTEXT_OPTIMIZERS = {"adamw", "adam_pax", "sgd", "muon", GIVEN}
#: src/maxtext/layers/decoders.py: the policies it branches on.
MAXTEXT_REMAT = {"full", "minimal", "minimal_with_context", "custom"}


def parse_maxtext(words: list[str]) -> dict[str, str]:
    """`key=value` words as pyconfig takes them (OmegaConf's command line): a key once, no blanks in it."""
    found = dict(word.split("=", 1) for word in words)
    assert len(found) == len(words)
    assert all(key.isidentifier() for key in found)
    return found


def check_maxtext(flags: dict[str, str], config: ExperimentConfig) -> None:
    """types.py `set_derived_and_validate_values`, max_utils.fill_unspecified_mesh_axes, maxtext_utils."""
    chip, hardware = get_chip(config.hardware.chip), config.hardware
    ici = {axis: int(flags[f"ici_{axis}_parallelism"]) for axis in MAXTEXT_AXES}
    dcn = {axis: int(flags[f"dcn_{axis}_parallelism"]) for axis in MAXTEXT_AXES}
    if chip.kind == "tpu":
        per_slice, slices = hardware.chips_per_slice * chip.devices_per_chip, hardware.slices
    else:  # a slice is an NVLink domain
        per_slice = hardware.topology[0]
        slices = hardware.chips // per_slice
    assert prod(ici.values()) == per_slice, "product of ICI parallelism is not the number of devices per slice"
    assert prod(dcn.values()) == slices, "product of DCN parallelism is not the number of slices"
    devices = per_slice * slices
    accumulate = int(flags["gradient_accumulation_steps"])
    assert flags["remat_policy"] in MAXTEXT_REMAT
    assert flags["opt_type"] in MAXTEXT_OPTIMIZERS
    assert flags.get("quantization", "") in MAXTEXT_QUANTIZATION
    assert not (flags.get("quantization") in ("fp8", "nanoo_fp8") and accumulate > 1)
    if flags["per_device_batch_size"] != GIVEN:
        micro = int(devices * float(flags["per_device_batch_size"]))
        assert micro * accumulate == config.training.global_batch, "the global batch is another one"
        shards = prod(sizes[axis] for sizes in (ici, dcn) for axis in ("data", "fsdp", "expert"))
        assert micro % shards == 0, "the batch does not divide over the axes that shard it"
    if int(flags.get("num_experts", 1)) > 1 and int(flags.get("first_num_dense_layers", 0)) == 0:
        assert flags["base_mlp_dim"] == flags["base_moe_mlp_dim"], "a model of mixtures only has one MLP width"
    context = ici["context"] * dcn["context"]
    if context > 1 and flags.get("context_parallel_load_balance") != "false":
        length = flags["max_target_length"]
        assert context % 2 == 0 and (length == GIVEN or int(length) % (2 * context) == 0)
    _check_maxtext_pipeline(flags, ici["pipeline"] * dcn["pipeline"], config, devices)


def _check_maxtext_pipeline(flags: dict[str, str], stages: int, config: ExperimentConfig, devices: int) -> None:
    if stages == 1:
        assert "num_pipeline_microbatches" not in flags
        return
    assert config.model is not None
    layers = config.model.layers - (config.model.first_dense_layers if config.model.attention == "mla" else 0)
    assert stages * int(flags["num_pipeline_repeats"]) * int(flags["num_layers_per_pipeline_stage"]) == layers
    count = int(flags["num_pipeline_microbatches"])
    assert count % stages == 0
    if flags["per_device_batch_size"] != GIVEN:
        assert int(devices * float(flags["per_device_batch_size"])) % count == 0


#: Megatron-LM's arguments this product writes, with the type argparse gives them (megatron/training/arguments.py and
#: the dataclasses in megatron/core and megatron/training/config it reads); None is a switch.
MEGATRON: dict[str, Any] = {
    **dict.fromkeys(
        ("tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size",
         "expert-model-parallel-size", "num-layers-per-virtual-pipeline-stage", "micro-batch-size", "global-batch-size",
         "seq-length", "max-position-embeddings", "num-distributed-optimizer-instances", "recompute-num-layers",
         "num-layers", "hidden-size", "ffn-hidden-size", "num-attention-heads", "vocab-size", "kv-channels",
         "num-query-groups", "q-lora-rank", "kv-lora-rank", "qk-head-dim", "qk-pos-emb-head-dim", "v-head-dim",
         "num-experts", "moe-router-topk", "moe-ffn-hidden-size", "moe-shared-expert-intermediate-size",
         "window-attn-skip-freq"), int),
    **dict.fromkeys(
        ("sequence-parallel", "use-tp-pp-dp-mapping", "account-for-embedding-in-pipeline-split",
         "account-for-loss-in-pipeline-split", "use-distributed-optimizer", "overlap-grad-reduce",
         "overlap-param-gather", "use-megatron-fsdp", "bf16", "fp16", "multi-latent-attention", "group-query-attention",
         "swiglu", "untie-embeddings-and-output-weights"), None),
    "data-parallel-sharding-strategy": ("no_shard", "optim", "optim_grads", "optim_grads_params"),
    "ckpt-format": ("torch", "torch_dist", "torch_dcp", "fsdp_dtensor"),
    "fp8-format": ("e4m3", "hybrid"),
    "fp8-recipe": ("tensorwise", "delayed", "mxfp8", "blockwise", "custom"),
    "fp4-format": ("e2m1",),
    "optimizer": ("adam", "sgd", "muon", "dist_muon", "lion", "soap", "adaptive_muon"),
    "sgd-momentum": float,
    "recompute-granularity": ("full", "selective"),
    "recompute-method": ("uniform", "block"),
    "recompute-modules": ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts"),
    "window-size": str,
    "moe-layer-freq": str,
    "moe-token-dispatcher-type": ("allgather", "alltoall", "flex"),
}  # fmt: skip


def parse_megatron(words: list[str]) -> dict[str, Any]:
    """The words as argparse reads them; what the user has yet to give is GIVEN."""
    found: dict[str, Any] = {}
    rest = list(words)
    while rest:
        name = rest.pop(0).removeprefix("--")
        kind = MEGATRON[name]
        assert name not in found
        if kind is None:
            found[name] = True
            continue
        value = rest.pop(0)
        if isinstance(kind, tuple):
            assert value in kind
            found[name] = value
        else:
            found[name] = value if value == GIVEN else kind(value)
    return found


def check_megatron(args: dict[str, Any], config: ExperimentConfig, env: dict[str, str]) -> None:
    """arguments.py `validate_args`, transformer_config.py `__post_init__`, schedules.py, parallel_state.py."""
    world, shape = config.hardware.chips, config.model
    tensor, stages = args["tensor-model-parallel-size"], args["pipeline-model-parallel-size"]
    context, experts = args["context-parallel-size"], args.get("expert-model-parallel-size", 1)
    assert world % (tensor * stages * context) == 0
    data = world // (tensor * stages * context)
    assert world % (tensor * stages * experts) == 0, "expert ranks do not divide the world"
    count = None
    if args["global-batch-size"] != GIVEN:
        assert args["global-batch-size"] % (args["micro-batch-size"] * data) == 0
        count = args["global-batch-size"] // (args["micro-batch-size"] * data)
        assert args["global-batch-size"] == config.training.global_batch
    if args["seq-length"] != GIVEN:
        assert args["max-position-embeddings"] >= args["seq-length"]
        assert context == 1 or args["seq-length"] % (2 * context) == 0
        assert "sequence-parallel" not in args or args["seq-length"] // context % tensor == 0
    assert "sequence-parallel" not in args or tensor > 1
    if shape is not None:
        _check_megatron_model(args, shape, tensor, stages, experts, count)
    else:
        assert stages == 1
    _check_megatron_sharding(args, data, context, experts)
    granularity = args.get("recompute-granularity")
    assert (granularity == "full") == ("recompute-method" in args) == ("recompute-num-layers" in args)
    assert (granularity == "selective") == ("recompute-modules" in args)
    assert not {"bf16", "fp16"} <= set(args) and not {"fp8-format", "fp4-format"} <= set(args)
    before_blackwell = config.hardware.chip not in ("b200", "b300", "gb200", "gb300")
    if "use-megatron-fsdp" in args:
        assert env.get("CUDA_DEVICE_MAX_CONNECTIONS") != "1"
    elif before_blackwell and (tensor > 1 or context > 1):
        assert env.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1"


def _check_megatron_model(
    args: dict[str, Any], shape: ModelShape, tensor: int, stages: int, experts: int, count: int | None
) -> None:
    assert args["num-attention-heads"] % tensor == 0
    kv_heads = args.get("num-query-groups", args["num-attention-heads"])
    assert kv_heads % tensor == 0 or tensor % kv_heads == 0
    if shape.attention != "mla":
        assert args["kv-channels"] == shape.head_dim and kv_heads == shape.kv_heads
    if experts > 1:
        assert args["num-experts"] % experts == 0
    layers = args["num-layers"] + sum(f"account-for-{part}-in-pipeline-split" in args for part in ("embedding", "loss"))
    assert layers % stages == 0
    if virtual := args.get("num-layers-per-virtual-pipeline-stage"):
        assert stages > 1 and layers // stages % virtual == 0
        if count is not None:  # every group of `stages` micro-batches must be full
            assert count >= stages and count % stages == 0
    if pattern := args.get("moe-layer-freq"):
        expanded = _expand(pattern)
        assert len(expanded) == shape.layers and not any(expanded[: shape.first_dense_layers])


def _expand(pattern: str) -> list[int]:
    """arguments.py `moe_freq_type`: a Python list expression of digits, lists, + and *."""
    assert set(pattern) <= set("[]()*+0123456789,")
    found: list[int] = eval(pattern, {"__builtins__": {}})
    return found


def _check_megatron_sharding(args: dict[str, Any], data: int, context: int, experts: int) -> None:
    assert "overlap-param-gather" not in args or {"use-distributed-optimizer", "overlap-grad-reduce"} <= set(args)
    if instances := args.get("num-distributed-optimizer-instances"):
        assert data * context % instances == 0 and data * context // experts % instances == 0
    if "use-megatron-fsdp" in args:
        assert args["ckpt-format"] == "fsdp_dtensor" and args["optimizer"] in ("adam", "sgd")
