"""Labelled training steps written from first principles.

A decoder's step is laid out op by op: products and kernels from FLOPs, bytes, chip peaks and a stated efficiency;
collectives from `perfmodel`'s wires, a stated efficiency and the part of each that something hides; stalls from stated
host, input or idle time.  What a scenario is slow by is what was put into it: nothing here knows the Analyzer's rules
or thresholds.  `label` is the resource with the most time, among those a fix could address.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from math import prod

from diagnosis.analyzer.links import ideal_time_s, mesh_links, slice_links
from experiments.step_profile import Core, Device, Memory, Op, Step, StepProfile
from perfmodel.chips import get_chip
from perfmodel.config import ExperimentConfig, Hardware, Mesh, Training
from perfmodel.shapes import ModelShape

SMALL = ModelShape(24, 2048, 8192, 16, 16, 128, 50304, name="1.5B")
MIDDLE = ModelShape(32, 4096, 14336, 32, 8, 128, 128256, name="8B")
LARGE = ModelShape(80, 8192, 28672, 64, 8, 128, 128256, name="70B")
NARROW = ModelShape(32, 4096, 5120, 32, 16, 128, 50304, name="narrow MLP")
MIXTURE = ModelShape(
    27, 2048, 10944, 16, 16, 128, 102400, name="64 small experts", experts=64, experts_per_token=6, d_ff_expert=1408
)


@dataclass(frozen=True)
class Scenario:
    """One labelled case.  products, streams, wires, attention: efficiency of matrix products, HBM, links, kernels.

    hidden: part of each collective's time that compute covers.  passes: elementwise passes over the activations per
    layer, in tensors of d_model per token.
    """

    name: str
    label: str
    expected: tuple[str, ...]
    chip: str
    topology: tuple[int, ...]
    ici: tuple[tuple[str, int], ...]
    model: ModelShape
    batch: int
    seq_len: int
    dcn: tuple[tuple[str, int], ...] = ()
    weight_sharding: str = "fsdp"
    remat: str = "none"
    grad_accum: int = 1
    products: float = 0.75
    streams: float = 0.85
    wires: float = 0.8
    hidden: float = 0.9
    passes: float = 12.0
    attention: float = 0.45
    idle: float = 0.0
    input: float = 0.0
    host: float = 0.0
    straggler: float = 0.0
    shuffle: float = 0.0
    reshard: float = 0.0
    memory: float = 0.6
    also: tuple[str, ...] = ()
    not_expected: tuple[str, ...] = ()


class _Writer:
    """Collects ops; times per step and core."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.s = scenario
        self.noise = random.Random(seed)
        self.chip = get_chip(scenario.chip)
        self.peak, self.band = self.chip.peak("bf16"), self.chip.hbm_bytes_per_s
        self.hardware = Hardware(scenario.chip, scenario.topology, prod(size for _, size in scenario.dcn))
        self.mesh = Mesh(scenario.ici, scenario.dcn)
        self.rows: list[tuple[Op, float]] = []
        self.number = 0

    def _name(self, stem: str) -> str:
        self.number += 1
        return f"{stem}.{self.number}"

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
    ) -> None:
        """`count` occurrences of an op with so much work each."""
        roof = max(flops / self.peak, moved / self.band)
        bound = "Compute" if flops / self.peak >= moved / self.band else "HBM"
        seconds = roof / efficiency * count * (1 + self.noise.uniform(-0.05, 0.05))
        rate = flops * count / seconds
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
        padded = prod(-(-size // edge) * edge if size < 8 * edge else size for size in (k, n)) / (k * n)
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
        )

    def talk(
        self,
        kind: str,
        axes: tuple[str, ...],
        path: str,
        payload: float,
        count: int,
        hidden: float | None = None,
        over_dcn: bool = False,
    ) -> None:
        """A collective over `axes` of which `hidden` is covered by compute; nothing where the axes are of size one."""
        names = [axis for axis, size in self.s.ici if axis in axes and size > 1]
        if over_dcn:
            slices = self.mesh.dcn_product
            wires = slice_links(ExperimentConfig(self.hardware, self.mesh), slices)
        else:
            placed = mesh_links(self.hardware, self.mesh, tuple(names)) if names else None
            wires = placed.links if placed else None
        if wires is None or payload <= 0:
            return
        hidden = self.s.hidden if hidden is None else hidden
        least = ideal_time_s(kind, payload, wires) * count
        seconds = least / self.s.wires * (1 - hidden) * (1 + self.noise.uniform(-0.05, 0.05))
        asynchronous = hidden > 0
        size = int(wires.size[0])
        result, operand = payload / 2, payload / 2
        if kind == "all-gather":
            operand /= size
        elif kind == "reduce-scatter":
            result /= size
        groups = self._groups(names, over_dcn)
        shape, into = f"bf16[{max(1, int(result))}]{{0}}", f"bf16[{max(1, int(operand))}]{{0}}"
        common = {
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
            self.rows.append((Op(start, f"{kind}-start", count, 0.0, 0.0, 0.0, hlo=opening, **common), 1e-6 * count))  # type: ignore[arg-type]
            closing = f"%{done} = {shape} {kind}-done(({into}, {shape}) %{start})"
            self.rows.append(
                (
                    Op(done, f"{kind}-done", count, 0.0, 0.0, 0.0, hlo=closing, roofline_efficiency=0.001, **common),
                    seconds,
                )
            )  # type: ignore[arg-type]
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
        )  # type: ignore[arg-type]

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


def config(s: Scenario) -> ExperimentConfig:
    return ExperimentConfig(
        Hardware(s.chip, s.topology, prod(size for _, size in s.dcn)),
        Mesh(s.ici, s.dcn),
        s.model,
        Training(
            global_batch=s.batch,
            seq_len=s.seq_len,
            weight_sharding=s.weight_sharding,
            remat=s.remat,
            grad_accum=s.grad_accum,
        ),
    )


def profile(s: Scenario, seed: int = 0) -> StepProfile:
    """The scenario's step as a profile of three steps on eight recorded cores."""
    w = _Writer(s, seed)
    mesh, m = w.mesh, s.model
    chips = w.hardware.chips
    tensor, experts, pipeline = mesh.size("model"), mesh.size("expert"), mesh.size("pipeline")
    layers = max(1, m.layers // pipeline)
    tokens = s.batch * s.seq_len / (chips / tensor / pipeline)
    _layers(w, tokens, layers, tensor, experts)
    _weights(w, layers, tensor, experts)
    busy = sum(seconds for _, seconds in w.rows)
    for share, stem, category in ((s.shuffle, "copy", "data formatting"),):
        if share:
            moved = share * busy / (1 - share) * w.band * s.streams
            w.work(stem, category, "jvp(loss)/layer/attention/transpose", 1.0, moved / layers, s.streams, layers)
    if s.reshard:
        wanted = s.reshard * busy / (1 - s.reshard)
        axis = tuple(name for name, size in s.ici if size > 1)[:1]
        one = mesh_links(w.hardware, mesh, axis)
        assert one is not None
        each = ideal_time_s("all-to-all", 1e9, one.links)
        w.talk(
            "all-to-all",
            axis,
            "jvp(loss)/layer/mlp/sharding_constraint",
            1e9 * wanted / each * s.wires / layers,
            layers,
            0.0,
        )
    return _assemble(s, w)


def _layers(w: _Writer, tokens: float, layers: int, tensor: int, experts: int) -> None:
    s, m = w.s, w.s.model
    sides = [("jvp(loss)/layer", 1, 1), ("transpose(jvp(loss))/layer", 2, 2)]
    if s.remat == "full":
        sides.append(("transpose(jvp(loss))/checkpoint/rematted_computation/layer", 1, 1))
    q, kv = m.heads * m.head_dim / tensor, m.kv_heads * m.head_dim / tensor
    width = (m.d_ff_expert if m.experts else m.d_ff) / tensor
    routed = m.experts_per_token if m.experts else 1
    for path, times, exchanges in sides:
        for name, k, n in (
            ("attention/q", m.d_model, q),
            ("attention/kv", m.d_model, 2 * kv),
            ("attention/out", q, m.d_model),
        ):
            w.product(f"{path}/{name}/dot_general", tokens, k, n, layers * times)
        for name, k, n in (("gate", m.d_model, width), ("up", m.d_model, width), ("down", width, m.d_model)):
            where = "moe" if m.experts else "mlp"
            w.product(f"{path}/{where}/{name}/dot_general", tokens * routed, k, n, layers * times)
        scores = 2.0 * tokens * s.seq_len * q * (2.5 if times == 2 else 1.0)
        w.work(
            "flash_attention",
            "custom-call",
            f"{path}/attention/pallas_call",
            scores,
            8.0 * tokens * q,
            s.attention,
            layers,
        )
        moved = s.passes * tokens * m.d_model * 2.0 * times
        for part, name in ((0.5, "norm"), (0.5, "mlp/act")):
            w.work("fusion", "loop fusion", f"{path}/{name}/mul", part * moved / 2, part * moved, s.streams, layers)
        activations = tokens * m.d_model * 2.0
        w.talk("all-gather", ("model",), f"{path}/mlp/all_gather", activations, 2 * layers * exchanges)
        w.talk("reduce-scatter", ("model",), f"{path}/mlp/psum_scatter", activations, 2 * layers * exchanges)
        if m.experts:
            w.talk(
                "all-to-all",
                ("expert",),
                f"{path}/moe/dispatch/all_to_all",
                activations * routed,
                2 * layers * exchanges,
            )
        ring = next((size for axis, size in s.ici if w.mesh.role(axis) == "seq"), 1)
        w.talk("all-gather", ("seq",), f"{path}/attention/all_gather", 4.0 * tokens * ring * kv, layers * exchanges)
    w.product("jvp(loss)/logits/dot_general", tokens, m.d_model, m.vocab / tensor, 3)


def _weights(w: _Writer, layers: int, tensor: int, experts: int) -> None:
    s, m = w.s, w.s.model
    mlp = 3.0 * m.d_model * (m.d_ff_expert * m.experts / experts if m.experts else m.d_ff)
    layer = (mlp + 2.0 * m.d_model * m.head_dim * (m.heads + m.kv_heads)) / tensor
    batch = tuple(axis for axis, _ in s.ici if w.mesh.role(axis) in ("data", "fsdp", "seq", "replica"))
    shards = prod(size for axis, size in s.ici if axis in batch)
    if s.weight_sharding == "fsdp":
        gathers = 3 if s.remat == "full" else 2
        w.talk("all-gather", batch, "jvp(loss)/layer/mlp/all_gather", layer * 2.0, layers * gathers * s.grad_accum)
        w.talk(
            "reduce-scatter", batch, "transpose(jvp(loss))/layer/mlp/psum_scatter", layer * 2.0, layers * s.grad_accum
        )
    else:
        w.talk("all-reduce", batch, "transpose(jvp(loss))/layer/mlp/psum", layer * 4.0, layers)
        shards = 1
    w.talk("all-reduce", (), "transpose(jvp(loss))/layer/mlp/psum", layer * 4.0 / shards, layers, over_dcn=True)
    held = (layer * layers + m.vocab * m.d_model / tensor) / shards
    w.work("fusion", "loop fusion", "adamw/mul", 12.0 * held, 28.0 * held, s.streams, 1)


def _assemble(s: Scenario, w: _Writer) -> StepProfile:
    busy = sum(seconds for _, seconds in w.rows)
    lag = s.straggler * busy
    step = (busy + lag) / (1 - s.idle - s.input - s.host)
    rows = list(w.rows)
    if lag:  # the others wait in their last collective
        at = max(
            range(len(rows)), key=lambda i: rows[i][1] if rows[i][0].name.startswith(("all", "reduce-sc")) else -1.0
        )
        first = max(range(len(rows)), key=lambda i: rows[i][1] if rows[i][0].category == "convolution fusion" else -1.0)
        rows[at] = (rows[at][0], rows[at][1] + lag * 7 / 8)
        rows[first] = (rows[first][0], rows[first][1] + lag / 8)
    cores, steps = 8, 3
    ops = [
        replace(
            op,
            occurrences=op.occurrences * cores * steps,
            self_time_s=seconds * cores * steps,
            total_time_s=seconds * cores * steps,
            time_share=seconds / step,
            flops=(op.flops or 0.0) * cores * steps,
            bytes_accessed=(op.bytes_accessed or 0.0) * cores * steps,
            hbm_bytes=(op.hbm_bytes or 0.0) * cores * steps,
        )
        for op, seconds in rows
    ]
    talking = sum(seconds for op, seconds in rows if "all-" in op.category or "reduce-scatter" in op.category)
    working = busy + lag - talking
    parts = {
        "compute": working,
        "collective": talking,
        "input": s.input * step,
        "host": s.host * step,
        "idle": s.idle * step,
    }
    found = [Core(f"TPU:{i}", "host-0", {"compute": working, "collective": talking}) for i in range(cores)]
    if lag:
        found[5] = Core("TPU:5", "host-0", {"compute": working + lag, "collective": max(0.0, talking - lag)})
    idle = s.idle + s.input + s.host
    return StepProfile(
        provenance="reconstructed",
        source_kind="xplane",
        device=Device(w.chip.title, w.chip.name, cores, 1, w.peak, w.band),
        step_time_s=step,
        step_time_min_s=step,
        step_time_max_s=step,
        step_time_stdev_s=0.0,
        steps=tuple(Step(number, step, parts) for number in range(steps)),
        cores=tuple(found),
        kpis={"duty_cycle": 1 - idle, "idle": idle, "communication": talking / step, "input": s.input, "host": s.host},
        ops=tuple(sorted(ops, key=lambda op: -op.self_time_s)),
        memory=Memory(s.memory * w.chip.hbm_usable_bytes, w.chip.hbm_usable_bytes),
    )
