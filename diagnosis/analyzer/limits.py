"""What limits ops whose FLOPs and bytes were not recorded: from the kernel's tile or the recording, else unknown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from diagnosis.analyzer.facts import OpFacts
from diagnosis.recording import Recording
from perfmodel.chips import Chip
from perfmodel.config import ExperimentConfig

#: Rows and columns of the result that one block of a kernel computes (`MT32x32x256`, `_128x64_nn`,
#: `tilesize128x128x64`): libraries choose them by the rows of the matmul.
_TILE = re.compile(r"(?<![\d.])(\d{1,3})x(\d{1,3})(?!\d)")
_SHAPES = re.compile(r"\[[^\]]*\]")
#: Products of complex numbers have narrow tiles for many rows as well.
_COMPLEX = re.compile(r"[cz]gemm")
#: A matmul of so few rows reads its weights for too little work on any accelerator; one of so many does not.
FEW_ROWS, MANY_ROWS = 32, 128
#: FLOPs per byte above and below every accelerator's ridge: 17 of fp32 on a V100, 295 of bf16 on an H100.
HIGH, LOW = 300.0, 15.0
#: Above every ridge without tensor cores: 105 of fp32 on an L40.
HIGH_WITHOUT_TENSOR_CORES = 110.0
#: Weights of matmuls take at least half a byte (4 bit): one row does at most this many FLOPs per byte of them.
FLOPS_PER_ROW_AND_BYTE = 4.0
#: Families whose limit depends on their shapes.
_BY_SHAPE = ("matmul", "attention kernel")
#: Families that stream tensors on an accelerator; on a processor their tensors may lie in caches.
_SMALL_WORK = ("elementwise", "reduction", "scatter")
#: Families that a kernel's name tells where a framework wrote it; anybody may call a kernel `reduce`.
_BY_NAME = (*_SMALL_WORK, "data movement")


def with_evidence(
    ops: Sequence[OpFacts], recording: Recording, config: ExperimentConfig | None, chip: Chip | None
) -> tuple[OpFacts, ...]:
    """The ops; those whose limit is a guess by category only with what shows it, else without a limit."""
    judged = []
    for op in ops:
        by_category = op.limit_source == "category"
        own_name = recording.meets(("kernels",)) and not recording.meets(("framework",))
        unknown = _BY_NAME if own_name else _SMALL_WORK if recording.platform == "cpu" else ()
        if by_category and op.family in unknown and not op.op.host_bytes:
            op = replace(op, limit="", limit_source="")
        elif by_category and op.family in _BY_SHAPE:
            limit, source = _limit(op, recording, config, chip)
            op = replace(op, limit=limit, limit_source=source)
        judged.append(op)
    return tuple(judged)


def _limit(op: OpFacts, recording: Recording, config: ExperimentConfig | None, chip: Chip | None) -> tuple[str, str]:
    """(limit, its source); empty where nothing tells."""
    rows = recording.rows
    ridge = chip.peak("bf16") / chip.hbm_bytes_per_s if chip is not None else 0.0
    if rows and (op.family == "attention kernel" or rows * FLOPS_PER_ROW_AND_BYTE < ridge):
        return "hbm", "iteration"
    # A processor's ridge is low, and a convolution reads its weights for many positions.
    if recording.platform == "cpu" and op.category == "convolution":
        return "compute", "category"
    # By its shapes, where the device's peaks are unknown.
    low = 0.0 if recording.platform == "cpu" else LOW
    high = HIGH_WITHOUT_TENSOR_CORES if "sgemm" in op.op.name else HIGH
    if (intensity := op.op.operational_intensity) is not None and not low <= intensity <= high:
        return ("compute" if intensity > high else "hbm"), "shapes"
    if op.family == "matmul" and (tile := _TILE.search(_SHAPES.sub("", op.op.name))):
        least = min(int(tile[1]), int(tile[2]))
        # What is narrow may be the columns: a training step or a convolution has many rows.
        many = recording.kind in ("training", "prefill") or op.category == "convolution"
        if 0 < least <= FEW_ROWS and not many and not _COMPLEX.search(op.op.name):
            return "hbm", "tile"
        # Without tensor cores the ridge is low.
        if least >= (2 * FEW_ROWS if op.category == "convolution" or "sgemm" in op.op.name else MANY_ROWS):
            return "compute", "tile"
    if recording.kind == "decode" and op.family == "attention kernel":
        return "hbm", "iteration"
    # A training step and a prefill run each matmul on all tokens of a batch.
    if recording.kind in ("training", "prefill") or (recording.may_train and config is not None):
        return "compute", "category"
    return "", ""
