"""The tool over the scaling book's limits for this run: what its chip, links and sizes allow at best."""

from __future__ import annotations

from typing import Annotated

from agent.tools import NoArguments
from perfmodel import roofline as book
from perfmodel.config import BATCH_ROLES, TOKEN_ROLES
from perfmodel.workload import chip_of
from proposals.agents.tool_result import About, Is, ToolResult
from proposals.agents.workbench import Workbench


class Padded(ToolResult):
    """A size of the model as one shard computes it: padding up to whole tiles is work for nothing."""

    name: str = ""
    size: int = 0
    shards: int = 1
    per_shard: float = 0.0
    tile: int = 0
    padded_share: float = 0.0

    def about(self) -> About:
        return About("computed", self.name)


class Bounds(ToolResult):
    """Limits of this chip and these sizes.

    tokens per chip (or slice) from which a kind of traffic hides behind compute; shards of the tensor axis up to which
    it does.  divides: what the batch must be a multiple of.
    """

    chip: str = ""
    precision: str = ""
    peak_flops_per_s: Annotated[float, Is(origin="stated")] = 0.0
    hbm_bytes_per_s: Annotated[float, Is(origin="stated")] = 0.0
    ridge_flops_per_byte: float = 0.0
    link_bytes_per_s: Annotated[float | None, Is("link bandwidth, one way", origin="stated")] = None
    dcn_bytes_per_s_per_chip: Annotated[float | None, Is(origin="stated")] = None
    tokens_per_chip: Annotated[float | None, Is(unit="tokens")] = None
    tokens_per_slice: Annotated[float | None, Is(unit="tokens")] = None
    compute_bound_from: Annotated[float | None, Is("tokens that make a matmul compute-bound", "tokens")] = None
    fsdp_hidden_from: Annotated[float | None, Is("tokens per chip that hide FSDP on one axis", "tokens")] = None
    dcn_hidden_from: Annotated[float | None, Is("tokens per slice that hide gradients over DCN", "tokens")] = None
    mixed_hidden_from: Annotated[float | None, Is("tokens per chip that hide FSDP with a tensor axis", "tokens")] = None
    tensor_axis: int = 1
    tensor_axis_limit: Annotated[float | None, Is("tensor shards that hide behind compute", "count")] = None
    best_fsdp_shards: Annotated[float | None, Is("FSDP shards that communicate least", "count")] = None
    global_batch: Annotated[int | None, Is(origin="stated")] = None
    batch_divides: int = 1
    sequences_per_shard: float | None = None
    padding: tuple[Padded, ...] = ()
    source: str = "How to Scale Your Model, chapters 1 and 5, at data-sheet bandwidth"

    def about(self) -> About:
        return About("computed", "limit")


def bounds(bench: Workbench, _: NoArguments) -> Bounds:
    """The scaling book's limits for this run: roofline ridge, tokens per chip that hide FSDP, DCN or both, how wide the
    tensor axis may be, what the batch must divide by, and padding of model sizes to matmul tiles."""
    config = bench.config
    chip, mesh, training, model = chip_of(config.hardware), config.mesh, config.training, config.model
    precision, tokens, chips = training.precision, training.global_batch_tokens, config.hardware.chips
    tpu = chip.kind == "tpu"
    width = (model.d_ff_expert or model.d_ff) if model else None
    shards = mesh.size(*BATCH_ROLES)
    slices = config.hardware.slices
    padding = []
    sizes = (("d_ff", width, mesh.size("model")), ("d_model", model.d_model, 1)) if model else ()
    for name, size, cut in sizes:
        if size and chip.matrix_tile:
            each = size / cut
            whole = -(-each // chip.matrix_tile) * chip.matrix_tile
            padding.append(
                Padded(
                    name=name, size=size, shards=cut, per_shard=each, tile=chip.matrix_tile,
                    padded_share=1 - each / whole,
                )
            )  # fmt: skip
    return Bounds(
        chip=chip.name, precision=precision, peak_flops_per_s=chip.peak(precision),
        hbm_bytes_per_s=chip.hbm_bytes_per_s, ridge_flops_per_byte=chip.peak(precision) / chip.hbm_bytes_per_s,
        link_bytes_per_s=(chip.ici_link_bytes_per_s if tpu else chip.nvlink_bytes_per_s) or None,
        dcn_bytes_per_s_per_chip=chip.dcn_bytes_per_s_per_chip or None,
        tokens_per_chip=tokens / mesh.size(*TOKEN_ROLES) if tokens else None,
        tokens_per_slice=tokens / slices if tokens else None,
        compute_bound_from=book.hbm_tokens(chip, precision),
        fsdp_hidden_from=book.data_tokens(chip, 1, precision) if tpu else book.node_tokens(chip, precision=precision),
        dcn_hidden_from=book.slice_tokens(chip, precision, slices) if slices > 1 else None,
        mixed_hidden_from=book.mixed_tokens(chip, width, 1, precision) if tpu and width else None,
        tensor_axis=mesh.size("model"),
        tensor_axis_limit=book.tensor_shards(chip, width, precision=precision) if width else None,
        best_fsdp_shards=book.best_data_shards(tokens, width, chips) if tokens and width else None,
        global_batch=training.global_batch, batch_divides=shards * training.grad_accum,
        sequences_per_shard=training.global_batch / shards if training.global_batch else None, padding=tuple(padding),
    )  # fmt: skip
