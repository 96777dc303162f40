"""Profiles and configurations of any kind, sensible or not, as `StepProfile` allows them."""

from __future__ import annotations

from hypothesis import strategies as st

from experiments.step_profile import Core, Device, Memory, Note, Op, Step, StepProfile, Timeline
from perfmodel.config import ExperimentConfig, Hardware, Mesh, ModelShape, Training

SHARES = st.one_of(st.none(), st.just(0.0), st.floats(0, 1), st.floats(0, 1e-9))
#: A trace counts picoseconds.
SECONDS = st.one_of(st.just(0.0), st.floats(1e-12, 1e4), st.floats(1e-12, 1e-6))
AMOUNTS = st.one_of(st.none(), st.just(0.0), st.floats(0, 1e18))
WEIRD = st.one_of(
    st.sampled_from(
        ["", "%", "fusion.1", "<script>alert(1)</script>", "a/b/c", "model", "all-reduce", "{0} %s {x}", "名前"]
    ),
    st.text(max_size=12),
)
NAMES = st.one_of(
    st.sampled_from(
        ["fusion.1", "fusion.2", "all-reduce.1", "all-gather-start.3", "all-gather-done.3", "copy-done.1", "infeed.1",
         "custom-call.7", "send.1", "recv-done.1", "while", "async-collective-done", "flash_attention", "moe_gmm.2"]
    ),
    WEIRD,
)  # fmt: skip
CATEGORIES = st.one_of(
    st.sampled_from(
        ["convolution fusion", "loop fusion", "all-reduce", "all-to-all", "data formatting", "custom-call", "infeed",
         "outfeed", "IDLE", "unknown", "host send", "collective-permute-done"]
    ),
    WEIRD,
)  # fmt: skip
LINES = st.one_of(
    st.sampled_from(
        [
            "",
            "%all-reduce.1 = bf16[8,128]{1,0} all-reduce(bf16[8,128]{1,0} %p), replica_groups={{0,1},{2,3}}",
            "%all-gather.1 = f32[64] all-gather(f32[8] %p), replica_groups=[2,4]<=[8]T(0)",
            "%all-gather-done.3 = f32[64] all-gather-done(f32[8] %all-gather-start.3)",
            "%a.1 = f32[0] all-to-all(), replica_groups={}",
            "%f = bf16[3,5]{1,0} fusion(bf16[3,7] %a, bf16[7,5] %b), kind=kOutput",
            "ROOT %x = (f32[], (s8[4]{0})) custom-call(f32[ %y), custom_call_target=\"<b>\"",
            "%p = bf16[8] collective-permute(bf16[8] %x), source_target_pairs={{0,1},{1,0}}",
        ]
    ),
    WEIRD,
)  # fmt: skip
PATHS = st.one_of(
    st.sampled_from(
        ["", "jit(step)/jvp(loss)/layer/mlp/dot_general", "jit(s)/transpose(jvp(l))/moe/all_to_all", "jit(s)/adamw/mul",
         "jit(s)/jvp(l)/checkpoint/rematted_computation/attention/softmax"]
    ),
    WEIRD,
)  # fmt: skip


@st.composite
def ops(draw: st.DrawFn) -> Op:
    own = draw(SECONDS)
    return Op(
        name=draw(NAMES),
        category=draw(CATEGORIES),
        occurrences=draw(st.integers(0, 10_000)),
        self_time_s=own,
        total_time_s=own + draw(SECONDS),
        time_share=draw(st.one_of(st.just(0.0), st.floats(0, 1))),
        program=draw(st.sampled_from(["", "jit_step", "other"])),
        flops=draw(AMOUNTS),
        bytes_accessed=draw(AMOUNTS),
        hbm_bytes=draw(AMOUNTS),
        flops_per_s=draw(AMOUNTS),
        hbm_bytes_per_s=draw(AMOUNTS),
        operational_intensity=draw(AMOUNTS),
        bound_by=draw(st.one_of(st.none(), st.sampled_from(["HBM", "Compute", "Unknown", "VMEM Read"]), WEIRD)),
        roofline_efficiency=draw(st.one_of(SHARES, st.just(7.5))),
        compute_efficiency=draw(SHARES),
        memory_bandwidth_utilization=draw(SHARES),
        hlo=draw(LINES),
        op_name=draw(PATHS),
        source=draw(WEIRD),
        in_flight_s=draw(st.one_of(st.none(), SECONDS)),
        exposed_s=draw(st.one_of(st.none(), SECONDS)),
        core_max_s=draw(st.one_of(st.none(), SECONDS)),
        core_min_s=draw(st.one_of(st.none(), SECONDS)),
        core_count=draw(st.one_of(st.none(), st.integers(0, 8))),
        slowest_core=draw(WEIRD),
    )


PARTS = st.dictionaries(st.sampled_from(["compute", "collective", "input", "output", "host", "idle", "other"]), SECONDS)
CORES = st.builds(
    Core,
    WEIRD,
    WEIRD,
    PARTS,
    st.one_of(st.none(), SECONDS),
    st.one_of(st.none(), SECONDS),
    st.one_of(st.none(), SECONDS),
)
KPIS = st.dictionaries(
    st.sampled_from(
        ["duty_cycle", "idle", "communication", "input", "host", "output", "mxu_utilization", "hbm_utilization",
         "flops_utilization", "goodput"]
    ),
    SHARES,
)  # fmt: skip


@st.composite
def profiles(draw: st.DrawFn) -> StepProfile:
    step = draw(st.one_of(st.none(), st.just(0.0), st.floats(1e-9, 1e4)))
    steps = draw(st.lists(st.builds(Step, st.integers(0, 9), SECONDS, PARTS), max_size=3))
    found = draw(st.lists(ops(), max_size=8))
    return StepProfile(
        provenance=draw(st.sampled_from(["measured", "reconstructed"])),
        source_kind="xplane",
        device=Device(
            draw(st.sampled_from(["TPU v5e", "CPU", "unknown", "AMD GPU", ""])),
            draw(st.sampled_from([None, "v5e", "h100", "none such"])),
            draw(st.integers(0, 16)),
            draw(st.integers(0, 4)),
            draw(st.one_of(st.none(), st.just(0.0), st.floats(1e9, 1e16))),
            draw(st.one_of(st.none(), st.just(0.0), st.floats(1e9, 1e14))),
        ),
        step_time_s=step,
        step_time_min_s=draw(st.one_of(st.none(), SECONDS)),
        step_time_max_s=draw(st.one_of(st.none(), SECONDS)),
        step_time_stdev_s=draw(st.one_of(st.none(), SECONDS)),
        steps=tuple(steps),
        cores=tuple(draw(st.lists(CORES, max_size=4))),
        kpis=draw(KPIS),
        ops=tuple(found),
        ops_dropped=draw(st.one_of(st.none(), st.integers(0, 9))),
        memory=Memory(draw(st.one_of(st.none(), SECONDS)), draw(st.one_of(st.none(), SECONDS))),
        notes=tuple(draw(st.lists(st.builds(Note, st.sampled_from(["info", "warning", "error"]), WEIRD), max_size=2))),
        timeline=Timeline(("TPU:0",), ("h",), (0,), ((1.0,),), {"idle": ((1.0,),)}, 1, 1)
        if draw(st.booleans())
        else Timeline(),
    )


SHAPES = st.sampled_from(
    [
        None,
        ModelShape(2, 64, 128, 4, 2, 16, 1000),
        ModelShape(4, 64, 128, 4, 4, 16, 1000, experts=8, experts_per_token=2, d_ff_expert=32, name="<b>mix</b>"),
    ]
)


@st.composite
def configs(draw: st.DrawFn) -> ExperimentConfig | None:
    if draw(st.integers(0, 3)) == 0:
        return None
    chip = draw(st.sampled_from(["v5e", "v5p", "tpu7x", "h100", "v3"]))
    sizes = draw(st.lists(st.sampled_from([1, 1, 2, 4]), min_size=2, max_size=3))
    names = st.sampled_from(["data", "model", "seq", "expert", "pipeline", "mdl", "Ω", "a b"])
    axes = draw(st.lists(names, min_size=len(sizes), max_size=len(sizes), unique=True))
    slices = draw(st.sampled_from([1, 1, 2]))
    roles = {axis: "model" for axis in axes if axis in ("mdl", "Ω", "a b")}
    chips = 1
    for size in sizes:
        chips *= size
    dims = {"v5p": (chips, 1, 1), "tpu7x": (chips, 1, 1)}.get(chip, (chips, 1))
    return ExperimentConfig(
        Hardware(chip, dims, slices),
        Mesh(tuple(zip(axes, sizes, strict=True)), (("replica", slices),) if slices > 1 else (), roles),
        draw(SHAPES),
        Training(
            global_batch=draw(st.sampled_from([None, 1, 64])),
            seq_len=draw(st.sampled_from([None, 1, 4096])),
            weight_sharding=draw(st.sampled_from(["none", "zero1", "fsdp"])),
            remat=draw(st.sampled_from(["none", "full"])),
            grad_accum=draw(st.sampled_from([1, 4])),
        ),
    )
