"""The reconstructions as files: one XSpace per host and the configuration the paper gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from xprof.protobuf import op_metrics_pb2, op_stats_pb2

from evaluation.reconstruct.scenarios import Scenario
from evaluation.reconstruct.step import StepOp
from evaluation.reconstruct.timeline import CoreTimeline, timelines
from evaluation.xspace_writer import MODULES_LINE, OPS_LINE, STEPS_LINE, PlaneWriter, SpaceWriter, StatValue
from experiments.samples.samples import RECONSTRUCTED

_PROGRAM_ID = 1
_HBM, _VMEM = 1, 3
_READ, _WRITE = 1, 2


def host_name(scenario: Scenario, host: int) -> str:
    return f"{scenario.key}-host-{host}"


def _memory_accesses(op: StepOp) -> bytes:
    breakdown = op_metrics_pb2.MemoryAccessBreakdown()
    for space, kind, size in (
        (_HBM, _READ, op.hbm_bytes - op.hbm_bytes // 2),
        (_HBM, _WRITE, op.hbm_bytes // 2),
        (_VMEM, _READ, op.vmem_read_bytes),
        (_VMEM, _WRITE, op.vmem_write_bytes),
    ):
        if size:
            breakdown.memory_accessed.add(operation_type=kind, memory_space=space, bytes_accessed=size)
    data: bytes = breakdown.SerializeToString()
    return data


def _op_stats(op: StepOp, symbol: int) -> dict[str, StatValue]:
    stats: dict[str, StatValue] = {
        "program_id": _PROGRAM_ID,
        "symbol_id": symbol,
        "hlo_category": op.category,
        "tf_op": op.op_name,
        "source": op.source,
    }
    if op.flops:
        stats |= {"flops": op.flops, "model_flops": op.flops}
    moved = op.hbm_bytes + op.vmem_read_bytes + op.vmem_write_bytes
    if moved:
        stats |= {"bytes_accessed": moved, "memory_access_breakdown": _memory_accesses(op)}
    return stats


def _write_core(plane: PlaneWriter, scenario: Scenario, timeline: CoreTimeline) -> None:
    steps, modules, ops = (plane.add_line(name) for name in (STEPS_LINE, MODULES_LINE, OPS_LINE))
    module = plane.add_event_metadata(f"jit_train_step({_PROGRAM_ID})", "jit_train_step")
    for number, start in enumerate(timeline.step_starts_ps):
        steps.add_event(plane.add_event_metadata(str(number)), start, scenario.step_ps)
        modules.add_event(module, start, scenario.step_ps)
    ids: dict[str, int] = {}
    for event in timeline.ops:
        op = event.op
        if op.name not in ids:
            ids[op.name] = plane.add_event_metadata(op.hlo, op.name, _op_stats(op, len(ids) + 1))
        ops.add_event(ids[op.name], event.start_ps, event.duration_ps)


def build(scenario: Scenario) -> list[SpaceWriter]:
    """One XSpace per recorded host, its cores as TPU planes."""
    spaces = [SpaceWriter(host_name(scenario, host)) for host in range(scenario.hosts)]
    for timeline in timelines(scenario):
        host, local = divmod(timeline.core, scenario.cores_per_host)
        plane = spaces[host].add_plane(f"/device:TPU:{local}")
        details = op_stats_pb2.CoreDetails(
            hostname=host_name(scenario, host), device_ordinal=local, local_chip_id=local,
            global_chip_id=timeline.core, global_core_id=timeline.core,
        )  # fmt: skip
        plane.add_stats(
            {
                "device_type_string": scenario.part.device_type,
                "peak_teraflops_per_second": scenario.part.teraflops_per_s,
                "peak_hbm_bw_gigabytes_per_second": scenario.part.hbm_gigabytes_per_s,
                "peak_vmem_rd_bw_gigabytes_per_second": scenario.part.vmem_gigabytes_per_s,
                "peak_vmem_wr_bw_gigabytes_per_second": scenario.part.vmem_gigabytes_per_s,
                "core_details": details.SerializeToString(),
            }
        )
        _write_core(plane, scenario, timeline)
    for space in spaces:
        # Ingestion takes it as the label, so that the file says what it is wherever it goes.
        space.space.warnings.append(RECONSTRUCTED.format(number=scenario.printed.number))
    return spaces


def configuration(scenario: Scenario) -> dict[str, Any]:
    """The configuration as far as the paper gives it: no model, no batch or sequence length it does not print."""
    printed = scenario.printed
    training: dict[str, int] = {}
    if printed.batch is not None:
        training["global_batch"] = printed.batch
    if printed.seq_len is not None:
        training["seq_len"] = printed.seq_len
    absent = [
        name
        for name, value in (
            ("model", None), ("batch size", printed.batch), ("sequence length", printed.seq_len),
        )
        if value is None
    ]  # fmt: skip
    missing = absent[0] if len(absent) == 1 else ", ".join(absent[:-1]) + " and " + absent[-1]
    return {
        "name": f"ASAP paper, experiment {printed.number} ({printed.device})",
        "hardware": {"chip": scenario.part.chip, "topology": list(printed.topology), "slices": 1},
        "mesh": {"ici": dict(printed.mesh), "dcn": {}},
        "training": training,
        "notes": f"{RECONSTRUCTED.format(number=printed.number).capitalize()} (arXiv 2511.03844, {printed.section}), "
        f"baseline mesh; {scenario.hosts} of {scenario.hosts_total} hosts. Not in the paper: {missing}.",
    }


def write(scenario: Scenario, folder: Path) -> list[Path]:
    """Writes `HOST.xplane.pb.gz` for every recorded host and `config.json`; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for host, space in enumerate(build(scenario)):
        path = folder / f"{host_name(scenario, host)}.xplane.pb.gz"
        space.write(path)
        paths.append(path)
    config = folder / "config.json"
    config.write_text(json.dumps(configuration(scenario), indent=2) + "\n")
    return [*paths, config]
