"""Writes the ops of a step one by one, each with its time from first principles, and enters all of it in a ledger."""

from __future__ import annotations

import random
from math import prod
from typing import Any

import numpy as np

from evaluation.steps.scenario import Scenario
from experiments.step_profile import Op
from perfmodel.chips import get_chip
from perfmodel.config import Hardware, Mesh
from perfmodel.topology import Links, collective_s, group_links, lay_out, network_links, physical_dims


class Writer:
    """Collects ops; times per step and core."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.s = scenario
        self.noise = random.Random(seed)
        self.chip = get_chip(scenario.chip)
        self.peak, self.band = self.chip.peak(scenario.precision), self.chip.hbm_bytes_per_s
        self.hardware = Hardware(scenario.chip, scenario.topology, prod(size for _, size in scenario.dcn))
        self.mesh = Mesh(scenario.ici, scenario.dcn)
        self.rows: list[tuple[Op, float]] = []
        self.costs: dict[str, float] = {}
        self.resources = dict.fromkeys(("compute", "memory", "communication"), 0.0)
        self.number = 0

    def _name(self, stem: str) -> str:
        self.number += 1
        return f"{stem}.{self.number}"

    def enter(self, resource: str, seconds: float, *causes: str) -> None:
        self.resources[resource] += seconds
        for cause in causes:
            self.costs[cause] = self.costs.get(cause, 0.0) + seconds

    def lose(self, cause: str, seconds: float) -> None:
        """Time already entered that has a second cause."""
        self.costs[cause] = self.costs.get(cause, 0.0) + seconds

    def links(self, names: list[str], over_dcn: bool) -> Links | None:
        """The links of these axes by the performance model; None where nothing is sent."""
        nic = self.chip.dcn_bytes_per_s_per_host / self.chip.chips_per_host
        if over_dcn:
            return network_links(self.mesh.dcn_product, nic) if self.mesh.dcn_product > 1 else None
        members = [at for at, (name, size) in enumerate(self.s.ici) if name in names and size > 1]
        if not members:
            return None
        dims = physical_dims(self.chip, self.s.topology)
        layout = lay_out(np.array([[size for _, size in self.s.ici]]), dims)
        wraps = self.chip.wraps(dims) if self.chip.kind == "tpu" else (False,) * len(dims)
        return group_links(self.chip, layout, members, wraps, nic)

    def work(
        self,
        stem: str,
        category: str,
        path: str,
        flops: float,
        moved: float,
        efficiency: float,
        count: int,
        line: str = "",
        cause: str = "",
    ) -> None:
        """`count` occurrences of an op with so much work each."""
        roof = max(flops / self.peak, moved / self.band)
        bound = "Compute" if flops / self.peak >= moved / self.band else "HBM"
        seconds = roof / efficiency * count * (1 + self.noise.uniform(-0.05, 0.05))
        rate = flops * count / seconds
        self.enter("compute" if bound == "Compute" else "memory", seconds, *([cause] if cause else []))
        if "rematted" in path:
            self.lose("recompute", seconds)
        if bound == "Compute" and efficiency < 0.5:
            self.lose("lost products", seconds * (1 - efficiency))
        self.rows.append(
            (
                Op(
                    self._name(stem),
                    category,
                    count,
                    0.0,
                    0.0,
                    0.0,
                    "jit_step",
                    flops=flops * count,
                    bytes_accessed=moved * count,
                    hbm_bytes=moved * count,
                    flops_per_s=rate,
                    hbm_bytes_per_s=moved * count / seconds,
                    operational_intensity=flops / moved,
                    bound_by=bound,
                    roofline_efficiency=roof * count / seconds,
                    compute_efficiency=rate / self.peak,
                    memory_bandwidth_utilization=moved * count / seconds / self.band,
                    op_name=f"jit(step)/{path}",
                    source="model.py:10",
                    hlo=line,
                ),
                seconds,
            )
        )

    def product(self, path: str, m: float, k: float, n: float, count: int) -> None:
        m, k, n = max(1, int(m)), max(1, int(k)), max(1, int(n))
        edge = 256 if self.s.chip == "v6e" else 128
        # Only the MXU of a TPU pads to a whole edge; the tiles of a GPU are small.
        padded = prod(-(-size // edge) * edge for size in (k, n)) / (k * n) if self.chip.kind == "tpu" else 1.0
        line = f"%f = bf16[{m},{n}]{{1,0}} fusion(bf16[{m},{k}]{{1,0}} %x, bf16[{k},{n}]{{1,0}} %w), kind=kOutput"
        self.work(
            "fusion",
            "convolution fusion",
            path,
            2.0 * m * k * n,
            2.0 * (m * k + k * n + m * n),
            self.s.products / padded,
            count,
            line,
            "experts' work" if "/moe/" in path else "",
        )
        if 2.0 * m * k * n / self.peak >= 2.0 * (m * k + k * n + m * n) / self.band:
            self.lose("padding", self.rows[-1][1] * (1 - 1 / padded))
        elif "jvp" in path:
            self.lose("whole weights", self.rows[-1][1])

    def talk(
        self,
        kind: str,
        axes: tuple[str, ...],
        path: str,
        payload: float,
        count: int,
        hidden: float | None = None,
        over_dcn: bool = False,
        cause: str = "",
    ) -> None:
        """A collective over `axes` of which `hidden` is covered by compute; nothing where the axes are of size one."""
        names = [axis for axis, size in self.s.ici if axis in axes and size > 1]
        links = self.links(names, over_dcn)
        if links is None or payload <= 0:
            return
        hidden = self.s.hidden if hidden is None else hidden
        least = float(collective_s(kind, links, payload)[0]) * count
        seconds = least / self.s.links * (1 - hidden) * (1 + self.noise.uniform(-0.05, 0.05))
        asynchronous = hidden > 0
        self.enter("communication", seconds, cause)
        if not asynchronous and self.s.links < 0.5:
            self.lose("slow links", seconds * (1 - self.s.links))
        size = int(links.size[0])
        result, operand = payload / 2, payload / 2
        if kind == "all-gather":
            operand /= size
        elif kind == "reduce-scatter":
            result /= size
        groups = self._groups(names, over_dcn)
        shape, into = f"bf16[{max(1, int(result))}]{{0}}", f"bf16[{max(1, int(operand))}]{{0}}"
        common: dict[str, Any] = {
            "op_name": f"jit(step)/{path}",
            "source": "model.py:20",
            "bound_by": "HBM",
            "flops": 0.0,
            "program": "jit_step",
        }
        if asynchronous:
            start, done = self._name(f"{kind}-start"), ""
            done = start.replace("-start", "-done")
            opening = f"%{start} = ({into}, {shape}) {kind}-start({into} %p), channel_id={self.number}, {groups}"
            self.rows.append((Op(start, f"{kind}-start", count, 0.0, 0.0, 0.0, hlo=opening, **common), 1e-6 * count))
            closing = f"%{done} = {shape} {kind}-done(({into}, {shape}) %{start})"
            self.rows.append(
                (
                    Op(done, f"{kind}-done", count, 0.0, 0.0, 0.0, hlo=closing, roofline_efficiency=0.001, **common),
                    seconds,
                )
            )
            return
        name = self._name(kind)
        line = f"%{name} = {shape} {kind}({into} %p), channel_id={self.number}, {groups}, use_global_device_ids=true"
        used = min(0.2, 2 * payload * count / max(seconds, 1e-12) / self.band)
        self.rows.append(
            (
                Op(
                    name,
                    kind,
                    count,
                    0.0,
                    0.0,
                    0.0,
                    hlo=line,
                    roofline_efficiency=used,
                    memory_bandwidth_utilization=used,
                    **common,
                ),
                seconds,
            )
        )

    def _groups(self, names: list[str], over_dcn: bool) -> str:
        axes = [("", size) for _, size in self.s.dcn] + list(self.s.ici)
        chosen = [
            at for at, (name, _) in enumerate(axes) if (name in names and not over_dcn) or (over_dcn and name == "")
        ]
        order = [at for at in range(len(axes)) if at not in chosen] + chosen
        size = prod(axes[at][1] for at in chosen)
        total = prod(size_ for _, size_ in axes)
        dims = ",".join(str(size_) for _, size_ in axes)
        turn = f"T({','.join(map(str, order))})" if order != list(range(len(axes))) else ""
        return f"replica_groups=[{total // size},{size}]<=[{dims}]{turn}"
