"""The first error of a log: which line, which cause, whatever else stands around it."""

# ruff: noqa: E501  messages are those that programs print

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from evaluation.failures.labelled import labelled
from experiments.sentences import Value
from history.record import FAILURES
from perfmodel.config_file import parse_config
from perfmodel.memory import per_chip
from perfmodel.workload import from_config
from proposals.failures import CAUSES, read_failure
from proposals.failures.lines import BLOCK
from proposals.failures.signatures import table

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB of which 1.25 GiB is free."
WATCHDOG = "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600013 milliseconds before timing out."
CONFIG = {
    "hardware": {"chip": "v5e", "topology": [4, 4]},
    "mesh": {"ici": {"data": 2, "seq": 1, "model": 8}},
    "model": {"name": "llama2-7b"},
    "training": {"global_batch": 64, "seq_len": 4096},
}


def read(*lines: str, config=None):
    return read_failure(io.BytesIO("\n".join(lines).encode()), config and parse_config(config)[0])


def test_the_root_cause_is_the_first_error_not_its_echoes():
    found = read(
        "[rank0]: step 11 loss 2.31",
        "[rank3]: Traceback (most recent call last):",
        "[rank0]: step 12 loss 2.30",
        f"[rank3]: {OOM}",
        "node1:12:99 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node2<4283>",
        f"[rank0]:[E626 06:24:44.903 ProcessGroupNCCL.cpp:616] {WATCHDOG}",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        "slurmstepd: error: *** STEP 12.0 ON node1 CANCELLED AT 2024-05-01T10:00:00 ***",
    )
    assert (found.cause, found.rank, found.line_number) == ("out_of_memory", 3, 4)
    assert found.line == OOM
    assert found.values.requested == 2 * 2**30 and found.values.free == 1.25 * 2**30
    assert str(found.sentence) == "An allocation of 2.15 GB failed with 1.34 GB free on rank 3."
    assert found.verdict == "forbid"


def test_a_primary_error_counts_even_where_another_rank_noticed_it_first():
    found = read(f"[rank0]: {WATCHDOG}", f"[rank3]: {OOM}")
    assert (found.cause, found.line_number) == ("out_of_memory", 2)


def test_a_time_out_alone_is_a_symptom_with_what_to_check():
    found = read("step 12", f"[rank0]: {WATCHDOG}")
    assert (found.cause, found.verdict, found.values.timeout_s, found.values.axis) == (
        "time_out",
        "retry",
        600,
        "ALLREDUCE",
    )
    assert {"deadlock", "Resources", "Network", "Dependencies"} <= {
        word
        for word in ("deadlock", "Resources", "Network", "Dependencies")
        if any(word in line for line in found.check)
    }
    assert "not in this log" in found.sentence


def test_an_exception_comes_before_what_follows_from_it():
    found = read("[rank2]: KeyError: 'layers.3.mlp'", f"[rank0]: {WATCHDOG}")
    assert (found.cause, found.line, found.rank) == ("program_error", "KeyError: 'layers.3.mlp'", 2)
    assert found.verdict == "fix"  # it would come again


@pytest.mark.parametrize(
    ("cause", "verdict", "line"),
    [
        ("time_out", "retry", "[rank6]: RuntimeError: DeepEP error: timeout (dispatch CPU)"),
        (
            "program_error",
            "fix",
            "[rank0]: RuntimeError: aten.mm.default: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling distributed operators!",
        ),
        (
            "storage",
            "fix",
            "Message:  The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 7Gi.",
        ),
        ("hardware", "retry", "  what():  CUDA error: uncorrectable NVLink error detected during the execution"),
        (
            "time_limit",
            "retry",
            "slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2024-04-20T09:09:37 DUE TO TIME LIMIT ***",
        ),
        (
            "preemption",
            "retry",
            "[2024-05-01 10:00:00] torch.distributed.elastic.multiprocessing.api.SignalException: Process 2920830 got signal: 15",
        ),
        ("storage", "fix", "OSError: [Errno 122] Disk quota exceeded"),
        ("dependency", "fix", "RuntimeError: The NVIDIA driver on your system is too old (found version 11040)."),
        ("numerics", "retry", "RuntimeError: Function 'MulBackward0' returned nan values in its 0th output."),
        ("does_not_compile", "forbid", "torch._inductor.exc.InductorError: LoweringException: AssertionError: size"),
    ],
)
def test_each_kind_of_failure_is_told_and_no_error_of_the_program_is_retried(cause, verdict, line):
    found = read("step 12", line)
    assert (found.cause, found.verdict) == (cause, verdict)


def test_the_process_that_stopped_answering_is_named():
    found = read(
        "F0000 00:00:1740000000.1  client.h:80] Terminating process because the JAX distributed service detected fatal errors. This most likely indicates that another task died; see the other task logs for more details. Status: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats): /job:jax_worker/replica:0/task:17"
    )
    assert (found.cause, found.values.peer) == ("time_out", "task:17") and "Task 17" in found.sentence


def test_a_product_divides_and_another_batch_is_not_forbidden_with_it():
    line = "AssertionError: global batch size (1000) is not divisible by micro batch size (2) times data parallel size (64)"
    found = read(line, config=CONFIG)
    assert (found.values.dimension, found.values.divisor) == (1000, 128)
    assert found.forbidden is not None
    config = parse_config(CONFIG)[0]
    assert found.forbidden.covers(config)
    assert not found.forbidden.covers(parse_config({**CONFIG, "training": {"global_batch": 128, "seq_len": 4096}})[0])


def test_of_an_unknown_log_the_first_line_that_looks_like_an_error_is_quoted():
    found = read("step 1", "[fabric] aborting: lane 3 lost", "step 2", "bye")
    assert (found.cause, found.line_number) == ("unknown", 2) and "aborting" in found.line


def test_the_source_line_of_a_traceback_is_no_error():
    found = read(
        '    raise RuntimeError(f"world_size ({world_size}) is not divisible by {total_model_size}")',
        "RuntimeError: world_size (6) is not divisible by 4",
    )
    assert (found.cause, found.line_number, found.values.dimension, found.values.divisor) == ("invalid_mesh", 2, 6, 4)


def test_memory_that_other_processes_hold_is_tried_again():
    others = f"{OOM} Process 77 has 30.00 GiB memory in use. Process 78 has 2.00 GiB memory in use."
    found = read(others)
    assert found.values.others == 32 * 2**30
    assert (found.cause, found.verdict) == ("out_of_memory", "retry")
    assert "other processes hold 34.4 GB" in found.sentence


def test_dates_ranks_levels_and_colours_are_no_part_of_the_quoted_line():
    said = "ModuleNotFoundError: No module named 'apex'"
    for prefix in (
        "2024-05-01 10:00:00,123 ERROR: ", "[rank7]: ", "[1,3]<stderr>:", "12: ", "\x1b[31m", "(Worker pid=12, ip=10.0.0.1) ",
        "E0718 11:07:06.132657  193878 a/b.cc:3077] ", "[2024-05-01 10:00:00,123] [ERROR] ", "2024-05-01T10:00:00Z ",
    ):  # fmt: skip
        found = read(f"{prefix}{said}\x1b[0m")
        assert (found.cause, found.line) == ("dependency", said), prefix
    assert read(f"12: {said}").rank == 12 and read(f"[1,3]<stderr>:{said}").rank == 3


def test_the_earliest_of_several_files_by_their_clocks():
    late = f"2024-05-01 10:20:00 INFO step 9\n{OOM}\n"
    early = "2024-05-01 10:00:00 INFO step 8\nRuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    found = read_failure([("rank0.log", io.BytesIO(late.encode())), ("rank1.log", io.BytesIO(early.encode()))])
    assert (found.cause, found.file, found.lines) == ("hardware", "rank1.log", 4)


def test_without_clocks_the_first_file_counts_that_has_a_cause():
    logs = [("a", b"all well\n"), ("b", OOM.encode()), ("c", b"ImportError: x")]
    found = read_failure([(name, io.BytesIO(text)) for name, text in logs])
    assert (found.cause, found.file) == ("out_of_memory", "b")


def test_nothing_known_shows_how_much_was_read_and_how_it_ended():
    found = read(*(f"step {n}" for n in range(12_345)))
    assert found.sentence == "No known error in 12,345 lines."
    assert found.last == ("step 12342", "step 12343", "step 12344") and found.cause == "unknown"
    assert read_failure(io.BytesIO(b"")).sentence == "The log is empty."


def test_an_empty_list_of_logs_is_an_empty_log():
    assert read_failure([]).sentence == "The log is empty."


@pytest.mark.parametrize(
    "text",
    [
        b"<script>alert(1)</script> CUDA out of memory. Tried to allocate 2.00 GiB",
        b"\xff\xfe\x00bad \xc3\x28 CUDA out of memory.",
        "CUDA out of memory. Tried to allocate 2.00 GiB".encode("utf-16-le"),
        b"CUDA out of memory. Tried to allocate " + b"9" * 4000 + b" GiB",
        b"CUDA out of memory.\x1b[31m\x07\x9b \xe2\x80\xae",
        b"step 1\rstep 2\rCUDA out of memory.\r\n",
    ],
)
def test_hostile_bytes_are_read_as_text(text):
    found = read_failure(io.BytesIO(text))
    assert found.cause == "out_of_memory"
    assert found.line.isprintable() and len(found.line) <= 300
    json.dumps(found.to_json(), allow_nan=False).encode()


def test_one_endless_line_is_quoted_around_its_message():
    found = read_failure(
        io.BytesIO(b"x" * (3 * BLOCK) + b" CUDA out of memory. Tried to allocate 2.00 GiB " + b"y" * BLOCK)
    )
    assert (found.cause, found.line_number, found.lines) == ("out_of_memory", 1, 1)
    assert "CUDA out of memory" in found.line and len(found.line) <= 300


def test_lines_are_counted_across_blocks():
    line = b"step 1200 loss 2.31 tokens/s 81231\n"
    before = 2 * BLOCK // len(line)
    found = read_failure(io.BytesIO(line * before + OOM.encode() + b"\n" + line * 10))
    assert (found.line_number, found.lines) == (before + 1, before + 11)


def test_an_axis_that_does_not_divide_is_named_as_configured_and_forbidden():
    said = "ValueError: Total number of attention heads (28) must be divisible by tensor parallel size (8)"
    found = read(said, config=CONFIG)
    assert found.parameters == ("mesh.ici.model",)
    assert found.forbidden is not None and found.forbidden.covers(parse_config(CONFIG)[0])
    four = {**CONFIG, "mesh": {"ici": {"data": 4, "seq": 1, "model": 4}}}
    assert not found.forbidden.covers(parse_config(four)[0])  # 4 divides 28
    assert found.forbidden.constraints.to_json() == {"excluded": [{"ici": CONFIG["mesh"]["ici"], "dcn": {}}]}


def test_out_of_memory_forbids_what_needs_more_on_the_same_chip():
    found = read(OOM, config=CONFIG)
    assert found.forbidden is not None
    more, less = ({**CONFIG, "training": {**CONFIG["training"], "global_batch": batch}} for batch in (128, 32))
    assert found.forbidden.covers(parse_config(more)[0]) and not found.forbidden.covers(parse_config(less)[0])
    elsewhere = {**CONFIG, "hardware": {"chip": "v5p", "topology": [4, 4]}}
    assert not found.forbidden.covers(parse_config(elsewhere)[0])
    assert 0 < found.forbidden.constraints.memory_margin <= 0.5


def test_a_pipeline_is_compared_by_what_it_cannot_do_without_and_the_sentence_says_so():
    """Where nobody said what is recomputed, the total of the first is smaller and its minimum larger."""

    def stages(pipeline: int, data: int, micro_batch: int) -> dict[str, Any]:
        return {
            "name": "a pipeline",
            "hardware": {"chip": "h100", "topology": [8, 8], "slices": 1},
            "mesh": {"ici": {"pipeline": pipeline, "data": data, "model": 8}, "dcn": {}},
            "model": {"name": "llama3.1-70b"},
            "software": {"framework": "megatron-lm"},
            "training": {"global_batch": 128, "seq_len": 4096, "micro_batch": micro_batch, "weight_sharding": "zero1"},
        }

    failed, other = stages(4, 2, 1), stages(8, 1, 2)
    used = [per_chip(from_config(parse_config(given)[0])) for given in (failed, other)]
    least = [float(one.needed[0] - one.sparable[0]) for one in used]
    assert used[0].total[0] < used[1].total[0] and least[0] > least[1]
    found = read(OOM, config=failed).forbidden
    assert found is not None and not found.covers(parse_config(other)[0])
    turned = read(OOM, config=other).forbidden
    assert turned is not None and turned.covers(parse_config(failed)[0])
    assert "a larger minimum memory per chip" in found.sentence
    assert Value("minimum memory per chip", least[0], "bytes", "predicted") in found.sentence.spans


def test_a_batch_that_does_not_divide_says_nothing_of_another_batch():
    said = "ValueError: One of device_put args was given the sharding of NamedSharding(mesh=Mesh('data': 2, 'model': 8), spec=PartitionSpec('data',), memory_kind=device), which implies that the global size of its dimension 0 should be divisible by 2, but it is equal to 63 (full shape: (63, 4096))"
    odd = {**CONFIG, "training": {"global_batch": 64, "seq_len": 2048}}
    found = read(said, config=CONFIG)
    assert found.parameters == ("mesh.ici.data",) and found.forbidden is not None
    assert found.forbidden.covers(parse_config(CONFIG)[0]) and not found.forbidden.covers(parse_config(odd)[0])


def test_network_and_preemption_forbid_nothing():
    for said in (
        "node:1:2 [4] NCCL WARN NET/IB : Got completion from peer 10.0.0.1<5> with status=12",
        "Job is preempted.",
    ):
        found = read(said, config=CONFIG)
        assert (found.verdict, found.forbidden, found.parameters) == ("retry", None, ())


def test_every_signature_says_where_its_text_comes_from_and_has_a_known_cause():
    names = [signature.name for signature in table().signature]
    assert len(names) == len(set(names))
    assert {signature.cause for signature in table().signature} <= set(CAUSES) == set(table().cause)
    assert {cause.history for cause in table().cause.values()} <= set(FAILURES)
    assert all(needle == needle.lower() for signature in table().signature for needle in signature.needles)


def test_the_labelled_logs_are_many_and_in_two_halves():
    logs = labelled()
    assert len(logs) >= 60 and {item.cause for item in logs} <= set(CAUSES)
    assert 0.4 < sum(item.seen for item in logs) / len(logs) < 0.6
    assert len({item.source for item in logs}) == len(logs)


def test_most_causes_are_right_on_the_half_that_no_signature_was_written_from():
    unseen = [item for item in labelled() if not item.seen]
    found = [read_failure(io.BytesIO(item.path.read_bytes())) for item in unseen]
    assert sum(one.cause == item.cause for one, item in zip(found, unseen, strict=True)) >= 0.9 * len(unseen)
    assert not [item.name for one, item in zip(found, unseen, strict=True) if one.verdict == "forbid" != item.verdict]
