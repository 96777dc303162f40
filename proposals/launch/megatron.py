"""Megatron-LM: the arguments of `pretrain_gpt.py` for a GPU mesh.

Sources (NVIDIA/Megatron-LM): megatron/training/arguments.py `validate_args` (world size, batch, virtual stages, context
parallelism, FSDP, CUDA_DEVICE_MAX_CONNECTIONS), megatron/core/transformer/transformer_config.py `__post_init__` (heads,
query groups, recomputation), megatron/core/parallel_state.py (order of ranks tp-cp-ep-dp-pp, optimizer instances),
megatron/core/pipeline_parallel/schedules.py (micro-batches of the interleaved schedule),
megatron/core/num_microbatches_calculator.py.
"""

from __future__ import annotations

from math import prod

from perfmodel.chips import get_chip
from perfmodel.config import ExperimentConfig, Mesh, ModelShape
from proposals.launch.file import RUN_NOTE, Header, LaunchFile, NotExpressible, Required, Word, render
from proposals.launch.megatron_model import model_arguments
from proposals.launch.placement import OPEN_REMAT, Placement, place

NAME = "megatron.sh"
#: Megatron's ranks from major to minor; DP stands for replica, data, fsdp and expert axes.
_ORDER = {"pipeline": 0, "replica": 1, "data": 2, "fsdp": 2, "expert": 3, "seq": 4, "model": 5}
_FP = {
    "bf16": {"--bf16": ""},
    "fp16": {"--fp16": ""},
    "fp32": {},
    "fp8": {"--bf16": "", "--fp8-format": "hybrid"},
    "mxfp8": {"--bf16": "", "--fp8-format": "e4m3", "--fp8-recipe": "mxfp8"},
    "nvfp4": {"--bf16": "", "--fp4-format": "e2m1"},
}
_OPTIMIZERS = {"adamw": "adam", "adam": "adam", "sgd": "sgd", "momentum": "sgd", "muon": "muon", "lion": "lion"}
#: Megatron asks for one queue per device where tensor or context parallelism overlap, but not on these (arch 10).
_BLACKWELL = ("b200", "b300", "gb200", "gb300")

Arguments = dict[str, Word]


def file(config: ExperimentConfig, header: Header) -> LaunchFile:
    """A shell script that starts torchrun on every host; `""` as a value is a switch."""
    try:
        return _file(config, header)
    except NotExpressible as reason:
        return LaunchFile(NAME, "megatron", "", (str(reason),))


def _file(config: ExperimentConfig, header: Header) -> LaunchFile:
    chip = get_chip(config.hardware.chip)
    if chip.kind != "gpu":
        raise NotExpressible(f"Megatron-LM runs on GPUs, but these chips are {chip.title}.")
    placed, notes = place(config), list[str]()
    arguments: Arguments = {
        **_parallelism(placed, notes),
        **_batch(placed, notes),
        **_sharding(placed, notes),
        **_training(placed, notes),
        **model_arguments(config.model, config.training, notes),
    }
    if chip.name.startswith("mi"):
        notes.append(
            "Megatron-LM itself targets NVIDIA GPUs; on this GPU, use AMD's ROCm fork, which takes the same arguments."
        )
    if config.training.xla_flags:
        notes.append("XLA flags have no effect in Megatron-LM and are left out.")
    notes.append(
        "Trains on mock data without checkpoints, and rank 0 records a profile; to use your own data, set DATA_PATH, "
        "TOKENIZER_TYPE and TOKENIZER_MODEL."
    )
    if config.model is None:
        notes.append("The vocabulary is not known; set VOCAB_SIZE.")
    notes.append(RUN_NOTE)
    per_host = min(chip.chips_per_host, config.hardware.chips)
    text = render(
        NAME, about=[*header.lines("Megatron-LM", "megatron/training/arguments.py"), *notes], arguments=arguments,
        connections=_connections(placed), model=config.model, per_host=per_host,
        hosts=-(-config.hardware.chips // per_host),
    )  # fmt: skip
    return LaunchFile(NAME, "megatron", text, tuple(notes))


def _connections(placed: Placement) -> str:
    """Return what becomes of CUDA_DEVICE_MAX_CONNECTIONS: `unset`, `1`, or nothing."""
    if placed.chip.name in _BLACKWELL:
        return ""
    if placed.shards_weights:
        return "unset"
    return "1" if placed.mesh.size("model") > 1 or placed.mesh.size("seq") > 1 else ""


def data_parallel(mesh: Mesh) -> int:
    """Megatron's DP: every axis over which the batch is split."""
    return mesh.batch_shards


def _parallelism(placed: Placement, notes: list[str]) -> Arguments:
    config, mesh = placed.config, placed.mesh
    tensor, context, stages, experts = (mesh.size(role) for role in ("model", "seq", "pipeline", "expert"))
    model, length = config.model, config.training.seq_len
    if model is not None and model.heads % tensor:
        raise NotExpressible(
            f"Megatron-LM needs a number of heads divisible by the tensor axis: {model.heads} by {tensor}."
        )
    if model is not None and model.attention != "mla" and model.kv_heads % tensor and tensor % model.kv_heads:
        raise NotExpressible(f"Megatron-LM cannot split {model.kv_heads} KV heads {tensor} ways.")
    if experts > 1 and model is not None and (not model.experts or model.experts % experts):
        raise NotExpressible(
            f"Megatron-LM needs a number of experts divisible by the expert axis: {model.experts} by {experts}."
        )
    if context > 1 and length and length % (2 * context):
        raise NotExpressible(
            f"Megatron-LM needs a sequence length divisible by twice the context axis: {length} by {2 * context}."
        )
    arguments: Arguments = {
        "--tensor-model-parallel-size": tensor,
        "--pipeline-model-parallel-size": stages,
        "--context-parallel-size": context,
    }
    if experts > 1:
        arguments["--expert-model-parallel-size"] = experts
        if context > 1:
            notes.append(
                "Megatron-LM spreads experts over context and data ranks together, so an expert group is wider."
            )
    arguments |= _stages(placed, model, stages)
    arguments |= _sequence_parallel(placed, tensor, context, experts, notes)
    return arguments | _order(placed, experts, notes)


def _sequence_parallel(placed: Placement, tensor: int, context: int, experts: int, notes: list[str]) -> Arguments:
    if tensor == 1:
        return {}
    if not placed.sequence_parallel:
        if experts == 1:
            return {}
        notes.append("Megatron-LM needs --sequence-parallel where experts meet a tensor axis.")
    length = placed.config.training.seq_len
    if length and length // context % tensor:
        notes.append("The sequence length is not divisible by the tensor axis, so --sequence-parallel is left out.")
        return {}
    return {"--sequence-parallel": ""}


def _order(placed: Placement, experts: int, notes: list[str]) -> Arguments:
    axes = [role for axis, size in placed.mesh.ici for role in (placed.mesh.role(axis),) if size > 1]
    ranks = [_ORDER[role] for role in axes]
    if ranks == sorted(ranks):
        return {}
    inside = {**_ORDER, "pipeline": 3.5}
    if experts == 1 and [inside[role] for role in axes] == sorted(inside[role] for role in axes):
        return {"--use-tp-pp-dp-mapping": ""}
    notes.append(
        "Megatron-LM orders ranks as pipeline, data, expert, context, tensor from major to minor, the proposal as "
        f"{', '.join(axes)}: groups may map to different links than predicted."
    )
    return {}


def _stages(placed: Placement, model: ModelShape | None, stages: int) -> Arguments:
    if stages == 1:
        return {}
    if model is None:
        raise NotExpressible("Megatron-LM splits layers over the pipeline, and the model is not known.")
    virtual = max(1, placed.config.training.virtual_stages)
    if virtual > 1 and (placed.micro_batches % stages or placed.micro_batches < stages):
        raise NotExpressible(
            f"Megatron-LM's interleaved schedule needs the number of micro-batches to be a multiple of the {stages} "
            f"stages, not {placed.micro_batches}."
        )
    # Embedding and loss may each take the place of a layer, so that the rest divides.
    for embedding, loss in ((0, 0), (1, 1), (0, 1), (1, 0)):
        slots = model.layers + embedding + loss
        if slots % (stages * virtual) == 0:
            arguments: Arguments = {}
            if embedding:
                arguments["--account-for-embedding-in-pipeline-split"] = ""
            if loss:
                arguments["--account-for-loss-in-pipeline-split"] = ""
            if virtual > 1:
                arguments["--num-layers-per-virtual-pipeline-stage"] = slots // (stages * virtual)
            return arguments
    raise NotExpressible(
        f"Megatron-LM needs layers that divide over the pipeline: {model.layers}, with embedding and loss at most "
        f"{model.layers + 2}, do not fill {stages} stages of {virtual} parts."
    )


def _batch(placed: Placement, notes: list[str]) -> Arguments:
    training, groups = placed.config.training, data_parallel(placed.mesh)
    arguments: Arguments = {}
    if training.global_batch is None:
        arguments["--micro-batch-size"] = training.micro_batch or Required(
            "MICRO_BATCH_SIZE", "give the sequences per GPU group"
        )
        arguments["--global-batch-size"] = Required(
            "GLOBAL_BATCH_SIZE", f"give a multiple of {groups} times the micro-batch"
        )
        notes.append(
            "The global batch is not known; set GLOBAL_BATCH_SIZE, and MICRO_BATCH_SIZE where the script asks for it."
        )
    else:
        if training.global_batch % (groups * placed.micro_batches):
            raise NotExpressible(
                f"Megatron-LM needs a global batch divisible by data parallelism times micro-batches: "
                f"{training.global_batch} by {groups} x {placed.micro_batches}."
            )
        arguments["--micro-batch-size"] = training.global_batch // (groups * placed.micro_batches)
        arguments["--global-batch-size"] = training.global_batch
    if training.seq_len is None:
        length: Word = Required("SEQ_LENGTH", "give the tokens per sequence")
        notes.append("The sequence length is not known; set SEQ_LENGTH.")
    else:
        length = training.seq_len
    return {**arguments, "--seq-length": length, "--max-position-embeddings": length}


def _sharding(placed: Placement, notes: list[str]) -> Arguments:
    mesh, training = placed.mesh, placed.config.training
    if training.weight_sharding == "none":
        return {"--overlap-grad-reduce": ""}
    arguments: Arguments = {
        "--use-distributed-optimizer": "",
        "--overlap-grad-reduce": "",
        "--overlap-param-gather": "",
    }
    copies = mesh.size("replica") * prod(mesh.dcn_size(role) for role in ("data", "seq", "expert"))
    expert_groups = data_parallel(mesh) * mesh.size("seq") // mesh.size("expert")
    if copies > 1 and expert_groups % copies == 0:
        arguments["--num-distributed-optimizer-instances"] = copies
    elif copies > 1:
        notes.append(
            "Megatron-LM cannot replicate the optimizer state here; it is sharded over all data-parallel ranks."
        )
    if training.weight_sharding == "fsdp":
        if _OPTIMIZERS.get(training.optimizer) not in ("adam", "sgd"):
            raise NotExpressible(f"Megatron-FSDP takes Adam or SGD only, not {training.optimizer}.")
        arguments |= {
            "--use-megatron-fsdp": "",
            "--data-parallel-sharding-strategy": "optim_grads_params",
            "--ckpt-format": "fsdp_dtensor",
        }
        if mesh.size("model") > 1 or mesh.size("seq") > 1:
            notes.append(
                "Megatron-LM advises against FSDP together with tensor or context parallelism before Blackwell."
            )
    return arguments


def _training(placed: Placement, notes: list[str]) -> Arguments:
    training = placed.config.training
    if training.precision not in _FP:
        raise NotExpressible(f"Megatron-LM has no {training.precision} training.")
    arguments: Arguments = dict(_FP[training.precision])
    optimizer = _OPTIMIZERS.get(training.optimizer)
    if optimizer is None:
        raise NotExpressible(f"Megatron-LM has no optimizer {training.optimizer!r}.")
    arguments["--optimizer"] = optimizer
    if training.optimizer == "sgd":
        arguments["--sgd-momentum"] = 0.0
    if placed.remat_is_open:
        notes.append(OPEN_REMAT)
    if training.remat == "minimal":
        # What is recomputed is named, so that no default of a version decides.
        arguments |= {"--recompute-granularity": "selective", "--recompute-modules": "core_attn"}
    elif training.remat in ("full", "offload"):
        arguments |= {"--recompute-granularity": "full", "--recompute-method": "uniform", "--recompute-num-layers": 1}
        if training.remat == "offload":
            notes.append(
                "Megatron-LM offloads activations differently than priced here; full recompute is set instead."
            )
    return arguments
