"""Labelled training steps written from first principles.

A decoder's step is laid out op by op: products and kernels from FLOPs, bytes, chip peaks and a stated efficiency;
collectives from `perfmodel`'s wires, a stated efficiency and the part of each that something hides; stalls from stated
host, input or idle time.  What a scenario is slow by is what was put into it: nothing here imports the Analyzer or
knows its rules and thresholds.  Every second is entered in a `Ledger` under its cause and its resource; the verdict it
implies follows from the contract alone (`Ledger.truth`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from experiments.step_profile import Core, Device, Memory, Op, Step, StepProfile
from perfmodel import collectives
from perfmodel.chips import get_chip
from perfmodel.config import ExperimentConfig, Hardware, Mesh, Training
from perfmodel.shapes import ModelShape
from perfmodel.topology import Links, group_links, lay_out, network_links, physical_dims

SMALL = ModelShape(24, 2048, 8192, 16, 16, 128, 50304, name="1.5B")
MIDDLE = ModelShape(32, 4096, 14336, 32, 8, 128, 128256, name="8B")
LARGE = ModelShape(80, 8192, 28672, 64, 8, 128, 128256, name="70B")
NARROW = ModelShape(32, 4096, 5120, 32, 16, 128, 50304, name="narrow MLP")
MIXTURE = ModelShape(
    27, 2048, 10944, 16, 16, 128, 102400, name="64 small experts", experts=64, experts_per_token=6, d_ff_expert=1408
)


_COLLECTIVES = {
    "all-reduce": collectives.all_reduce,
    "all-gather": collectives.all_gather,
    "reduce-scatter": collectives.reduce_scatter,
    "all-to-all": collectives.all_to_all,
    "collective-permute": collectives.permute,
}


@dataclass(frozen=True)
class Ledger:
    """What a step was made of, as shares of it.

    causes: by what costs the time (a cause may be part of another).  resources: exclusive, by compute, memory,
    communication, input, host and idle; what a straggler or a full expert makes others wait counts as communication,
    since that is where they wait.
    """

    causes: dict[str, float]
    resources: dict[str, float]

    @property
    def truth(self) -> str:
        """The contract's verdict: stalls from 10 % and collectives from 30 % of the step, the largest of them;
        otherwise the larger of compute and memory.
        """
        stalls = {name: self.resources[name] for name in ("input", "host", "idle") if self.resources[name] >= 0.10}
        if self.resources["communication"] >= 0.30:
            stalls["communication"] = self.resources["communication"]
        if stalls:
            return max(stalls, key=lambda name: stalls[name])
        return max(("compute", "memory"), key=lambda name: self.resources[name])


@dataclass(frozen=True)
class Scenario:
    """One labelled case.  products, streams, wires, attention: efficiency of matrix products, HBM, links, kernels.

    hidden: part of each collective's time that compute covers.  passes: elementwise passes over the activations per
    layer, in tensors of d_model per token.  imbalance: time of the fullest core's experts over the mean, less one.
    stage_wait: share of the step that stages of a pipeline wait inside their permutes.
    listed: how many of the largest ops the profile holds (0: all).  measured_flops: whether ops carry FLOPs and bytes.
    precision: of the matrix products; attention kernels run in bf16.
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
    imbalance: float = 0.0
    stage_wait: float = 0.0
    listed: int = 0
    measured_flops: bool = True
    precision: str = "bf16"


class _Writer:
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

    def wires(self, names: list[str], over_dcn: bool) -> Links | None:
        """The wires of these axes by the performance model; None where nothing is sent."""
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
        # Only matrix units of a TPU pad to a whole edge; the tiles of a GPU are small.
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
        wires = self.wires(names, over_dcn)
        if wires is None or payload <= 0:
            return
        hidden = self.s.hidden if hidden is None else hidden
        least = float(_COLLECTIVES[kind](wires, payload)[0]) * count
        seconds = least / self.s.wires * (1 - hidden) * (1 + self.noise.uniform(-0.05, 0.05))
        asynchronous = hidden > 0
        self.enter("communication", seconds, cause)
        if not asynchronous and self.s.wires < 0.5:
            self.lose("slow wires", seconds * (1 - self.s.wires))
        size = int(wires.size[0])
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
            precision=s.precision,
        ),
    )


def made(s: Scenario, seed: int = 0) -> tuple[StepProfile, Ledger]:
    """(the step as a profile, what it was made of)."""
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
            path = "jvp(loss)/layer/attention/transpose"
            w.work(stem, category, path, 1.0, moved / layers, s.streams, layers, cause="shuffle")
    if s.reshard:
        wanted = s.reshard * busy / (1 - s.reshard)
        axis = tuple(name for name, size in s.ici if size > 1)[:1]
        one = w.wires(list(axis), False)
        assert one is not None
        each = float(collectives.all_to_all(one, 1e9)[0])
        w.talk(
            "all-to-all",
            axis,
            "jvp(loss)/layer/mlp/sharding_constraint",
            1e9 * wanted / each * s.wires / layers,
            layers,
            0.0,
            cause="reshard",
        )
    return _assemble(s, w)


def _layers(w: _Writer, tokens: float, layers: int, tensor: int, experts: int) -> None:
    s, m = w.s, w.s.model
    sides = [("jvp(loss)/layer", 1, 1), ("transpose(jvp(loss))/layer", 2, 2)]
    again = ("transpose(jvp(loss))/checkpoint/rematted_computation/layer", 1, 1)
    if s.remat == "full":
        sides.append(again)

    def elementwise(path: str, times: int) -> None:
        moved = s.passes * tokens * m.d_model * 2.0 * times
        for part, name in ((0.5, "norm"), (0.5, "mlp/act")):
            w.work(
                "fusion",
                "loop fusion",
                f"{path}/{name}/mul",
                part * moved / 2,
                part * moved,
                s.streams,
                layers,
                cause="elementwise",
            )

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
            s.attention * w.chip.peak("bf16") / w.peak,
            layers,
            cause="attention",
        )
        elementwise(path, times)
        activations = tokens * m.d_model * 2.0
        w.talk("all-gather", ("model",), f"{path}/mlp/all_gather", activations, 2 * layers * exchanges, cause="tensor")
        w.talk(
            "reduce-scatter",
            ("model",),
            f"{path}/mlp/psum_scatter",
            activations,
            2 * layers * exchanges,
            cause="tensor",
        )
        if m.experts:
            w.talk(
                "all-to-all",
                ("expert",),
                f"{path}/moe/dispatch/all_to_all",
                activations * routed,
                2 * layers * exchanges,
                cause="experts",
            )
        ring = next((size for axis, size in s.ici if w.mesh.role(axis) == "seq"), 1)
        keys_values = 4.0 * tokens * ring * kv
        w.talk(
            "all-gather", ("seq",), f"{path}/attention/all_gather", keys_values, layers * exchanges, cause="sequence"
        )
    if s.remat == "minimal":  # it keeps what products and attention make
        elementwise(*again[:2])
    w.product("jvp(loss)/logits/dot_general", tokens, m.d_model, m.vocab / tensor, 3)


def _weights(w: _Writer, layers: int, tensor: int, experts: int) -> None:
    s, m = w.s, w.s.model
    mlp = 3.0 * m.d_model * (m.d_ff_expert * m.experts / experts if m.experts else m.d_ff)
    layer = (mlp + 2.0 * m.d_model * m.head_dim * (m.heads + m.kv_heads)) / tensor
    batch = tuple(axis for axis, _ in s.ici if w.mesh.role(axis) in ("data", "fsdp", "seq", "replica"))
    shards = prod(size for axis, size in s.ici if axis in batch)
    if s.weight_sharding == "fsdp":
        gathers = 3 if s.remat == "full" else 2
        w.talk("all-gather", batch, "jvp(loss)/layer/mlp/all_gather", layer * 2.0, layers * gathers * s.grad_accum,
               cause="gathers")  # fmt: skip
        path = "transpose(jvp(loss))/layer/mlp/psum_scatter"
        w.talk("reduce-scatter", batch, path, layer * 2.0, layers * s.grad_accum, cause="gathers")
    else:
        w.talk("all-reduce", batch, "transpose(jvp(loss))/layer/mlp/psum", layer * 4.0, layers, cause="gradients")
        shards = 1
    path = "transpose(jvp(loss))/layer/mlp/psum"
    w.talk("all-reduce", (), path, layer * 4.0 / shards, layers, over_dcn=True, cause="dcn")
    held = (layer * layers + m.vocab * m.d_model / tensor) / shards
    w.work("fusion", "loop fusion", "adamw/mul", 12.0 * held, 28.0 * held, s.streams, 1, cause="optimizer")


def ledger(s: Scenario, seed: int = 0) -> Ledger:
    """What the same step was made of."""
    return made(s, seed)[1]


def profile(s: Scenario, seed: int = 0) -> StepProfile:
    """The scenario's step as a profile of three steps on eight recorded cores."""
    return made(s, seed)[0]


CORES, STEPS = 8, 3


def _assemble(s: Scenario, w: _Writer) -> tuple[StepProfile, Ledger]:
    busy = sum(seconds for _, seconds in w.rows)
    rows = list(w.rows)
    lag = s.straggler * busy
    full = s.imbalance * w.costs.get("experts' work", 0.0)
    if lag:  # one core works longer; the others wait in their longest collective
        _wait(rows, lag, lambda op: op.category == "convolution fusion")
        w.enter("communication", lag * 7 / 8, "straggler")
        w.resources["compute"] += lag / 8
    if full:  # the fullest core's experts take longer than the mean; the others wait for it in the exchange
        _wait(rows, full, lambda op: "/moe/" in op.op_name and op.category == "convolution fusion", mean_grows=False)
        w.enter("communication", full, "imbalance")
    step = (busy + lag + full) / (1 - s.idle - s.input - s.host - s.stage_wait)
    if s.stage_wait:
        rows.append((_permute(s, w), s.stage_wait * step))
    spread = {op.name: _spread(s, op, seconds) for op, seconds in rows if "/moe/" in op.op_name and s.imbalance}
    unknown: dict[str, Any] = {} if s.measured_flops else dict.fromkeys(_MEASURED)
    ops = [
        replace(
            op,
            occurrences=op.occurrences * CORES * STEPS,
            self_time_s=seconds * CORES * STEPS,
            total_time_s=seconds * CORES * STEPS,
            time_share=seconds / step,
            **{
                "flops": (op.flops or 0.0) * CORES * STEPS,
                "bytes_accessed": (op.bytes_accessed or 0.0) * CORES * STEPS,
                "hbm_bytes": (op.hbm_bytes or 0.0) * CORES * STEPS,
                **unknown,
                **spread.get(op.name, {}),
            },
        )
        for op, seconds in rows
    ]
    ops.sort(key=lambda op: -op.self_time_s)
    talking = sum(seconds for op, seconds in rows if any(word in op.category for word in _TALKING))
    working = busy + lag + full + s.stage_wait * step - talking
    parts = {
        "compute": working,
        "collective": talking,
        "input": s.input * step,
        "host": s.host * step,
        "idle": s.idle * step,
    }
    found = [Core(f"TPU:{i}", "host-0", {"compute": working, "collective": talking}) for i in range(CORES)]
    if lag:
        found[5] = Core("TPU:5", "host-0", {"compute": working + lag, "collective": max(0.0, talking - lag)})
    idle = s.idle + s.input + s.host
    thin = bool(s.listed)
    result = StepProfile(
        provenance="reconstructed",
        source_kind="xprof_json" if thin else "xplane",
        device=Device(w.chip.title, w.chip.name, CORES, 1, *((None, None) if thin else (w.peak, w.band))),
        step_time_s=step,
        step_time_min_s=None if thin else step,
        step_time_max_s=None if thin else step,
        step_time_stdev_s=None if thin else 0.0,
        steps=() if thin else tuple(Step(number, step, parts) for number in range(STEPS)),
        cores=() if thin else tuple(found),
        kpis={"duty_cycle": 1 - idle, "idle": idle, "communication": talking / step, "input": s.input, "host": s.host},
        ops=tuple(ops[: s.listed] if thin else ops),
        ops_dropped=len(ops) - s.listed if thin else 0,
        memory=Memory() if thin else Memory(s.memory * w.chip.hbm_usable_bytes, w.chip.hbm_usable_bytes),
    )
    resources = {name: seconds / step for name, seconds in w.resources.items()}
    causes = {name: seconds / step for name, seconds in w.costs.items()}
    stalls = {"input": s.input, "host": s.host, "idle": s.idle + s.stage_wait}
    return result, Ledger(causes | stalls | {"memory": s.memory}, resources | stalls)


_TALKING = ("all-", "reduce-scatter", "collective-permute")
_MEASURED = (
    "flops", "bytes_accessed", "hbm_bytes", "flops_per_s", "hbm_bytes_per_s", "operational_intensity", "bound_by",
    "roofline_efficiency", "compute_efficiency", "memory_bandwidth_utilization",
)  # fmt: skip


def _permute(s: Scenario, w: _Writer) -> Op:
    """Activations of a micro-batch to the next stage; the pipeline is the mesh's major axis."""
    chips = w.hardware.chips
    stride = chips // w.mesh.size("pipeline")
    pairs = ",".join(f"{{{i},{i + stride}}}" for i in range(chips - stride))
    rows = max(1, s.batch * s.seq_len // stride // s.grad_accum)
    shape = f"bf16[{rows},{s.model.d_model}]"
    line = (
        f"%collective-permute.1 = {shape}{{1,0}} collective-permute({shape}{{1,0}} %x), source_target_pairs={{{pairs}}}"
    )
    path = "jit(step)/jvp(loss)/pipeline/ppermute"
    return Op("collective-permute.1", "collective-permute", 2 * s.grad_accum, 0.0, 0.0, 0.0, "jit_step", bound_by="HBM",
              flops=0.0, roofline_efficiency=0.001, hlo=line, op_name=path, source="model.py:30")  # fmt: skip


def _wait(rows: list[tuple[Op, float]], lag: float, late: Callable[[Op], bool], mean_grows: bool = True) -> None:
    """One core's work takes `lag` longer; on the average of the cores, the longest collective takes most of it."""

    def longest(test: Callable[[Op], bool]) -> int:
        return max(range(len(rows)), key=lambda i: rows[i][1] if test(rows[i][0]) else -1.0)

    at = longest(lambda op: op.name.startswith(("all", "reduce-sc")))
    rows[at] = (rows[at][0], rows[at][1] + lag * (7 / 8 if mean_grows else 1.0))
    if mean_grows:
        first = longest(late)
        rows[first] = (rows[first][0], rows[first][1] + lag / 8)


def _spread(s: Scenario, op: Op, seconds: float) -> dict[str, Any]:
    """Time over the profile on the fullest and the emptiest core; exchanges wait least on the fullest."""
    if op.category != "convolution fusion":
        return {}
    whole = seconds * STEPS
    return {
        "core_max_s": whole * (1 + s.imbalance),
        "core_min_s": whole * max(0.0, 1 - s.imbalance),
        "core_count": CORES,
        "slowest_core": "host-0 TPU:3",
    }
