"""MaxText: the flags of one run.

Sources (AI-Hypercomputer/maxtext): src/maxtext/configs/base.yml (flag names), src/maxtext/configs/types.py (which
values and products are accepted, pipeline and batch rules, fp8 with accumulation), src/maxtext/utils/maxtext_utils.py
`create_device_mesh`, src/maxtext/utils/max_utils.py (products; reordering for context parallelism),
docs/guides/monitoring_and_debugging/features_and_diagnostics.md.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from perfmodel.catalogue import load_catalogue
from perfmodel.config import ExperimentConfig, ModelShape
from proposals.launch.file import (
    RUN_NOTE,
    Header,
    LaunchFile,
    NotExpressible,
    Required,
    Word,
    flags_variable,
    render,
    slug,
    xla_flags,
)
from proposals.launch.placement import OPEN_REMAT, Placement, must_split, nvlink_domain, place, tool_axes

DATA_FILE = Path(__file__).with_name("maxtext.toml")
#: MaxText's mesh axes that a configuration can use by our role, in MaxText's order (base.yml, mesh_axes).
_NAMES = {
    "data": "data", "pipeline": "pipeline", "fsdp": "fsdp", "seq": "context", "model": "tensor", "expert": "expert",
}  # fmt: skip
AXES = tuple(_NAMES.values())
#: Policies that save as much as the price assumes: MaxText's own `none` recomputes every scanned layer, as `full` does
#: (nnx_decoders.py and decoders.py), and minimal_offloaded moves the outputs of matmuls, not the layer inputs.
_REMAT: Mapping[str, Flags] = {
    "none": {"remat_policy": "minimal_with_context"},
    "minimal": {"remat_policy": "minimal"},
    "full": {"remat_policy": "full"},
    "offload": {"remat_policy": "custom", "decoder_layer_input": "offload"},
}
NAME = "maxtext.sh"

Flags = dict[str, Word]


@cache
def data() -> Mapping[str, Any]:
    """Return maxtext.toml: models that MaxText knows by name."""
    with DATA_FILE.open("rb") as file:
        return tomllib.load(file)


def file(config: ExperimentConfig, header: Header) -> LaunchFile:
    """Return a shell script with the flags of the run."""
    try:
        flags, notes = _flags(place(config))
    except NotExpressible as reason:
        return LaunchFile(NAME, "maxtext", "", (str(reason),))
    text = render(
        NAME, about=[*header.lines("MaxText", "MaxText's base.yml and types.py"), *notes, RUN_NOTE],
        flags={"run_name": slug(config.name), **flags}, variable=flags_variable(str(flags.get("hardware", "tpu"))),
        xla_flags=xla_flags(config),
    )  # fmt: skip
    return LaunchFile(NAME, "maxtext", text, notes)


def _flags(placed: Placement) -> tuple[Flags, tuple[str, ...]]:
    notes = list(placed.notes)
    flags: Flags = _model(placed.config.model, notes)
    if placed.chip.kind == "gpu":
        flags["hardware"] = "gpu"
    sizes = _parallelism(placed, notes)
    flags |= {f"{part}_{axis}_parallelism": sizes[part][axis] for part in ("ici", "dcn") for axis in AXES}
    flags |= _layout(placed, sizes["ici"], notes)
    flags |= _batch(placed, sizes, notes)
    flags |= _training(placed, sizes, notes)
    notes.append(
        "Trains on synthetic data without checkpoints, and records a profile; to use your own data, set "
        "DATASET_TYPE=tfds and pass dataset_path=… as an argument."
    )
    return flags, tuple(notes)


def _parallelism(placed: Placement, notes: list[str]) -> dict[str, dict[str, int]]:
    is_gpu = placed.chip.kind == "gpu"
    axes = tool_axes(placed, _NAMES, nvlink_domain(placed.config) if is_gpu else 0)
    if is_gpu and prod(axes.across.values()) > placed.config.hardware.slices:
        notes.append("To MaxText every NVLink domain is a slice, so the part of an axis across domains is dcn_*.")
    if axes.order:
        notes.append(
            f"MaxText orders its axes {', '.join(AXES)}; the proposal orders them {', '.join(axes.order)}. MaxText has "
            "no flag for the order, so axes may map to different links than predicted."
        )
    if axes.weights:
        notes.append(
            f"MaxText always shards weights over its context and expert axes, so {', '.join(axes.weights)} shards them "
            "too, although weight_sharding is not fsdp."
        )
    return {"ici": axes.inside, "dcn": axes.across}


def _layout(placed: Placement, ici: Mapping[str, int], notes: list[str]) -> Flags:
    if placed.chip.kind == "gpu" or not must_split([ici[axis] for axis in AXES], placed.physical):
        return {}
    notes.append("An axis covers only part of a torus dimension, so allow_split_physical_axes is needed.")
    return {"allow_split_physical_axes": True}


def per_device_batch(batch: int, devices: int) -> float:
    """Sequences per device that MaxText turns back into exactly `batch`: it computes int(devices * value)."""
    value = batch / devices
    while int(devices * value) < batch:
        value = math.nextafter(value, math.inf)
    return value


def _batch(placed: Placement, sizes: Mapping[str, Mapping[str, int]], notes: list[str]) -> Flags:
    config, training = placed.config, placed.config.training
    stages = sizes["ici"]["pipeline"] * sizes["dcn"]["pipeline"]
    count = placed.micro_batches
    accumulate = 1 if stages > 1 else count
    flags: Flags = {}
    if training.global_batch is None:
        flags["per_device_batch_size"] = Required("PER_DEVICE_BATCH_SIZE", "give the sequences per device")
        notes.append("The global batch is not known; set PER_DEVICE_BATCH_SIZE.")
    else:
        if training.global_batch % accumulate:
            raise NotExpressible(
                f"A global batch of {training.global_batch} is not divisible by {accumulate} accumulation steps."
            )
        value = per_device_batch(training.global_batch // accumulate, placed.devices)
        flags["per_device_batch_size"] = f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if training.seq_len is None:
        flags["max_target_length"] = Required("MAX_TARGET_LENGTH", "give the tokens per sequence")
        notes.append("The sequence length is not known; set MAX_TARGET_LENGTH.")
    else:
        flags["max_target_length"] = training.seq_len
    flags["gradient_accumulation_steps"] = accumulate
    context = sizes["ici"]["context"] * sizes["dcn"]["context"]
    if context > 1 and placed.chip.kind == "gpu":
        notes.append(
            "On GPUs, MaxText shards sequences only with attention=cudnn_flash_te and without packed sequences."
        )
    if context > 1 and (context % 2 or (training.seq_len or 0) % (2 * context)):
        flags["context_parallel_load_balance"] = False
    if stages > 1:
        flags |= _pipeline(config, stages, count)
    return flags


def _pipeline(config: ExperimentConfig, stages: int, micro_batches: int) -> Flags:
    model, repeats = config.model, max(1, config.training.virtual_stages)
    if model is None:
        raise NotExpressible("MaxText needs the number of layers for a pipeline, and the model is not known.")
    layers = model.layers - (model.first_dense_layers if model.attention == "mla" else 0)
    if layers % (stages * repeats):
        raise NotExpressible(
            f"MaxText needs layers that divide evenly over the pipeline: {layers} do not fill {stages} stages of "
            f"{repeats} parts."
        )
    if micro_batches % stages:
        raise NotExpressible(
            f"MaxText needs the number of micro-batches to be a multiple of the {stages} stages, not {micro_batches}."
        )
    batch = config.training.global_batch
    if batch and batch % micro_batches:
        raise NotExpressible(f"A global batch of {batch} is not divisible by {micro_batches} micro-batches.")
    return {
        "num_pipeline_microbatches": micro_batches,
        "num_layers_per_pipeline_stage": layers // (stages * repeats),
        "num_pipeline_repeats": repeats,
    }


def _training(placed: Placement, sizes: Mapping[str, Mapping[str, int]], notes: list[str]) -> Flags:
    training = placed.config.training
    flags: Flags = dict(_REMAT[training.remat])
    if placed.remat_is_open:
        notes.append(OPEN_REMAT)
    if training.remat == "none":
        notes.append(
            "minimal_with_context recomputes the least: no matmul and no attention. MaxText's own remat_policy=none "
            "recomputes every scanned layer."
        )
    flags |= _precision(placed, sizes)
    if training.weight_sharding == "zero1":
        flags["shard_optimizer_over_data"] = True
    if training.optimizer in ("adamw", "sgd", "muon"):
        flags["opt_type"] = training.optimizer
    elif training.optimizer == "adam":
        flags |= {"opt_type": "adamw", "adam_weight_decay": 0.0}
    else:
        flags["opt_type"] = Required("OPT_TYPE", "choose adamw, adam_pax, sgd or muon")
        notes.append(f"MaxText has no optimizer {training.optimizer!r}; set OPT_TYPE to one it has.")
    return flags


def _precision(placed: Placement, sizes: Mapping[str, Mapping[str, int]]) -> Flags:
    precision, gpu = placed.config.training.precision, placed.chip.kind == "gpu"
    if precision in ("bf16", "fp16", "fp32"):
        return {"dtype": {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}[precision]}
    if precision == "int8":
        return {"dtype": "bfloat16", "quantization": "int8", "use_qwix_quantization": True}
    if not gpu:
        if precision != "fp8":
            raise NotExpressible(f"MaxText has no {precision} training on TPUs.")
        return {"dtype": "bfloat16", "quantization": "fp8_full", "use_qwix_quantization": True}
    pipelined = sizes["ici"]["pipeline"] * sizes["dcn"]["pipeline"] > 1
    accumulates = placed.micro_batches > 1 and not pipelined
    if placed.chip.name.startswith("mi"):
        if precision != "fp8" or accumulates:
            raise NotExpressible(f"MaxText cannot train in {precision} on {placed.chip.title} with accumulation.")
        return {"dtype": "bfloat16", "quantization": "nanoo_fp8"}
    # MaxText refuses its plain fp8 with gradient accumulation; current scaling keeps no history and is allowed.
    fp8 = "te_fp8_currentscaling" if accumulates else "fp8"
    return {"dtype": "bfloat16", "quantization": {"fp8": fp8, "mxfp8": "te_mxfp8", "nvfp4": "te_nvfp4"}[precision]}


def _model(shape: ModelShape | None, notes: list[str]) -> Flags:
    if shape is None:
        notes.append("The model is not known; set MODEL_NAME to MaxText's name for it.")
        return {"model_name": Required("MODEL_NAME", "give the name of the model in MaxText")}
    known = load_catalogue().get(shape.name)
    if known is not None and known.shape == shape and shape.name in data()["models"]:
        name, differs = data()["models"][shape.name]
        if differs:
            notes.append(f"MaxText's own {name} is close but not identical: {differs}.")
        return {"model_name": name}
    latent, mixture = shape.attention == "mla", shape.experts > 0
    uniform = not (shape.first_dense_layers or shape.shared_experts)
    described = mixture if latent else (uniform or not mixture)
    if shape.sliding_window or shape.moe_layer_step > 1 or not described:
        notes.append("No MaxText flags describe this shape; write a model file for it and set MODEL_NAME.")
        return {"model_name": Required("MODEL_NAME", "give the MaxText model file of this shape")}
    notes.append("MaxText has no model of this shape; its sizes are set by flags, and the rest is MaxText's default.")
    return _sizes(shape)


def _sizes(shape: ModelShape) -> Flags:
    flags: Flags = {
        "base_num_decoder_layers": shape.layers,
        "base_emb_dim": shape.d_model,
        "base_mlp_dim": shape.d_ff,
        "base_num_query_heads": shape.heads,
        "base_num_kv_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab,
        "mlp_activations": "['silu','linear']" if shape.mlp == "gated" else "['gelu']",
        "logits_via_embedding": shape.tied_embeddings,
        "decoder_block": "llama2",
    }
    if shape.experts:
        width = shape.d_ff_expert or shape.d_ff
        flags |= {
            "decoder_block": "mixtral",
            "num_experts": shape.experts,
            "num_experts_per_tok": shape.experts_per_token,
            "base_moe_mlp_dim": width,
        }
        if not shape.first_dense_layers:  # every layer is a mixture, and MaxText wants both widths equal
            flags["base_mlp_dim"] = width
    if shape.attention == "mla":
        flags |= {
            "decoder_block": "deepseek",
            "attention_type": "mla",
            "q_lora_rank": shape.q_lora_rank,
            "kv_lora_rank": shape.kv_lora_rank,
            "qk_nope_head_dim": shape.qk_nope_head_dim,
            "qk_rope_head_dim": shape.qk_rope_head_dim,
            "v_head_dim": shape.v_head_dim,
            "first_num_dense_layers": shape.first_dense_layers,
            "shared_experts": shape.shared_experts,
        }
    return flags
