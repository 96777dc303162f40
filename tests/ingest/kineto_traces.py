"""PyTorch traces written event by event, times in µs: a host thread, an autograd thread, streams of one GPU."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAIN, AUTOGRAD = 100, 200
H100 = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85018279936, "warpSize": 32, "numSms": 132}
GEMM = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTN"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)"


def collective(
    name: str, into: int, out: int, ranks: Sequence[int], description: str = "default_pg", dtype: str = "BFloat16"
) -> dict[str, Any]:
    """Arguments of a collective's kernel as Kineto writes them."""
    return {
        "Collective name": name,
        "In msg nelems": into,
        "Out msg nelems": out,
        "Group size": len(ranks),
        "dtype": dtype,
        "Process Group Name": "7",
        "Process Group Description": description,
        "Process Group Ranks": str(list(ranks)),
    }


@dataclass
class Trace:
    """One rank's trace under construction."""

    rank: int | None = 0
    world_size: int = 1
    device: dict[str, Any] = field(default_factory=lambda: dict(H100))
    events: list[dict[str, Any]] = field(default_factory=list)
    correlation: int = 0

    def host(
        self, category: str, name: str, start: float, duration: float, thread: int = MAIN, **arguments: Any
    ) -> None:
        self.events.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": 1,
                "tid": thread,
                "ts": start,
                "dur": duration,
                "args": arguments,
            }
        )

    def op(self, name: str, start: float, duration: float, thread: int = MAIN, **arguments: Any) -> None:
        self.host("cpu_op", name, start, duration, thread, **{key.replace("_", " "): v for key, v in arguments.items()})

    def step(self, number: int, start: float, duration: float) -> None:
        self.host("user_annotation", f"ProfilerStep#{number}", start, duration)

    def module(self, name: str, start: float, duration: float, thread: int = MAIN) -> None:
        self.host("python_function", f"nn.Module: {name}", start, duration, thread)

    def kernel(
        self,
        name: str,
        start: float,
        duration: float,
        *,
        launch: float | None = None,
        stream: int = 7,
        thread: int = MAIN,
        category: str = "kernel",
        arguments: dict[str, Any] | None = None,
    ) -> None:
        """A kernel, and where `launch` is given the 2 µs call that launched it."""
        self.correlation += 1
        args = {"device": 0, "stream": stream, "correlation": self.correlation, **(arguments or {})}
        self.events.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": 0,
                "tid": stream,
                "ts": start,
                "dur": duration,
                "args": args,
            }
        )
        if launch is not None:
            call = "cudaLaunchKernel" if category == "kernel" else "cudaMemcpyAsync"
            self.host("cuda_runtime", call, launch, 2, thread, correlation=self.correlation)

    def memory(self, time: float, allocated: int, device_type: int = 1) -> None:
        self.events.append(
            {
                "ph": "i",
                "cat": "cpu_instant_event",
                "name": "[memory]",
                "pid": 1,
                "tid": MAIN,
                "ts": time,
                "args": {"Total Allocated": allocated, "Device Id": 0, "Device Type": device_type},
            }
        )

    def document(self) -> dict[str, Any]:
        head: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [self.device]}
        if self.rank is not None:
            head["distributedInfo"] = {"backend": "nccl", "rank": self.rank, "world_size": self.world_size}
        return {**head, "traceEvents": self.events, "displayTimeUnit": "ms"}

    def save(self, path: Path) -> Path:
        data = json.dumps(self.document()).encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return path


def training(rank: int = 0, world_size: int = 8, *, steps: int = 3, late: float = 0.0) -> Trace:
    """Steps of 1000 µs: a matmul, an addition, and an all-reduce half hidden behind another product.

    Compute 300 µs + 200 µs, the all-reduce from 400 to 800, of which 200 are exposed; then 200 µs until the next step
    is launched.  late: by how much this rank comes later to the all-reduce, so that it spends less time in it.
    """
    trace = Trace(rank, world_size)
    for number in range(steps):
        zero = 1000.0 * number
        trace.step(number, zero, 1000)
        trace.op(
            "aten::mm",
            zero + 1,
            8,
            Input_Dims=[[4096, 1024], [1024, 512]],
            Input_type=["c10::BFloat16", "c10::BFloat16"],
        )
        trace.kernel(GEMM, zero + 100, 300, launch=zero + 2)
        trace.op("record_param_comms", zero + 12, 6)
        ranks = list(range(world_size))
        arguments = collective("allreduce", 1_000_000, 1_000_000, ranks)
        trace.kernel(ALL_REDUCE, zero + 400 + late, 400 - late, launch=zero + 14, stream=20, arguments=arguments)
        trace.op("aten::add", zero + 20, 6)
        trace.kernel(ADD, zero + 400, 200, launch=zero + 22)
    trace.step(steps, 1000.0 * steps, 30)  # closed by the profiler: nothing was launched in it
    return trace
