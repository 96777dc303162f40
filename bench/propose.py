"""How long proposals take once a profile is diagnosed: 512 and 8,960 chips, an own mesh, many precedents.

`python -m bench.propose` prints JSON.  Aim: at most 2 s for a full pod, 0.1 s for an own mesh.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

# One core: NumPy's own threads would count for more.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from diagnosis.analyzer import diagnose
from experiments.step_profile import Device, Op, Step, StepProfile
from perfmodel.config import ExperimentConfig, Hardware, Mesh, ModelShape, Training
from proposals.proposer import Pricer
from proposals.proposer.precedents import Precedent, published

LLAMA3_70B = ModelShape(80, 8192, 28_672, 64, 8, 128, 128_256, name="llama3-70b")
#: Topology and mesh (data, seq, model) of the current configuration.
RUNS = {512: ((8, 8, 8), (128, 1, 4)), 8960: ((16, 20, 28), (1120, 1, 8))}
PRECEDENTS = 10_000
#: A step is longer than the model's FLOPs take at peak: 7.7 s on 512 chips.
STEP_S, STEPS, LISTED = 12.0, 4, 2_000
REPEATS = 3


def config(chips: int) -> ExperimentConfig:
    topology, sizes = RUNS[chips]
    return ExperimentConfig(
        Hardware("v5p", topology),
        Mesh(tuple(zip(("data", "seq", "model"), sizes, strict=True))),
        LLAMA3_70B,
        Training(global_batch=sizes[0] * 8, seq_len=4096),
    )


def _op(number: int, chips: int) -> Op:
    kind = ("convolution fusion", "loop fusion", "all-reduce")[number % 3]
    seconds = STEP_S / LISTED * STEPS * chips
    bound = "Compute" if number % 3 == 0 else "HBM"
    groups = f", replica_groups=[{chips // 4},4]<=[{chips}]" if number % 3 == 2 else ""
    text = f"%{kind}.{number} = bf16[8192,8192] {kind}(bf16[8192,8192] %x){groups}"
    return Op(
        f"{kind}.{number}", kind, STEPS * chips, seconds, seconds, 1.0 / LISTED,
        bound_by=bound, roofline_efficiency=0.6, hlo=text, op_name="jit(step)/jvp()/layer/mlp/dot_general",
    )  # fmt: skip


def profile(chips: int) -> StepProfile:
    return StepProfile(
        provenance="measured",
        source_kind="xplane",
        device=Device("TPU v5p", "v5p", chips, chips // 4, 4.59e14, 2.765e12),
        step_time_s=STEP_S,
        steps=tuple(Step(number, STEP_S) for number in range(STEPS)),
        kpis={"duty_cycle": 0.99, "idle": 0.01, "communication": 0.33},
        ops=tuple(_op(number, chips) for number in range(LISTED)),
    )


def precedents(count: int) -> tuple[Precedent, ...]:
    """The shipped ones again and again, each moved a little otherwise."""
    shipped = published()
    return tuple(_moved(shipped[n % len(shipped)], n) for n in range(count))


def _moved(item: Precedent, n: int) -> Precedent:
    move = {**item.case.move, "global_batch": 0.25 * (n % 17)}
    return replace(item, record=replace(item.record, id=f"bench-{n}"), case=replace(item.case, move=move))


def best_of(runs: int, work: Callable[[], object]) -> float:
    """Least seconds of several runs."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> dict[str, Any]:
    """Run all benchmarks and print them as JSON."""
    many = precedents(PRECEDENTS)
    result: dict[str, Any] = {}
    for chips in RUNS:
        ran, setup = profile(chips), config(chips)
        assert prod(setup.hardware.topology) == chips
        found = diagnose(ran, setup)
        plan = Pricer(ran, setup, found).propose()
        bench = Pricer(ran, setup, found)
        own = plan.proposals[0]
        result[f"{chips} chips"] = {
            "meshes": plan.considered,
            "legal_configurations_priced": plan.priced,
            "propose_s": round(best_of(REPEATS, lambda r=ran, s=setup, d=found: Pricer(r, s, d).propose()), 3),
            f"propose_with_{PRECEDENTS}_precedents_s": round(
                best_of(REPEATS, lambda r=ran, s=setup, d=found: Pricer(r, s, d, many).propose()), 3
            ),
            "evaluate_own_mesh_s": round(best_of(REPEATS, lambda b=bench, o=own: b.evaluate(o)), 4),
        }
    result["peak_memory_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(result, indent=2))
    return result


if __name__ == "__main__":
    main()
