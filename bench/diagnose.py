"""How long a diagnosis takes after conversion: 20,000 distinct ops, a fifth of them collectives on a 16×16 torus."""

from __future__ import annotations

import resource
import time

from diagnosis.analyzer import diagnose
from experiments.step_profile import Core, Device, Op, Step, StepProfile
from perfmodel.config import ExperimentConfig, Hardware, Mesh, Training

OPS = 20_000
REPEATS = 3
#: Groups of the axes model, seq and data of a mesh (data 4, seq 16, model 4), in XLA's notations.
GROUPS = (
    "replica_groups=[64,4]<=[256]",
    "replica_groups=[16,16]<=[4,16,4]T(0,2,1)",
    "replica_groups=[64,4]<=[4,64]T(1,0)",
    "replica_groups={" + ",".join("{" + ",".join(str(4 * i + j) for j in range(4)) + "}" for i in range(64)) + "}",
)


def config() -> ExperimentConfig:
    return ExperimentConfig(
        Hardware("v5e", (16, 16)),
        Mesh((("data", 4), ("seq", 16), ("model", 4))),
        training=Training(global_batch=256, seq_len=4096),
    )


def _op(number: int) -> Op:
    common = {
        "occurrences": 30,
        "self_time_s": 1e-3,
        "total_time_s": 1e-3,
        "time_share": 1.0 / OPS,
        "program": "jit_step",
    }
    path = f"jit(step)/transpose(jvp(while))/body/layer_{number % 80}"
    if number % 5 == 0:
        name = f"all-reduce.{number}"
        text = (
            f"%{name} = bf16[{8 + number % 64},1024,4096]{{2,1,0:T(8,128)(2,1)}} "
            f"all-reduce(bf16[{8 + number % 64},1024,4096]"
            f"{{2,1,0:T(8,128)(2,1)}} %fusion.{number}), channel_id={number}, {GROUPS[number // 5 % 4]}, "
            "use_global_device_ids=true, to_apply=%add"
        )
        return Op(
            name,
            "all-reduce",
            hlo=text,
            op_name=f"{path}/mlp/psum",
            source=f"model.py:{number % 900}",
            bound_by="HBM",
            roofline_efficiency=0.08,
            **common,
        )  # type: ignore[arg-type]
    name = f"fusion.{number}"
    text = (
        f"%{name} = bf16[{1024 + number % 7},4096]{{1,0:T(8,128)(2,1)}} "
        f"fusion(bf16[{1024 + number % 7},8192]{{1,0}} %p.{number}, "
        f"bf16[8192,4096]{{1,0}} %w.{number}), kind=kOutput, calls=%fused_computation.{number}"
    )
    matmul = number % 2 == 0
    return Op(
        name,
        "convolution fusion" if matmul else "loop fusion",
        hlo=text,
        op_name=f"{path}/attention/op_{number}",
        source=f"model.py:{number % 900}",
        bound_by="Compute" if matmul else "HBM",
        roofline_efficiency=0.6,
        flops=1e12 if matmul else 1e8,
        bytes_accessed=1e9,
        flops_per_s=1e14,
        hbm_bytes_per_s=4e11,
        operational_intensity=250.0,
        compute_efficiency=0.6,
        memory_bandwidth_utilization=0.3,
        **common,  # type: ignore[arg-type]
    )


def profile() -> StepProfile:
    return StepProfile(
        provenance="measured",
        source_kind="xplane",
        device=Device("TPU v5e", "v5e", 256, 32, 1.97e14, 8.1e11),
        step_time_s=1.0,
        steps=tuple(Step(number, 1.0, {"compute": 0.8, "collective": 0.2, "idle": 0.0}) for number in range(10)),
        cores=tuple(Core(f"TPU:{i}", f"host-{i // 8}", {"compute": 0.8, "collective": 0.2}) for i in range(256)),
        kpis={"duty_cycle": 1.0, "communication": 0.2},
        ops=tuple(_op(number) for number in range(OPS)),
    )


def main() -> dict[str, float]:
    """Seconds of the fastest of three runs (nothing is remembered between them), and peak memory of this process."""
    prepared = profile()
    times, processor = [], []
    for _ in range(REPEATS):
        start, used = time.perf_counter(), time.process_time()
        diagnose(prepared, config())
        times.append(time.perf_counter() - start)
        processor.append(time.process_time() - used)
    start = time.perf_counter()
    diagnose(prepared, config()).to_json(top=20)
    with_json = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"diagnosis of {OPS:,} distinct ops: {min(times):.2f} s, processor {min(processor):.2f} s (aim < 2 s)")
    print(f"with its JSON {with_json:.2f} s; peak memory {peak / 1e6:,.0f} MB")
    return {"wall_s": min(times), "processor_s": min(processor), "with_json_s": with_json, "peak_bytes": float(peak)}


if __name__ == "__main__":
    main()
