"""What `asap record` is asked to record, checked before anything is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import prod

from experiments.trial.process import RecordError
from formatting.numbers import whole_number

#: Axis names by what they shard.  `replica` repeats weights; all other batch and sequence axes share them.
BATCH_AXES = ("replica", "data", "fsdp")
SEQ_AXES = ("seq", "context")
TENSOR_AXES = ("model", "tensor")
AXES = BATCH_AXES + SEQ_AXES + TENSOR_AXES

PLATFORMS = ("cpu", "tpu", "gpu")
LARGEST = 1 << 24


@dataclass(frozen=True)
class RecordSpec:
    """mesh: ((axis, size), …) major to minor.  devices: forced CPU devices, or None to take all there are."""

    mesh: tuple[tuple[str, int], ...]
    layers: int = 4
    d_model: int = 256
    d_ff: int = 1024
    heads: int = 8
    kv_heads: int = 4
    head_dim: int = 32
    vocab: int = 2048
    batch: int = 8
    seq_len: int = 256
    steps: int = 3
    platform: str = "cpu"

    @property
    def devices(self) -> int:
        return prod(size for _, size in self.mesh)

    def size(self, names: Sequence[str]) -> int:
        return prod(size for axis, size in self.mesh if axis in names)

    def check(self) -> None:
        """Raises RecordError for what does not divide or is out of range."""
        for name, value in asdict(self).items():
            if isinstance(value, int) and not 1 <= value <= LARGEST:
                option = name.replace("_", "-")
                raise RecordError(f"--{option}: {value} is out of range; give a number from 1 to {LARGEST}.")
        if self.steps > 100:
            raise RecordError(f"--steps: {self.steps} steps make a profile too large to convert; give at most 100.")
        if self.platform == "cpu" and self.devices > 256:
            raise RecordError(f"--mesh: {self.devices} CPU devices are too many for one machine; use at most 256.")
        tensor, seq, batch = self.size(TENSOR_AXES), self.size(SEQ_AXES), self.size(BATCH_AXES)
        weights = self.size(("data", "fsdp", *SEQ_AXES))
        for option, value, shards, what in (
            ("--batch", self.batch, batch, "replica, data and fsdp"),
            ("--seq-len", self.seq_len, seq, "seq"),
            ("--heads", self.heads, tensor, "model"),
            ("--kv-heads", self.kv_heads, tensor, "model"),
            ("--d-ff", self.d_ff, tensor, "model"),
            ("--vocab", self.vocab, tensor, "model"),
            ("--d-model", self.d_model, weights, "data, fsdp and seq (they share the weights)"),
            ("--heads", self.heads, self.kv_heads, "--kv-heads"),
        ):
            if value % shards:
                raise RecordError(f"{option}: {value} is not divisible by {shards}, the size of {what}; change either.")


def parse_mesh(text: str) -> tuple[tuple[str, int], ...]:
    """`data=4,model=2` as ((data, 4), (model, 2)).  Raises RecordError."""
    axes: dict[str, int] = {}
    for part in text.split(","):
        name, _, size = (piece.strip() for piece in part.partition("="))
        if name not in AXES:
            raise RecordError(f"--mesh: {name or part!r} is not an axis that can be recorded; use {', '.join(AXES)}.")
        if name in axes:
            raise RecordError(f"--mesh: the axis {name} is given twice; give each axis once.")
        number = whole_number(size, digits=9)
        if number is None or not 1 <= number <= LARGEST:
            raise RecordError(f"--mesh: {part.strip()!r} has no size; write it as {name}=2.")
        axes[name] = number
    return tuple(axes.items())
