"""What was recorded is decided once, and everything that is concluded rests on it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diagnosis.analyzer import diagnose
from diagnosis.analyzer.kpis import straggler_lag_s
from diagnosis.compare import compare
from experiments.step_profile import Core, Device, Op, Recorded, Step, StepProfile
from tests.diagnosis.build import STEP_S, collective, config, find, op, profile, rules

GEMM, TILE_32, TILE_128 = "aten::mm: fp8_gemm", "Cijk_Alik_MT32x32x256_MI16x16x1", "nvjet_tst_128x256_64x4"


def kineto(
    *ops: Op, world: int | None = None, kpis: dict[str, float | None] | None = None, **held: object
) -> StepProfile:
    """A PyTorch trace of one MI300X; held: of `Recorded`."""
    ran = profile(*ops, kpis=kpis)
    recorded = Recorded(**{"has": ("launches", "host ops"), **held})  # type: ignore[arg-type]
    device = Device("AMD Instinct MI300X", "mi300x", 1, 1, world_size=world)
    computed = {"steps": "marked by ProfilerStep", "step_time": "device steps"}
    return replace(ran, source_kind="kineto", device=device, recorded=recorded, computed=computed)


def gemm(name: str = GEMM, share: float = 0.8, path: str = "aten::mm") -> Op:
    return op(name, "gemm", share, op_name=path)


def test_a_training_step_is_known_by_its_backward_pass_whatever_marks_it() -> None:
    for ran in (
        kineto(gemm(path="backward/Linear/aten::mm")),
        kineto(gemm(), has=("launches", "backward")),
        kineto(gemm(), has=("launches", "optimizer")),
        kineto(gemm(), op("multi_tensor_apply_kernel", "optimizer elementwise", 0.1)),
        kineto(gemm("cudnn_wgrad_engine")),
        profile(op("fusion.1", "loop fusion", 0.9, op_name="jit(step)/transpose(jvp(f))/dot_general")),
    ):
        recording = diagnose(ran).recording
        assert recording.kind == "training" and recording.kind_evidence, ran


def test_the_kernels_of_a_transposed_convolution_do_not_make_a_training_step() -> None:
    """Its forward pass is the input gradient of a plain one: an upsampling decoder was called training."""
    decoder = kineto(gemm("sm80_xmma_dgrad_implicit_gemm", path="Decoder/aten::cudnn_convolution_transpose"), gemm())
    assert diagnose(decoder).recording.kind != "training"


@pytest.mark.parametrize(
    ("has", "kind"),
    [(("host ops", "products"), "inference"), (("host ops", "products", "backward"), "training"),
     (("host ops", "input waits"), "data_loading"), (("host ops", "products", "input waits"), "inference")],
)  # fmt: skip
def test_without_a_device_the_host_tells_what_ran(has: tuple[str, ...], kind: str) -> None:
    assert diagnose(kineto(has=has)).recording.kind == kind


@pytest.mark.parametrize(
    ("requests", "kind"), [((0, 32), "decode"), ((4, 0), "prefill"), ((2, 30), "inference")]
)  # fmt: skip
def test_a_serving_engine_says_what_its_iterations_are(requests: tuple[int, int], kind: str) -> None:
    found = diagnose(kineto(gemm(), context_requests=requests[0], generation_requests=requests[1]))
    assert found.recording.kind == kind and "serving engine" in found.recording.kind_evidence
    assert "not training" in found.not_modelled and found.kpis["mfu"] is None


def test_matmuls_of_few_rows_stream_their_weights() -> None:
    found = diagnose(kineto(gemm(), context_requests=0, generation_requests=32))
    assert found.bottleneck.primary == "memory"
    assert found.ops[0].resource == "hbm" and found.ops[0].resource_source == "iteration"


@pytest.mark.parametrize(
    ("kernels", "kind"),
    [(("paged_attention_v2_kernel",), "decode"), (("BatchPrefillWithPagedKVCacheKernel",), "prefill"),
     (("paged_attention_v2_kernel", "BatchPrefillWithPagedKVCacheKernel"), "inference")],
)  # fmt: skip
def test_without_marks_a_serving_engines_attention_tells_its_phase(kernels: tuple[str, ...], kind: str) -> None:
    assert diagnose(kineto(gemm(), *(op(name, "attention", 0.1) for name in kernels))).recording.kind == kind


def test_a_launch_too_small_for_the_device_is_bound_by_neither_roof() -> None:
    small = replace(op("reduce_baseline", "reduction", 0.99), bound_by="Latency", flops=None)
    found = diagnose(replace(kineto(small), source_kind="nsight"))
    assert found.bottleneck.primary == "unknown" and found.ops[0].resource == "other"
    assert "blocks of threads" in found.bottleneck.statement


def test_a_rank_whose_host_is_late_enters_its_collectives_last() -> None:
    early = Core("GPU 0", "rank 0", {"launch": 0.0}, busy_s=1.0, collective_s=0.4, exposed_s=0.4)
    late = Core("GPU 0", "rank 1", {"launch": 0.3}, busy_s=0.7, collective_s=0.1, exposed_s=0.1)
    lag = straggler_lag_s([early, late])
    assert lag is not None and lag[1] is late and lag[0] == pytest.approx(0.3)


def test_names_of_hand_written_kernels_say_nothing_of_their_limit() -> None:
    ran = replace(kineto(op("reduce_baseline", "reduction", 0.99), has=("launches",)), source_kind="nsight")
    assert diagnose(ran).ops[0].resource == "other"
    assert diagnose(replace(ran, source_kind="kineto")).ops[0].resource == "hbm"


def test_few_launches_are_no_step_unless_they_keep_the_device_busy() -> None:
    def once(seconds: float, idle: float) -> StepProfile:
        ran = kineto(replace(gemm(TILE_128), occurrences=3, self_time_s=seconds), kpis={"idle": idle})
        return replace(ran, steps=(), step_time_s=None)

    kinds = [diagnose(once(*one)).recording.kind == "few_launches" for one in ((1e-3, 0.1), (0.5, 0.9), (0.5, 0.1))]
    assert kinds == [True, True, False]


@pytest.mark.parametrize(("name", "resource"), [(TILE_32, "hbm"), (TILE_128, "compute"), (GEMM, "other")])
def test_without_shapes_the_kernels_tile_tells_or_nothing(name: str, resource: str) -> None:
    assert diagnose(kineto(gemm(name))).ops[0].resource == resource


def test_a_training_step_runs_its_matmuls_on_all_tokens() -> None:
    assert diagnose(kineto(gemm(path="backward/aten::mm"))).bottleneck.primary == "compute"


def test_communication_of_a_run_on_many_devices_is_no_zero_beside_unknown_kernels() -> None:
    unknown = op("mystery", "other kernel", 0.4)
    ran = kineto(gemm(share=0.6), unknown, world=64, kpis={"duty_cycle": 1.0, "communication": 0.0})
    found = diagnose(ran)
    assert found.kpis["communication"] is None and "unknown kind" in found.not_measured["communication"]
    alone = replace(ran, device=replace(ran.device, world_size=1))
    assert diagnose(alone).kpis["communication"] == 0.0
    talks = kineto(unknown, op("all-reduce: x", "all-reduce", 0.3), world=64,
                   kpis={"duty_cycle": 1.0, "communication": 0.3})  # fmt: skip
    found = diagnose(talks)
    assert found.kpis["communication"] == 0.3 and any("lower bound" in text for text in found.warnings)


def test_captures_and_data_loaders_are_no_steps() -> None:
    captured = replace(kineto(gemm(), has=("launches", "graph capture")), steps=(), step_time_s=None)
    assert diagnose(captured).recording.kind == "graph_capture"
    loading = replace(kineto(has=("host ops", "input waits")), steps=(Step(1, STEP_S),))
    assert diagnose(loading).recording.kind == "data_loading"


def test_the_engineer_knows_better() -> None:
    found = diagnose(kineto(gemm(), kind="training", program="transformer"))
    assert found.recording.stated == ("kind", "program") and found.not_modelled == ""
    assert found.recording.line.startswith("Training of a transformer")


def test_the_line_says_what_is_there() -> None:
    ran = kineto(gemm(path="backward/aten::mm"), op("mystery", "other kernel", 0.2), world=8)
    assert diagnose(ran).recording.line == (
        "Training; 1 of 8 devices (AMD Instinct MI300X); 2 steps marked by ProfilerStep; "
        "20.0\u00a0% of the time in ops of unknown kind."
    )


def copy(direction: str, share: float, name: str = "Memcpy HtoD (Pageable -> Device)") -> Op:
    return op(name, f"copy {direction}", share, host_bytes=9.6e6, exposed_s=share * STEP_S * 16)


def test_copies_one_way_are_batches_and_copies_both_ways_offload() -> None:
    found = diagnose(kineto(gemm(share=0.9), copy("host to device", 0.05)))
    finding = find(found, "host_copies")
    assert "pin_memory=True" in finding.action and "host_offload" not in rules(found)
    both = kineto(gemm(share=0.8), copy("host to device", 0.05), copy("device to host", 0.05, "Memcpy DtoH"))
    assert "host_offload" in rules(diagnose(both)) and "host_copies" not in rules(diagnose(both))


LOOKUP = op("split_embedding_lookup", "embedding gather", 0.3, op_name="forward/EmbeddingBag/embedding_lookup")


def test_an_exchange_of_embeddings_is_no_resharding() -> None:
    exchange = replace(collective("all-to-all", 0.2, "replica_groups={{0,1,2,3,4,5,6,7}}"), op_name="backward/exchange")
    found = diagnose(kineto(LOOKUP, exchange, gemm(share=0.4, path="backward/aten::mm")), config({"data": 8}))
    assert found.recording.program == "recommender"
    assert {"embedding_exchange"} <= rules(found) and "resharding" not in rules(found)


def test_idle_time_has_the_cause_that_its_launches_tell() -> None:
    gaps = {"queued": 0.3}
    found = diagnose(kineto(gemm(share=0.7), kpis={"duty_cycle": 0.7, "input": 0.0, "host": 0.0}, gaps=gaps))
    finding = find(found, "idle_gaps")
    assert "launched in time" in finding.insight and "host threads" not in finding.action


@pytest.mark.parametrize(("rare", "limit"), [(0.5, "compute"), (0.9, "unknown")])
def test_what_happens_once_limits_no_step(rare: float, limit: str) -> None:
    gaps, kpis = {"rare": rare}, {"duty_cycle": 1.0 - rare, "input": 0.0, "host": rare}
    found = diagnose(kineto(gemm(share=1.0 - rare, path="backward/aten::mm"), kpis=kpis, gaps=gaps))
    assert found.bottleneck.primary == limit
    assert all(finding.saving_share is None for finding in found.findings if finding.rule == "host_gaps")


def test_profiles_of_earlier_versions_are_not_said_to_lack_launches() -> None:
    before = replace(kineto(gemm()), recorded=Recorded())
    assert "launch" not in " ".join(item.what for item in diagnose(before).recording.missing)
    without = kineto(gemm(), has=("host ops",), gaps={"unknown": 0.2})
    assert "calls that launch kernels" in [item.what for item in diagnose(without).recording.missing]


@pytest.mark.parametrize("has", [(), ("host ops",)])
def test_host_threads_that_are_there_are_not_asked_for(has: tuple[str, ...]) -> None:
    ran = replace(profile(gemm(share=0.7), kpis={"duty_cycle": 0.7}), recorded=Recorded(has=has))
    assert ("Record a trace with host threads" in find(diagnose(ran), "idle_gaps").action) == (not has)


def test_a_stall_that_is_named_below_a_larger_bound_says_why() -> None:
    chain = [op(f"add.{i}", "elementwise", 0.16) for i in range(4)]
    found = diagnose(kineto(*chain, gemm(share=0.04), kpis={"duty_cycle": 0.68}))
    assert found.bottleneck.primary == "idle" and found.bottleneck.confidence <= 0.5
    assert "larger bound" in found.bottleneck.statement


def test_nothing_shown_undoes_a_larger_saving() -> None:
    """With a tensor axis across slices, its collectives call for less of it and HBM-bound matmuls for more."""
    unknown = collective("all-reduce", 0.3, "", op_name="jit(step)/transpose(jvp(mlp))/psum")
    found = diagnose(profile(unknown, gemm(share=0.6)), config({"model": 8}))
    actions = " ".join(finding.action for finding in found.findings)
    assert not ("Reduce the model axis" in actions and "tensor axis, so that" in actions)


def test_async_collectives_are_one_finding_with_their_start() -> None:
    start = op("async-collective-start.1", "async-collective-start", 0.12, bound_by="HBM")
    done = op("async-collective-done.1", "async-collective-done", 0.03, bound_by="HBM")
    finding = find(diagnose(profile(start, done, gemm(share=0.8))), "async_collective_waits")
    assert finding.saving_share == pytest.approx(0.15) and "start ops" in finding.insight


def test_two_recordings_are_compared_by_what_both_show() -> None:
    measured = gemm(TILE_32, path="aten::mm")
    bare = replace(kineto(gemm(path="aten::mm")), recorded=Recorded(has=("launches", "backward")))
    known = kineto(
        replace(measured, name=GEMM, flops=1e12, bytes_accessed=1e13, bound_by="HBM", roofline_efficiency=0.8)
    )
    sides = [(None, diagnose(ran)) for ran in (known, bare)]
    said = " ".join(compare(*sides).statement)
    assert "moved from" not in said and "one side only" in said
