"""Nsight Systems exports written table by table, as two of its versions lay them out."""

from __future__ import annotations

import sqlite3
from pathlib import Path

PROCESS = 0x0100_0001_0000_0000 >> 8 << 8
THREAD = 0x2A


class Export:
    """One export under construction; times in ns.  old: the columns of 2021, without graph nodes and text ids."""

    def __init__(self, path: Path, *, old: bool = False, gpu: str = "NVIDIA H100 80GB HBM3") -> None:
        self.path = path
        self.database = sqlite3.connect(path)
        self.strings: dict[str, int] = {}
        self.correlation = 0
        self.old = old
        self.run("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        graph = "" if old else ", graphNodeId INTEGER"
        self.run(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, "
            f"correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER{graph})"
        )
        self.run(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, "
            "correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER)"
        )
        self.run(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, correlationId INTEGER, "
            "globalTid INTEGER, nameId INTEGER)"
        )
        text_id = "" if old else ", textId INTEGER"
        self.run(f"CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, text TEXT, globalTid INTEGER{text_id})")
        memory = "" if old else ", totalMemory INTEGER"
        self.run(f"CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT{memory})")
        self.run(f"INSERT INTO TARGET_INFO_GPU VALUES (0, '{gpu}'{'' if old else ', 85018279936'})")
        self.run("CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)")
        self.run("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION', '2025.3.1')")

    def run(self, statement: str, *values: object) -> None:
        self.database.execute(statement, values)

    def string(self, text: str) -> int:
        if text not in self.strings:
            self.strings[text] = len(self.strings) + 1
            self.run("INSERT INTO StringIds VALUES (?, ?)", self.strings[text], text)
        return self.strings[text]

    def _launch(self, launch: int, process: int) -> int:
        self.correlation += 1
        self.run(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)",
            launch,
            launch + 2_000,
            self.correlation,
            process | THREAD,
            self.string("cudaLaunchKernel_v7000"),
        )
        return self.correlation

    def kernel(
        self, name: str, start: int, duration: int, launch: int, device: int = 0, process: int = PROCESS
    ) -> None:
        row = (start, start + duration, device, 7, self._launch(launch, process), process, self.string(name), 0)
        self.run(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * (8 if self.old else 9))})",
                 *row, *(() if self.old else (None,)))  # fmt: skip

    def copy(self, kind: int, start: int, duration: int, launch: int, size: int) -> None:
        row = (start, start + duration, 0, 7, self._launch(launch, PROCESS), PROCESS, size, kind)
        self.run("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *row)

    def range(self, text: str, start: int, duration: int, process: int = PROCESS) -> None:
        stored = (text,) if self.old else (None, process | THREAD, self.string(text))
        row = (start, start + duration, *stored) if not self.old else (start, start + duration, text, process | THREAD)
        self.run(f"INSERT INTO NVTX_EVENTS VALUES ({', '.join('?' * len(row))})", *row)

    def save(self) -> Path:
        self.database.commit()
        self.database.close()
        return self.path


def iterations(path: Path, *, old: bool = False, count: int = 3) -> Path:
    """Iterations of 1 ms: a copy from the host, a matmul and an all-reduce after it, exposed for 200 µs."""
    export = Export(path, old=old)
    for number in range(count):
        zero = 1_000_000 * number
        export.range(f"iteration {number}", zero, 1_000_000)
        export.range("layer.3", zero + 1_000, 90_000)
        export.range("aten::mm, op_id = 12, sizes = [[4096, 1024], [1024, 512]]", zero + 2_000, 8_000)
        export.copy(1, zero + 100_000, 100_000, zero + 1_500, 1_000_000)
        export.kernel("nvjet_tst_128x256_64x4_NTN", zero + 200_000, 400_000, zero + 3_000)
        export.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
                      zero + 600_000, 200_000, zero + 50_000)  # fmt: skip
    return export.save()
