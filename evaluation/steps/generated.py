"""Labelled training steps written from first principles.

A decoder's step is laid out op by op: products and kernels from FLOPs, bytes, chip peaks and a stated efficiency;
collectives from `perfmodel`'s links, a stated efficiency and the part of each that something hides; stalls from stated
host, input or idle time.  What a scenario is slow by is what was put into it: nothing here imports the Analyzer or
knows its rules and thresholds.  Every second is entered in a `Ledger` under its cause and its resource; the verdict it
implies follows from the contract alone (`Ledger.truth`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

from evaluation.steps.scenario import Ledger, Scenario
from evaluation.steps.writer import Writer
from experiments.step_profile import Core, Device, Memory, Op, Step, StepProfile
from perfmodel import topology


def made(s: Scenario, seed: int = 0) -> tuple[StepProfile, Ledger]:
    """(the step as a profile, what it was made of)."""
    w = Writer(s, seed)
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
        one = w.links(list(axis), False)
        assert one is not None
        each = float(topology.collective_s("all-to-all", one, 1e9)[0])
        w.talk(
            "all-to-all",
            axis,
            "jvp(loss)/layer/mlp/sharding_constraint",
            1e9 * wanted / each * s.links / layers,
            layers,
            0.0,
            cause="reshard",
        )
    return _assemble(s, w)


def _layers(w: Writer, tokens: float, layers: int, tensor: int, experts: int) -> None:
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


def _weights(w: Writer, layers: int, tensor: int, experts: int) -> None:
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


def _assemble(s: Scenario, w: Writer) -> tuple[StepProfile, Ledger]:
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
    cores = [Core(f"TPU:{i}", "host-0", {"compute": working, "collective": talking}) for i in range(CORES)]
    if lag:
        cores[5] = Core("TPU:5", "host-0", {"compute": working + lag, "collective": max(0.0, talking - lag)})
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
        cores=() if thin else tuple(cores),
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


def _permute(s: Scenario, w: Writer) -> Op:
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
