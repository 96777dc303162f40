"""A cluster and a program of our own making: how long kernels, transfers and stalls take in one simulated world.

What it shares with the performance model is geometry (which links a mesh axis lies on), data sheets and FLOP counts.
Everything that turns those into seconds has another form here and is drawn per world: matmuls pay for tiles,
waves, weight loads and re-read operands; rings for hops, calls and small messages; dimensions add imperfectly; what a
schedule hides is decided layer by layer.  No fitted efficiency enters.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from hashlib import sha256
from math import ceil

import numpy as np

from perfmodel.chips import Chip, get_chip
from perfmodel.config import Hardware, Mesh
from perfmodel.topology import lay_out, physical_dims

#: Streaming multiprocessors of a GPU; all parts of the catalogue have 108 to 160.
MULTIPROCESSORS = 132
GPU_TILE = (128, 256)


@dataclass(frozen=True)
class World:
    """Draws of one world.  Shares 0–1 of a data sheet's number unless said otherwise.

    matmul: of peak, for a large product; block: rows and columns of an output block kept on chip, which decides how
    often operands are read again; weight_load: how long loading a tile of weights takes, in rows of work; launch_s: per
    kernel.  attention: of peak in the kernel's forward pass; attention_backward: the same relative to it; contiguous:
    whether a causal sequence is cut into contiguous parts.  stream: of HBM bandwidth in elementwise work,
    product_stream in products; passes: elementwise reads and writes per layer forward, in tensors of d_model per token;
    act_passes: in tensors as wide as the MLP.  link, network: of link and network bandwidth; several: how far further
    dimensions add; small_bytes: message at which half the bandwidth is reached; hop_s, call_s: per hop, per collective.
    slow_dim: the dimension of the slice whose links run at `slow` of their rate, -1 for none.
    hidden: of each kind's time, what a schedule can hide at most; cover: of the layer's own work, how much can cover
    transfers.  reshard: 0, or copies per layer (`copy`) or an all-to-all (`all-to-all`) wherever sequence and tensor
    axis meet, as a share of a layer's activations.  input_share: input time over the step of the baseline; prefetch:
    whether it runs beside the step.  gap_s: per step on the host; host_launch_s: the host's time per kernel (GPU).
    imbalance: of the fullest expert over the mean, with one expert per chip.  straggle: time lost to the slowest core.
    replicated_norms: whether elementwise work is repeated on every tensor shard.  noise: of every op's duration.
    """

    matmul: float = 0.8
    block: int = 1024
    weight_load: float = 0.5
    launch_s: float = 3e-6
    attention: float = 0.5
    attention_backward: float = 0.9
    contiguous: bool = False
    stream: float = 0.75
    product_stream: float = 0.8
    passes: float = 14.0
    act_passes: float = 4.0
    link: float = 0.8
    network: float = 0.7
    several: float = 0.8
    small_bytes: float = 2e6
    hop_s: float = 1e-6
    call_s: float = 8e-6
    slow_dim: int = -1
    slow: float = 1.0
    hidden_weights: float = 0.8
    hidden_tensor: float = 0.3
    hidden_seq: float = 0.5
    hidden_expert: float = 0.3
    hidden_pipeline: float = 0.5
    hidden_dcn: float = 0.6
    cover: float = 0.8
    reshard: float = 0.0
    reshard_kind: str = "copy"
    input_share: float = 0.0
    prefetch: bool = True
    gap_s: float = 2e-3
    host_launch_s: float = 0.0
    imbalance: float = 0.1
    straggle: float = 0.01
    replicated_norms: bool = False
    intervals: bool = True
    noise: float = 0.04


def digest(text: str) -> int:
    return int(sha256(text.encode()).hexdigest()[:12], 16)


def drawn(name: str, gpu: bool, **fixed: float | int | str | bool) -> World:
    """The world of a scenario: everything drawn by a hash of its name but for what the scenario is about."""
    draw = random.Random(digest(f"world {name}"))
    return replace(
        World(
            matmul=draw.uniform(0.6, 0.92),
            block=draw.choice((512, 1024, 2048)),
            weight_load=draw.uniform(0.2, 1.0),
            launch_s=draw.uniform(1e-6, 6e-6),
            attention=draw.uniform(0.3, 0.7),
            attention_backward=draw.uniform(0.7, 1.0),
            contiguous=draw.random() < 0.4,
            stream=draw.uniform(0.55, 0.9),
            product_stream=draw.uniform(0.6, 0.9),
            passes=draw.uniform(6.0, 20.0),
            act_passes=draw.uniform(2.0, 6.0),
            link=draw.uniform(0.55, 0.95),
            network=draw.uniform(0.45, 0.9),
            several=draw.uniform(0.5, 1.0),
            small_bytes=10 ** draw.uniform(5.5, 7.0),
            hop_s=draw.uniform(0.5e-6, 2e-6),
            call_s=draw.uniform(10e-6, 40e-6) if gpu else draw.uniform(2e-6, 15e-6),
            hidden_weights=draw.uniform(0.4, 0.95),
            hidden_tensor=draw.uniform(0.0, 0.4) if gpu else draw.uniform(0.1, 0.7),
            hidden_seq=draw.uniform(0.1, 0.8),
            hidden_expert=draw.uniform(0.0, 0.6),
            hidden_pipeline=draw.uniform(0.2, 0.9),
            hidden_dcn=draw.uniform(0.3, 0.9),
            cover=draw.uniform(0.6, 1.0),
            gap_s=draw.uniform(1e-3, 8e-3),
            host_launch_s=draw.uniform(4e-6, 15e-6) if gpu else 0.0,
            imbalance=draw.uniform(0.05, 0.3),
            straggle=draw.uniform(0.0, 0.03),
            replicated_norms=draw.random() < 0.2,
            intervals=draw.random() < 0.6,
        ),
        **fixed,  # type: ignore[arg-type]
    )


@dataclass(frozen=True)
class Kernel:
    """FLOPs, bytes through HBM and seconds of one kernel."""

    flops: float
    moved: float
    seconds: float


class Cluster:
    """Chips and links of one mesh in one world."""

    def __init__(self, world: World, hardware: Hardware, mesh: Mesh, precision: str) -> None:
        self.world, self.mesh, self.hardware = world, mesh, hardware
        self.chip: Chip = get_chip(hardware.chip)
        self.peak, self.band = self.chip.peak(precision), self.chip.hbm_bytes_per_s
        self.attention_peak = min(self.chip.peak("bf16"), self.peak)
        self.gpu = self.chip.kind == "gpu"
        self.dims = physical_dims(self.chip, hardware.topology)
        self.layout = lay_out(np.array([[size for _, size in mesh.ici]]), self.dims)
        self.wraps = self.chip.wraps(self.dims) if not self.gpu else (False,) * len(self.dims)

    def product(self, m: float, k: float, n: float) -> Kernel:
        """C[m, n] = A[m, k] · B[k, n], B the stationary operand."""
        w = self.world
        m, k, n = (max(1.0, round(size)) for size in (m, k, n))
        flops = 2.0 * m * k * n
        if self.gpu:
            rows, columns = GPU_TILE
            waves = ceil(ceil(m / rows) * ceil(n / columns) / MULTIPROCESSORS)
            arithmetic = waves * 2.0 * rows * columns * (k + 256.0) / (self.peak / MULTIPROCESSORS * w.matmul)
        else:
            edge = float(self.chip.matrix_tile or 128)
            padded = 2.0 * ceil(m / 8) * 8 * ceil(k / edge) * edge * ceil(n / edge) * edge
            stationary = max(1.0, w.weight_load * edge / m)
            arithmetic = padded / self.peak / w.matmul * stationary
        reread = 2.0 * (m * k * ceil(n / w.block / 4) + k * n * ceil(m / w.block / 4) + m * n)
        streaming = reread / self.band / w.product_stream
        return Kernel(flops, 2.0 * (m * k + k * n + m * n), max(arithmetic, streaming) + w.launch_s)

    def scores(self, queries: float, keys: float, width: float, parts: int, backward: bool) -> Kernel:
        """Causal attention of `queries` tokens over `keys`; width: heads times head size; parts of the sequence."""
        w = self.world
        uneven = (2.0 * parts - 1.0) / parts if w.contiguous else 1.0
        block = 512.0 if not self.gpu else 128.0
        flops = 4.0 * queries * (keys / 2.0) * width * (2.5 if backward else 1.0)
        executed = flops * (1.0 + block / keys) * uneven
        share = w.attention * (w.attention_backward if backward else 1.0)
        moved = 8.0 * queries * width * (2.0 if backward else 1.0)
        seconds = max(executed / self.attention_peak / share, moved / self.band / w.stream) + w.launch_s
        return Kernel(flops, moved, seconds)

    def pass_over(self, moved: float) -> Kernel:
        """Elementwise work that moves so many bytes."""
        return Kernel(moved / 2.0, moved, moved / self.band / self.world.stream + self.world.launch_s)

    def members(self, axes: tuple[str, ...]) -> list[int]:
        return [at for at, (name, size) in enumerate(self.mesh.ici) if name in axes and size > 1]

    def transfer_s(self, kind: str, axes: tuple[str, ...], whole_bytes: float, neighbours: bool = False) -> float:
        """Seconds of one collective; whole_bytes: the gathered, or the scattered, array; of an all-to-all and a permute
        what a chip holds."""
        index = self.members(axes)
        if not index or whole_bytes <= 0:
            return 0.0
        extent = np.prod(self.layout.extents[0][index], axis=0).astype(float)
        start = np.where(
            extent > 1, np.min(np.where(self.layout.extents[0][index] > 1, self.layout.start[0][index], 1 << 30), 0), 1
        )
        if self.gpu:
            seconds = self._switched_s(kind, extent, whole_bytes)
        else:
            seconds = self._torus_s(kind, extent, start, whole_bytes)
        return seconds * (2.0 if kind == "all-reduce" else 1.0)

    def _torus_s(self, kind: str, extent: np.ndarray, start: np.ndarray, whole: float) -> float:
        w = self.world
        rates, spread, hops = [], 0.0, 0.0
        size = float(np.prod(extent))
        for at, n in enumerate(extent):
            if n <= 1:
                continue
            ring = self.wraps[at] and start[at] * n == self.dims[at]
            link = self.chip.ici_link_bytes_per_s * w.link / start[at] * (w.slow if at == w.slow_dim else 1.0)
            rates.append(link * (2.0 if ring else 1.0))
            spread = max(spread, whole * (n / 8.0 if ring else n / 4.0) / link)
            hops += (n / 2.0 if ring else n - 1.0) * start[at]
        best = max(rates)
        rate = best + w.several * (sum(rates) - best)
        overhead = w.hop_s * hops + w.call_s
        if kind == "all-to-all":
            return spread + overhead
        if kind == "collective-permute":
            return whole / min(rates) + w.hop_s + w.call_s
        return (whole + w.small_bytes) * (size - 1.0) / size / rate + overhead

    def _switched_s(self, kind: str, extent: np.ndarray, whole: float) -> float:
        w = self.world
        nodes, inside = float(extent[0]), float(extent[1])
        nvlink = self.chip.nvlink_bytes_per_s * w.link * (w.slow if w.slow_dim == 1 else 1.0)
        card = self.chip.dcn_bytes_per_s_per_chip * w.network * (w.slow if w.slow_dim == 0 else 1.0)
        overhead = w.call_s * (1.0 + 0.3 * np.log2(nodes * inside))
        if kind == "collective-permute":
            return whole / (card if nodes > 1 else nvlink) + overhead
        if kind == "all-to-all":
            return whole * (inside - 1) / inside / nvlink + whole * (nodes - 1) / nodes / card + overhead
        size = nodes * inside
        padded = whole + w.small_bytes
        slowest = padded * (nodes - 1) / nodes / (card * inside)
        within = padded * (inside - 1) / size / nvlink if nodes > 1 else padded * (inside - 1) / inside / nvlink
        # Rings over nodes and inside them are pipelined, but not fully.
        return float(max(slowest, within) + 0.3 * min(slowest, within) + overhead)

    def across_s(self, size: int, whole_bytes: float) -> float:
        """All-reduce over `size` slices of what each chip holds."""
        if size <= 1:
            return 0.0
        rate = self.chip.dcn_bytes_per_s_per_chip * self.world.network
        return 2.0 * whole_bytes * (size - 1) / size / rate + 2e-4
