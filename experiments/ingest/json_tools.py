"""XProf's tools beside the op tables: framework ops, kernels, the memory of a program, steps by core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.ingest.json_piece import Piece
from experiments.ingest.json_rows import normalized
from experiments.ingest.kernel_ops import framework_category, kernel_category
from experiments.ingest.values import gviz_rows, number, text

#: Parts of a step by the words that the pod viewer has for them.
_PARTS = {
    "device compute": "compute",
    "device to device": "device_to_device",
    "device collective communication": "collective",
    "device collectives": "collective",
    "host compute": "host",
    "kernel launch": "launch",
    "host prepare": "launch",
    "input": "input",
    "output": "output",
    "compilation": "compile",
    "compile": "compile",
    "all others": "other",
}
#: The same where the export lacks the words: `GenericEventType`.
_PARTS_BY_ID = ("compute", "device_to_device", "collective", "host", "launch", "input", "output", "compile", "other")
#: Parts as the pod viewer of TensorFlow 2 and earlier names them, each with its duration in µs.
_OLDER_PARTS = {
    "highFlopsComputeUs": "compute",
    "crsDurationUs": "collective",
    "sendDurationUs": "collective",
    "recvDurationUs": "collective",
    "hostInfeedDurationUs": "input",
    "hostOutfeedDurationUs": "output",
}
_MIB = float(1 << 20)


def framework_ops(table: Mapping[str, Any], file: str) -> Piece:
    """Ops of the framework that ran on devices; XProf states their share of the time as a fraction."""
    ops: list[dict[str, Any]] = []
    for row in gviz_rows(table):
        if str(row.get("host_or_device", "")).lower() != "device":
            continue
        renamed = normalized(row)
        renamed["time_fraction"] = renamed.pop("device_total_self_time_percent", None)
        renamed["category"] = framework_category(text(renamed.pop("type", None), 200))
        renamed["op_name"] = renamed.get("operation")
        ops.append(renamed)
    return Piece("framework_op_stats", file, ops=ops, complete=True, dropped=0, bare_unit="us")


def kernels(table: Mapping[str, Any], file: str) -> Piece:
    """Kernels of GPUs: XProf keeps those that took longest."""
    ops = [
        {
            "name": row.get("kernel_name"),
            "category": kernel_category(text(row.get("kernel_name"), 2000), text(row.get("op_name"), 500)),
            "op_name": row.get("op_name"),
            "occurrences": row.get("occurrences"),
            "self_time_us": row.get("total_duration_us"),
        }
        for row in gviz_rows(table)
    ]
    return Piece("kernel_stats", file, ops=ops, complete=None)


def is_memory_viewer(value: Mapping[str, Any]) -> bool:
    return "maxHeap" in value or "peakHeapMib" in value or ("hloModule" in value and "bufferAssignment" in value)


def memory_viewer(value: Mapping[str, Any], file: str) -> Piece:
    """What one program allocates by its buffer assignment."""
    total = number(value.get("totalBufferAllocationMib"))
    program = text(value.get("moduleName"), 100)
    planned = total * _MIB if total else None
    return Piece("memory_viewer", file, planned_bytes=planned, heap=dict(value), program=program)


def _environment(stated: Any) -> dict[str, Any]:
    """Device, cores and hosts of the run."""
    if not isinstance(stated, dict):
        return {}
    keys = {"tpuType": "device_type", "tpuCoreCount": "device_core_count", "hostCount": "host_count"}
    return {ours: stated[key] for key, ours in keys.items() if stated.get(key)}


def pod_viewer(value: Mapping[str, Any], file: str) -> Piece:
    """Steps by core: [(step, core, host, seconds, parts)]."""
    events = value.get("stepBreakdownEvents")
    words = {
        str(event.get("id")): _PARTS.get(str(event.get("name", "")).lower(), "other")
        for event in (events if isinstance(events, list) else ())
        if isinstance(event, dict)
    } or {str(i): part for i, part in enumerate(_PARTS_BY_ID, 1)}
    piece = Piece("pod_viewer", file, device=_environment(value.get("runEnvironment")))
    sequence = value.get("podStatsSequence")
    steps = sequence.get("podStatsMap") if isinstance(sequence, dict) else None
    for step in steps if isinstance(steps, list) else ():
        cores = step.get("podStatsPerCore") if isinstance(step, dict) else None
        for core, said in (cores if isinstance(cores, dict) else {}).items():
            if not isinstance(said, dict):
                continue
            step_number, duration = (
                number(said.get("stepNum", step.get("stepNum"))),
                number(said.get("totalDurationUs")),
            )
            stated = said.get("stepBreakdownUs")
            parts: dict[str, float] = {}
            split = (
                [(words.get(str(key), "other"), amount) for key, amount in stated.items()]
                if isinstance(stated, dict)
                else [(part, said.get(key)) for key, part in _OLDER_PARTS.items()]
            )
            for part, amount in split:
                us = number(amount)
                if us is not None and us >= 0:
                    parts[part] = parts.get(part, 0.0) + us * 1e-6
            if parts and duration and not isinstance(stated, dict):
                parts["other"] = max(0.0, duration * 1e-6 - sum(parts.values()))
            if step_number is not None and duration and duration > 0:
                host = text(said.get("hostName"), 100)
                piece.core_steps.append((int(step_number), text(core, 50), host, duration * 1e-6, parts))
    return piece
