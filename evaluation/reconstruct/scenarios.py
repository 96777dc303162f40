"""The three reconstructions: printed experiment, assumed workload, and the place of the printed ops in the step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from evaluation.reconstruct import paper
from evaluation.reconstruct.hlo import instruction, replica_groups, ring_pairs, shape
from evaluation.reconstruct.step import StepBuilder, StepOp, StepOps, Workload


@dataclass(frozen=True)
class Part:
    """A TPU core as XProf knows it.  TFLOP/s and GB/s, the units of the profile's own plane facts.

    Sources: Cloud TPU documentation (peaks; the printed efficiencies of experiment 2 give whole powers of two with
    exactly these), How to Scale Your Model ch. 1 (VMEM about 22 times HBM).
    """

    device_type: str
    chip: str
    teraflops_per_s: float
    hbm_gigabytes_per_s: float

    @property
    def vmem_gigabytes_per_s(self) -> float:
        return 22.0 * self.hbm_gigabytes_per_s


V5P = Part("TPU v5p", "v5p", 459.0, 2765.0)
V6E = Part("TPU v6e", "v6e", 918.0, 1638.0)
V5E = Part("TPU v5e", "v5e", 197.0, 819.0)


@dataclass(frozen=True)
class Omission:
    """Occurrences of a printed op that the profile lacks: `on_core(core)` of them, in step `step` (0 is the first)."""

    printed: int
    step: int
    on_core: Callable[[int], int]


@dataclass(frozen=True)
class Scenario:
    """One reconstruction.

    steps: complete steps recorded.  leading_iterations: iterations of the backward layer loop that ran before the first
    complete step (with all that follows them in a step).  hosts, cores_per_host: what is recorded, of hosts_total.
    counts_all_reduces_only: the printed communication is the time of all-reduces, and says nothing of other
    collectives; exposed_share: what those that are not printed take of the step, 0–1, assumed.
    """

    key: str
    printed: paper.PrintedExperiment
    part: Part
    workload: Workload
    steps: int
    hosts: int
    hosts_total: int
    cores_per_host: int
    place: Callable[[Scenario, StepOps], None]
    leading_iterations: int = 0
    omissions: tuple[Omission, ...] = field(default=())
    counts_all_reduces_only: bool = False
    exposed_share: float = 0.0

    @property
    def step_ps(self) -> int:
        return round(self.printed.step_time_ms * 1e9)

    @property
    def busy_ps(self) -> int:
        return round(self.printed.step_time_ms * 1e9 * self.printed.duty_cycle)

    def ops(self) -> StepOps:
        """The step with the printed ops in place and every other op shorter than the shortest of them."""
        builder = StepBuilder(self.workload, self.part.teraflops_per_s * 1e12, self.part.hbm_gigabytes_per_s * 1e9)
        step = builder.build()
        # Of the fillers' time, which is what the exposed communication leaves.
        step.split_long_ops(
            limit_share=0.97 * self.printed_share(len(self.printed.ops) - 1) / (1.0 - self.exposed_share)
        )
        self.place(self, step)
        return step

    def printed_share(self, index: int) -> float:
        """Share of the total self time (0–1) of a printed op; from its total where the paper prints one."""
        row = self.printed.ops[index]
        if row.total_ps is None or row.occurrences is None:
            return row.time_share
        per_step = self.per_step[index]
        return row.total_ps / row.occurrences * per_step / self.step_ps

    @property
    def per_step(self) -> tuple[int, ...]:
        """Occurrences of each printed op in one whole step on one core (derived, see docs/reconstruction.md)."""
        return {1: (8,) * 5, 2: (7, 7, 44, 11, 11), 3: (16,) * 5}[self.printed.number]

    def average_ps(self, index: int) -> float:
        """Mean duration of one occurrence of a printed op."""
        row = self.printed.ops[index]
        if row.total_ps is not None and row.occurrences is not None:
            return row.total_ps / row.occurrences
        return row.time_share * self.step_ps / self.per_step[index]

    def printed_op(self, index: int, name: str, hlo: str, op_name: str) -> StepOp:
        """The printed row as an op whose FLOPs and bytes give back the printed efficiencies."""
        row, seconds, part = self.printed.ops[index], self.average_ps(index) / 1e12, self.part
        bound = row.bound_by
        memory = row.memory_utilization if row.memory_utilization is not None else row.roofline_efficiency
        compute = row.compute_efficiency
        if compute is None:
            compute = row.roofline_efficiency if bound == "Compute" else 0.0
        hbm = memory * part.hbm_gigabytes_per_s * 1e9 * seconds
        if bound == "Compute" and row.memory_utilization is None:
            hbm = 0.5 * hbm  # not printed: anything below the compute efficiency leaves the op compute-bound
        # XProf's roofline efficiency counts HBM only; VMEM is what bounds an op when it is used more than HBM.
        vmem = 2.0 * memory * part.vmem_gigabytes_per_s * 1e9 * seconds
        return StepOp(
            name=name,
            category=row.category,
            hlo=hlo,
            op_name=f"jit(train_step)/{op_name}",
            source="assumed_transformer.py:12",
            timing="printed",
            flops=round(compute * part.teraflops_per_s * 1e12 * seconds),
            hbm_bytes=round(hbm),
            vmem_read_bytes=round(vmem) if bound == "VMEM Read" else 0,
            vmem_write_bytes=round(vmem) if bound == "VMEM Write" else 0,
            printed=index,
        )

    def all_reduce(self, name: str, dims: tuple[int, ...], dtype: str, axes: tuple[str, ...], channel: int) -> str:
        result = shape(dtype, *dims)
        return instruction(
            name, result, "all-reduce", [f"{result} %p.{channel}"], f"channel_id={channel}",
            replica_groups(self.printed.mesh, axes), "use_global_device_ids=true", "to_apply=%add",
        )  # fmt: skip

    def small_all_reduces(self, count: int, dims: tuple[int, ...], axes: tuple[str, ...], where: str) -> list[StepOp]:
        """All-reduces that share what the printed communication leaves; payload `dims` in bf16."""
        size = 2
        for dim in dims:
            size *= dim
        return [
            StepOp(
                name=f"all-reduce.{20 + i}",
                category="all-reduce",
                hlo=self.all_reduce(f"all-reduce.{20 + i}", dims, "bf16", axes, 20 + i),
                op_name=f"jit(train_step)/transpose(jvp(while))/body/{where.format(layer=i // 2, part='kv'[i % 2])}",
                source="assumed_transformer.py:18",
                timing="communication",
                hbm_bytes=2 * size,
                weight_s=1.0,
            )
            for i in range(count)
        ]

    def overlapped(self, start: str, kind: str, where: str, axes: tuple[str, ...], channel: int) -> StepOp:
        """Start of a transfer that runs beside other ops."""
        result = shape("bf16", self.workload.d_model, self.workload.d_ff // self.workload.model)
        return StepOp(
            name=start,
            category=kind,
            hlo=instruction(
                start, result, "all-gather-start", [f"{result} %shard"], f"channel_id={channel}",
                replica_groups(self.printed.mesh, axes), "dimensions={0}", "use_global_device_ids=true",
            ),
            op_name=f"jit(train_step)/{where}",
            source="assumed_transformer.py:15",
            timing="hidden",
        )  # fmt: skip

    def weight_gathers(self, step: StepOps, axes: tuple[str, ...], wait: float = 0.0) -> None:
        """Fully sharded weights are gathered layer by layer, overlapped with compute: only start and end are seen.

        wait: weight of the end among the exposed communication, where compute does not hide all of it; 0 where it does.
        """
        for layer in range(self.workload.layers_per_iteration):
            result = shape("bf16", self.workload.d_model, self.workload.d_ff // self.workload.model)
            for number, (ops, phase) in enumerate(
                ((step.forward, "jvp(while)"), (step.backward, "transpose(jvp(while))"))
            ):
                label = 2 * layer + number
                start = self.overlapped(
                    f"all-gather-start.{label}", "all-gather-start", f"{phase}/body/layer_{layer}/all_gather", axes,
                    100 + label,
                )  # fmt: skip
                done = StepOp(
                    name=f"all-gather-done.{label}",
                    category="all-gather-done",
                    hlo=instruction(f"all-gather-done.{label}", result, "all-gather-done", [f"{result} %{start.name}"]),
                    op_name=start.op_name,
                    source=start.source,
                    timing="exposed" if wait else "hidden",
                    weight_s=wait,
                )
                ops.insert(0, start)
                ops.append(done)

    def async_done(self, index: int, stem: str, axes: tuple[str, ...], result: str, op_name: str) -> list[StepOp]:
        """Start and completion of a collective fused with other work; the completion carries the printed time."""
        start, done = f"async-collective-start.{stem}", f"async-collective-done.{stem}"
        opening = StepOp(
            name=start,
            category="custom fusion",
            hlo=instruction(
                start, result, "fusion", [f"{result} %shard.{stem}"], "kind=kCustom",
                f"calls=%async_collective_fusion.{stem}", f"channel_id={200 + index}",
                replica_groups(self.printed.mesh, axes), "dimensions={0}",
            ),
            op_name=f"jit(train_step)/{op_name}",
            source="assumed_transformer.py:15",
            timing="hidden",
        )  # fmt: skip
        closing_hlo = instruction(
            done, result, "fusion", [f"{result} %{start}"], "kind=kCustom", f"calls=%async_collective_done.{stem}"
        )
        return [opening, self.printed_op(index, done, closing_hlo, op_name)]


def _place_1(s: Scenario, step: StepOps) -> None:
    w = s.workload
    block = shape("bf16", w.sequences, w.tokens // w.sequences, w.d_model)
    weights = shape("bf16", w.d_model, w.d_ff // w.model)

    def call(index: int, name: str, where: str, operands: list[str]) -> StepOp:
        target = 'custom_call_target="tpu_custom_call"'
        return s.printed_op(index, name, instruction(name, block, "custom-call", operands, target), where)

    forward, backward = "jvp(while)/body/layer_0", "transpose(jvp(while))/body/layer_0"
    step.forward.insert(2, call(0, "point_to_point_transpose.1", f"{forward}/attention/transpose", [f"{block} %x"]))
    step.backward.insert(2, call(2, "point_to_point_transpose.2", f"{backward}/attention/transpose", [f"{block} %x"]))
    operands = [f"{block} %x", f"{weights} %w"]
    step.forward.append(call(3, "matmul_reduce_scatter.1", f"{forward}/mlp/down/dot_general", operands))
    step.forward.append(call(4, "all_gather_matmul.1", f"{forward}/mlp/up/dot_general", operands))
    s.weight_gathers(step, ("data", "seq"))
    start, done = s.async_done(1, "1", ("data", "seq"), weights, f"{backward}/mlp/all_gather")
    step.backward.insert(1, start)
    step.backward.append(done)
    keys = (w.sequences, w.seq_len, max(1, w.kv_heads // w.model), w.head_dim)
    step.backward += s.small_all_reduces(
        2 * w.layers_per_iteration, keys, ("seq",), "layer_{layer}/attention/d{part}/psum"
    )


def _place_2(s: Scenario, step: StepOps) -> None:
    w = s.workload
    # 1.5 GiB: half of the bytes that the printed bandwidth utilization moves (once read, once written).
    bucket = (w.vocab // 25, 196608)
    name = "all-reduce.1"
    gradients = s.printed_op(
        0, name, s.all_reduce(name, bucket, "bf16", ("data", "seq"), 1), "transpose(jvp())/gradients/psum"
    )
    start, done = s.async_done(1, "1", ("data", "seq"), shape("bf16", *bucket), "adamw/all_gather")
    step.tail[1:1] = [gradients] * s.per_step[0]
    step.tail += [start, done] * s.per_step[1]
    # A weight gradient over 512 tokens added to f32 sums of this shape moves the printed bytes and does the printed
    # FLOPs to 0.5 %.
    accumulator = shape("f32", w.d_model, 9 * 4096)
    fusion = s.printed_op(
        2,
        "bitcast_add_fusion.1",
        instruction(
            "bitcast_add_fusion.1", accumulator, "fusion",
            [f"{accumulator} %sum", f"{shape('bf16', 512, w.d_model)} %x", f"{shape('bf16', 512, 9 * 4096)} %dy"],
            "kind=kOutput", "calls=%bitcast_add",
        ),
        "transpose(jvp(while))/body/layer_0/mlp/add_any",
    )  # fmt: skip
    heads = shape("bf16", w.sequences, w.heads, w.tokens // w.sequences, w.head_dim)
    target = 'custom_call_target="tpu_custom_call"'
    flash, dkv = "flash_attention_forward.1", "flash_attention_dkv_fused.1"
    scope = "body/layer_0/attention/pallas_call"
    step.forward.insert(
        3,
        s.printed_op(
            3, flash, instruction(flash, heads, "custom-call", [f"{heads} %q"], target), f"jvp(while)/{scope}"
        ),
    )
    quarter = len(step.backward) // 4
    for i in reversed(range(4)):
        step.backward.insert(quarter * (i + 1), fusion)
    step.backward.insert(
        len(step.backward) // 2,
        s.printed_op(
            4, dkv, instruction(dkv, heads, "custom-call", [f"{heads} %q"], target), f"transpose(jvp(while))/{scope}"
        ),
    )
    # What the printed communication leaves is too short for K and V gradients: small weights, packed into 1 MiB.
    step.backward += s.small_all_reduces(2, (1024, 512), ("data", "seq"), "layer_{layer}/norm/d{part}/psum")


def _place_3(s: Scenario, step: StepOps) -> None:
    w = s.workload
    scope = "transpose(jvp(while))/body/layer_0"
    activations = (w.sequences, w.tokens // w.sequences, w.d_model)
    first = s.printed_op(
        0, "all-reduce.1", s.all_reduce("all-reduce.1", activations, w.activations, ("model",), 1), f"{scope}/mlp/psum"
    )
    second = s.printed_op(
        3, "all-reduce.2", s.all_reduce("all-reduce.2", (w.sequences, 440, w.d_model), w.activations, ("model",), 2),
        f"{scope}/attention/psum",
    )  # fmt: skip

    def scatter(index: int, number: int, where: str) -> StepOp:
        name = f"all-reduce-scatter-fusion.{number}"
        result = shape("bf16", w.d_model // 64, 2048)
        hlo = instruction(
            name, result, "fusion", [f"{shape('bf16', w.d_model, 2048)} %gradient.{number}"], "kind=kCustom",
            f"calls=%all-reduce-scatter.{number}", f"channel_id={10 + number}",
            replica_groups(s.printed.mesh, ("data", "seq")),
        )  # fmt: skip
        return s.printed_op(index, name, hlo, f"{scope}/{where}/psum_scatter")

    keys = shape("bf16", w.sequences, w.tokens // w.sequences, w.kv_heads // w.model, w.head_dim)
    permute = s.printed_op(
        2,
        "collective-permute.1",
        instruction(
            "collective-permute.1", keys, "collective-permute", [f"{keys} %k"], "channel_id=5",
            ring_pairs(s.printed.mesh, "seq"),
        ),
        f"{scope}/attention/ppermute",
    )  # fmt: skip
    length = len(step.backward)
    for position, op in (
        (length, scatter(1, 1, "mlp")),
        (3 * length // 4, scatter(4, 2, "attention")),
        (length // 2, second),
        (length // 4, first),
        (3, permute),
    ):
        step.backward.insert(position, op)
    s.weight_gathers(step, ("data", "seq"), wait=1.0)
    keys_of_all = (w.sequences, w.seq_len, w.kv_heads // w.model, w.head_dim)
    step.backward += s.small_all_reduces(
        2 * w.layers_per_iteration, keys_of_all, ("seq",), "layer_{layer}/attention/d{part}/psum"
    )


SCENARIOS = {
    scenario.key: scenario
    for scenario in (
        Scenario(
            key="asap-experiment-1",
            printed=paper.EXPERIMENT_1,
            part=V5P,
            workload=Workload(
                layers=96, layers_per_iteration=12, d_model=16384, d_ff=53248, heads=128, kv_heads=8, head_dim=128,
                vocab=128256, tokens=32768, sequences=32, seq_len=8192, model=8, optimizer_shards=64,
            ),
            steps=3,
            hosts=1,
            hosts_total=128,
            cores_per_host=4,
            place=_place_1,
        ),
        Scenario(
            key="asap-experiment-2",
            printed=paper.EXPERIMENT_2,
            part=V6E,
            workload=Workload(
                layers=22, layers_per_iteration=2, d_model=4096, d_ff=14336, heads=32, kv_heads=8, head_dim=128,
                vocab=102400, tokens=8192, sequences=4, seq_len=8192, model=1, optimizer_shards=16, recompute=False,
                matmul_intensity=0.1816 * 918e12 / (0.8176 * 1638e9),  # that of the one printed matmul
            ),
            steps=6,
            hosts=4,
            hosts_total=4,
            cores_per_host=4,
            place=_place_2,
            omissions=(
                Omission(2, 0, lambda core: 1),
                Omission(3, 0, lambda core: 1 if core < 8 else 0),
                Omission(4, 5, lambda core: 3 if core < 8 else 2),
            ),
        ),
        Scenario(
            key="asap-experiment-3",
            printed=paper.EXPERIMENT_3,
            part=V5E,
            workload=Workload(
                layers=64, layers_per_iteration=4, d_model=8192, d_ff=22016, heads=64, kv_heads=8, head_dim=128,
                vocab=32000, tokens=4096, sequences=2, seq_len=32768, model=4, optimizer_shards=64,
                tensor_groups=replica_groups(paper.EXPERIMENT_3.mesh, ("model",)), activations="f32",
            ),
            counts_all_reduces_only=True,
            exposed_share=0.33,
            steps=8,
            hosts=1,
            hosts_total=64,
            cores_per_host=4,
            place=_place_3,
            leading_iterations=4,
        ),
    )
}  # fmt: skip
