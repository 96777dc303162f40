"""The ops of one training step on one core, in order, before they are given times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from evaluation.reconstruct.hlo import instruction, shape


@dataclass(frozen=True)
class StepOp:
    """One HLO op.  flops and bytes are of one occurrence on one core.

    timing: how it gets its time.  `printed`: from the paper's table; `communication`: its share of what the printed
    communication leaves; `exposed`: of the exposed communication that is assumed beside the printed one; `hidden`: a
    fixed short time (start and end of an overlapped transfer); `filler`: its share of the rest of the busy step, in
    proportion to its roofline time.  weight_s: time at the roofline (`filler`), or relative weight (`communication`,
    `exposed`).  printed: index of its row in the paper's table.
    """

    name: str
    category: str
    hlo: str
    op_name: str
    source: str
    timing: str
    flops: int = 0
    hbm_bytes: int = 0
    vmem_read_bytes: int = 0
    vmem_write_bytes: int = 0
    weight_s: float = 0.0
    printed: int | None = None

    def part(self, index: int, parts: int) -> StepOp:
        """One of `parts` equal pieces, as a compiler splits an op into blocks of rows."""
        name = f"{self.name}.block{index}"
        return replace(
            self,
            name=name,
            hlo=self.hlo.replace(f"%{self.name} =", f"%{name} =", 1),
            flops=self.flops // parts,
            hbm_bytes=self.hbm_bytes // parts,
            weight_s=self.weight_s / parts,
        )


@dataclass
class StepOps:
    """The step in order: head once, forward and backward `iterations` times each, middle and tail once."""

    iterations: int
    head: list[StepOp] = field(default_factory=list)
    forward: list[StepOp] = field(default_factory=list)
    middle: list[StepOp] = field(default_factory=list)
    backward: list[StepOp] = field(default_factory=list)
    tail: list[StepOp] = field(default_factory=list)

    def sections(self) -> tuple[tuple[list[StepOp], int], ...]:
        """(ops, how often they run in one step)."""
        n = self.iterations
        return ((self.head, 1), (self.forward, n), (self.middle, 1), (self.backward, n), (self.tail, 1))

    def in_order(self) -> list[StepOp]:
        return [op for ops, times in self.sections() for _ in range(times) for op in ops]

    def split_long_ops(self, limit_share: float) -> None:
        """Splits fillers so that none takes more than `limit_share` of the time that all fillers take."""
        weight = sum(op.weight_s * times for ops, times in self.sections() for op in ops if op.timing == "filler")
        for ops, times in self.sections():
            split: list[StepOp] = []
            for op in ops:
                share = op.weight_s * times / weight if op.timing == "filler" else 0.0
                parts = int(share / limit_share) + 1
                split += [op] if parts == 1 else [op.part(i, parts) for i in range(parts)]
            ops[:] = split


@dataclass(frozen=True)
class Workload:
    """An assumed dense decoder on one core of the mesh; everything here is assumed unless the paper prints it.

    tokens: of this core's (data, seq) shard.  sequences: of this core's data shard.  model: tensor-parallel shards.
    layers_per_iteration: unrolled in one iteration of the layer loop.  optimizer_shards: cores that share one optimizer
    state.  recompute: the backward pass repeats the forward one.  matmul_intensity: FLOP per HBM byte of a matmul,
    None where every operand and result moves once.  tensor_groups: `replica_groups` of the tensor axis where
    activations are sharded over it between the matmuls, so that every block begins with an all-gather of them and ends
    with a reduce-scatter; activations: element type of what travels there.
    """

    layers: int
    layers_per_iteration: int
    d_model: int
    d_ff: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tokens: int
    sequences: int
    seq_len: int
    model: int
    optimizer_shards: int
    recompute: bool = True
    matmul_intensity: float | None = None
    tensor_groups: str = ""
    activations: str = "bf16"

    @property
    def iterations(self) -> int:
        return self.layers // self.layers_per_iteration

    @property
    def layer_parameters(self) -> int:
        attention = self.d_model * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return attention + 3 * self.d_model * self.d_ff

    @property
    def parameters(self) -> int:
        return self.layers * self.layer_parameters + 2 * self.vocab * self.d_model


class StepBuilder:
    """Writes the ops of a `Workload` with their FLOPs, HBM bytes and roofline times on one core."""

    def __init__(self, workload: Workload, peak_flops_per_s: float, hbm_bytes_per_s: float) -> None:
        self.work = workload
        self._peak = peak_flops_per_s
        self._hbm = hbm_bytes_per_s
        self._count = 0
        self._line = 40
        self._scope = ""

    def _next(self, stem: str) -> str:
        self._count += 1
        return f"{stem}.{self._count}"

    def _op(
        self, stem: str, category: str, call: str, result: str, operands: Sequence[str], where: str,
        flops: float, hbm_bytes: float,
    ) -> StepOp:  # fmt: skip
        name = self._next(stem)
        self._line += 1
        return StepOp(
            name=name,
            category=category,
            hlo=instruction(name, result, call, operands),
            op_name=f"{self._scope}/{where}",
            source=f"assumed_transformer.py:{self._line}",
            timing="filler",
            flops=round(flops),
            hbm_bytes=round(hbm_bytes),
            weight_s=max(flops / self._peak, hbm_bytes / self._hbm),
        )

    def matmul(self, m: int, k: int, n: int, where: str) -> StepOp:
        """[m, k] × [k, n] in bf16."""
        operands = [f"{shape('bf16', m, k)} %lhs", f"{shape('bf16', k, n)} %rhs"]
        flops = 2.0 * m * k * n
        bytes_moved = 2.0 * (m * k + k * n + m * n)
        if self.work.matmul_intensity is not None:
            bytes_moved = flops / self.work.matmul_intensity
        return self._op(
            "convolution_fusion", "convolution fusion", "fusion", shape("bf16", m, n), operands,
            f"{where}/dot_general", flops, bytes_moved,
        )  # fmt: skip

    def elementwise(self, rows: int, columns: int, arrays: int, where: str, flops_each: int = 4) -> StepOp:
        """A loop fusion over [rows, columns] bf16 that reads and writes `arrays` arrays in all."""
        operands = [f"{shape('bf16', rows, columns)} %p{i}" for i in range(max(1, arrays - 1))]
        return self._op(
            "loop_fusion", "loop fusion", "fusion", shape("bf16", rows, columns), operands, where,
            float(flops_each) * rows * columns, 2.0 * rows * columns * arrays,
        )  # fmt: skip

    def attention(self, kernel: str, matmuls: int, where: str) -> StepOp:
        """A causal flash-attention kernel with `matmuls` matmuls of [queries, head] and [keys, head]."""
        w = self.work
        heads, kv = max(1, w.heads // w.model), max(1, w.kv_heads // w.model)
        queries = w.tokens // w.sequences
        result = shape("bf16", w.sequences, heads, queries, w.head_dim)
        keys = shape("bf16", w.sequences, kv, w.seq_len, w.head_dim)
        flops = 0.5 * matmuls * 2 * w.tokens * w.seq_len * heads * w.head_dim
        q_bytes = 2 * w.tokens * heads * w.head_dim
        kv_bytes = 2 * w.sequences * w.seq_len * kv * w.head_dim
        return self._op(
            kernel, "custom-call", "custom-call", result, [f"{result} %q", f"{keys} %k", f"{keys} %v"],
            f"{where}/pallas_call", flops, matmuls * q_bytes + 2 * kv_bytes,
        )  # fmt: skip

    def exchange(self, kind: str, where: str) -> list[StepOp]:
        """The all-gather or reduce-scatter of a block's activations over the tensor axis; none where they lie whole."""
        w = self.work
        if not w.tensor_groups:
            return []
        name = self._next(kind)
        self._line += 1
        rows = w.tokens // w.sequences
        whole = shape(w.activations, w.sequences, rows, w.d_model)
        part = shape(w.activations, w.sequences, rows // w.model, w.d_model)
        result, operand = (whole, part) if kind == "all-gather" else (part, whole)
        size = (2 if w.activations == "bf16" else 4) * w.tokens * w.d_model
        hlo = instruction(
            name, result, kind, [f"{operand} %x.{self._count}"], f"channel_id={300 + self._count}", w.tensor_groups,
            "dimensions={1}", "use_global_device_ids=true",
        )  # fmt: skip
        primitive = "all_gather" if kind == "all-gather" else "reduce_scatter"
        return [
            StepOp(
                name=name,
                category=kind,
                hlo=hlo,
                op_name=f"{self._scope}/{where}/{primitive}",
                source=f"assumed_transformer.py:{self._line}",
                timing="exposed",
                hbm_bytes=round(size * (1.0 + 1.0 / w.model)),
                weight_s=1.0,
            )
        ]

    def layer_forward(self, layer: int, recomputed: bool = False) -> list[StepOp]:
        """One layer; `recomputed`: as the backward pass repeats it under full rematerialisation."""
        w = self.work
        inside = "rematted_computation/" if recomputed else ""
        phase = "transpose(jvp(while))/body/checkpoint" if recomputed else "jvp(while)/body"
        self._scope = f"jit(train_step)/{phase}/{inside}layer_{layer}"
        q, kv, ff = w.heads * w.head_dim // w.model, w.kv_heads * w.head_dim // w.model, w.d_ff // w.model
        ops = [
            self.elementwise(w.tokens, w.d_model, 2, "attention_norm/mul"),
            *self.exchange("all-gather", "attention"),
            self.matmul(w.tokens, w.d_model, q + 2 * kv, "attention/qkv"),
            self.elementwise(w.tokens, q + kv, 2, "attention/rope/mul"),
            self.attention("flash_attention_fwd", 2, "attention"),
            self.matmul(w.tokens, q, w.d_model, "attention/out"),
            *self.exchange("reduce-scatter", "attention"),
            self.elementwise(w.tokens, w.d_model, 3, "attention/residual/add"),
            self.elementwise(w.tokens, w.d_model, 2, "mlp_norm/mul"),
            *self.exchange("all-gather", "mlp"),
            self.matmul(w.tokens, w.d_model, ff, "mlp/gate"),
            self.matmul(w.tokens, w.d_model, ff, "mlp/up"),
            self.elementwise(w.tokens, ff, 3, "mlp/silu/mul"),
        ]
        if not recomputed:
            ops += [
                self.matmul(w.tokens, ff, w.d_model, "mlp/down"),
                *self.exchange("reduce-scatter", "mlp"),
                self.elementwise(w.tokens, w.d_model, 3, "mlp/residual/add"),
            ]
        return ops

    def layer_backward(self, layer: int) -> list[StepOp]:
        w = self.work
        ops = self.layer_forward(layer, recomputed=True) if w.recompute else []
        self._scope = f"jit(train_step)/transpose(jvp(while))/body/layer_{layer}"
        q, kv, ff = w.heads * w.head_dim // w.model, w.kv_heads * w.head_dim // w.model, w.d_ff // w.model

        ops += [
            *self.exchange("all-gather", "mlp/transpose"),
            self.matmul(w.tokens, w.d_model, ff, "mlp/down/dgrad"),
            self.matmul(ff, w.tokens, w.d_model, "mlp/down/wgrad"),
            self.elementwise(w.tokens, ff, 5, "mlp/silu/transpose"),
            self.matmul(w.tokens, ff, w.d_model, "mlp/up/dgrad"),
            self.matmul(w.tokens, ff, w.d_model, "mlp/gate/dgrad"),
            self.matmul(w.d_model, w.tokens, ff, "mlp/up/wgrad"),
            self.matmul(w.d_model, w.tokens, ff, "mlp/gate/wgrad"),
            *self.exchange("reduce-scatter", "mlp/transpose"),
            self.elementwise(w.tokens, w.d_model, 4, "mlp_norm/transpose"),
            *self.exchange("all-gather", "attention/transpose"),
            self.matmul(w.tokens, w.d_model, q, "attention/out/dgrad"),
            self.matmul(q, w.tokens, w.d_model, "attention/out/wgrad"),
            self.attention("flash_attention_dq", 3, "attention"),
            self.attention("flash_attention_dkv", 5, "attention"),
            self.elementwise(w.tokens, q + kv, 2, "attention/rope/transpose"),
            self.matmul(w.tokens, q + 2 * kv, w.d_model, "attention/qkv/dgrad"),
            self.matmul(w.d_model, w.tokens, q + 2 * kv, "attention/qkv/wgrad"),
            *self.exchange("reduce-scatter", "attention/transpose"),
            self.elementwise(w.tokens, w.d_model, 5, "attention_norm/transpose"),
        ]
        return ops

    def build(self) -> StepOps:
        """The whole step: embedding, layers, loss, layers backward, optimizer."""
        w = self.work
        step = StepOps(w.iterations)
        vocab = w.vocab // w.model
        self._scope = "jit(train_step)/jvp()"
        step.head = [self.elementwise(w.tokens, w.d_model, 2, "embed/gather", flops_each=0)]
        for layer in range(w.layers_per_iteration):
            step.forward += self.layer_forward(layer)
            step.backward += self.layer_backward(layer)
        self._scope = "jit(train_step)/jvp()"
        step.middle = [
            self.elementwise(w.tokens, w.d_model, 2, "final_norm/mul"),
            self.matmul(w.tokens, w.d_model, vocab, "logits"),
            self.elementwise(w.tokens, vocab, 2, "loss/reduce_max"),
            self.elementwise(w.tokens, vocab, 3, "loss/softmax/exp"),
        ]
        self._scope = "jit(train_step)/transpose(jvp())"
        step.middle += [
            self.matmul(w.tokens, vocab, w.d_model, "logits/dgrad"),
            self.matmul(w.d_model, w.tokens, vocab, "logits/wgrad"),
        ]
        self._scope = "jit(train_step)/adamw"
        # Reads and writes f32 parameter and two moments, reads the gradient: seven f32 arrays, three and a half of bf16
        # pairs, hence 14 bf16 arrays.
        rows = max(1, w.layer_parameters // (w.model * w.optimizer_shards) // 1024)
        step.tail = [
            self.elementwise(rows * w.layers_per_iteration, 1024, 14, f"update/block_{i}/mul", flops_each=12)
            for i in range(w.iterations)
        ]
        self._scope = "jit(train_step)/transpose(jvp())"
        step.tail.insert(0, self.elementwise(w.tokens, w.d_model, 3, "embed/scatter-add", flops_each=1))
        return step
