"""JSON exports of XProf's tools, of its command line, and of reports made from them, taken apart by what they hold."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from experiments.ingest.errors import IngestError
from experiments.ingest.json_rows import Piece, is_op, key_of, normalized
from experiments.ingest.kernel_ops import framework_category
from experiments.ingest.values import GIB, gviz_rows, number, text

ACCEPTED = (
    "Export overview_page, hlo_stats, op_profile or roofline_model from XProf (docs/profiles.md shows the shapes)."
)

_TOOLS = {
    "overview_page": "overview_page",
    "overview": "overview_page",
    "hlo_stats": "hlo_stats",
    "hlo_op_stats": "hlo_stats",
    "op_profile": "op_profile",
    "hlo_op_profile": "op_profile",
    "roofline_model": "roofline_model",
    "roofline": "roofline_model",
    "roofline_analysis": "roofline_model",
    "memory_profile": "memory_profile",
    "memory_viewer": "memory_viewer",
    "framework_op_stats": "framework_op_stats",
    "tensorflow_stats": "framework_op_stats",
    "pod_viewer": "pod_viewer",
    "input_pipeline_analyzer": "input_pipeline_analyzer",
    "input_pipeline": "input_pipeline_analyzer",
    "kpis": "kpis",
    "kpi_metrics": "kpis",
}
_OP_LISTS = ("top_ops", "ops", "operations", "top_operations", "top_by_time", "records", "hlo_ops", "top_hlo_ops")
_DEPTH = 8


class NothingKnown(IngestError):
    """A document that is none of XProf's exports."""


def is_tool_export(name: str) -> bool:
    """Whether a file is named after nothing but the tool it comes from: `hlo_stats.json`, `op_profile (1).json`."""
    return re.sub(r"_\d+$", "", key_of(re.sub(r"(?i)\.json(\.gz)?$", "", name))) in _TOOLS


def load(path: Path, name: str) -> Any:
    """Strict JSON: UTF-8, no NaN, no deep nesting; IngestError with the place where it breaks."""

    def constant(text: str) -> float:
        raise IngestError(
            f"{name} contains {text}, not a JSON number.", "Leave out what was not measured, or write null.", name
        )

    try:
        return json.loads(path.read_bytes().decode("utf-8-sig"), parse_constant=constant)
    except UnicodeDecodeError as error:
        raise IngestError(f"{name} is not UTF-8 at byte {error.start:,}.", "Export it again as UTF-8.", name) from error
    except json.JSONDecodeError as error:
        raise IngestError(
            f"{name} is not valid JSON: {error.msg} in line {error.lineno}, column {error.colno}.", ACCEPTED, name
        ) from error
    except (RecursionError, ValueError) as error:
        raise IngestError(
            f"{name} is not usable JSON: it is nested too deeply or a number is too long.", ACCEPTED, name
        ) from error


def pieces(document: Any, file: str) -> list[Piece]:
    """What a document holds; IngestError where that is nothing we know."""
    parts = list(_pieces(document, file, "", 0))
    if parts:
        return parts
    if _configures(document):
        raise IngestError(
            f"{file} looks like an experiment's configuration, not a profile.", "Give it as the configuration.", file
        )
    said = f"{file} is JSON, but no profile that is read: it contains no KPIs, ops or events of one."
    raise NothingKnown(said, ACCEPTED, file)


def _configures(document: Any) -> bool:
    return isinstance(document, dict) and bool({"hardware", "mesh"} & set(document))


def is_configuration(text: str) -> bool:
    """Whether a JSON document is an experiment's configuration, right or wrong, and no profile."""
    try:
        document = json.loads(text)
        return _configures(document) and not any(_pieces(document, "", "", 0))
    except (ValueError, RecursionError, IngestError):
        return False


def _pieces(value: Any, file: str, hint: str, depth: int) -> Iterator[Piece]:
    if depth > _DEPTH:
        return
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        # The agents of the paper read tables as JSON strings.
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return
    if isinstance(value, list):
        yield from _list(value, file, hint, depth)
    elif isinstance(value, dict):
        yield from _object(value, file, hint, depth)


def _is_gviz(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("cols"), list) and isinstance(value.get("rows"), list)


def _columns(table: dict[str, Any]) -> set[str]:
    return {str(column.get("id")) for column in table["cols"] if isinstance(column, dict)}


def _table(table: dict[str, Any], file: str) -> Piece | None:
    """The tool whose table this is, by its columns; None where it is none of ops."""
    columns = _columns(table)
    if "roofline_efficiency" in columns:
        return _roofline(table, file)
    if "hlo_op_name" in columns:
        return _hlo_stats(table, file)
    if {"host_or_device", "operation"} <= columns:
        return framework_ops(table, file)
    return None


def _list(value: list[Any], file: str, hint: str, depth: int) -> Iterator[Piece]:
    tables = [item for item in value if _is_gviz(item)]
    if tables:
        # XProf's framework ops are two tables, the first with idle time.
        piece = _table(tables[0], file)
        yield _overview(value, file) if piece is None else piece
        return
    rows = [normalized(item) for item in value if isinstance(item, dict)]
    if rows and len(rows) == len(value) and any(map(is_op, rows)):
        yield Piece(hint or "ops", file, ops=rows)
        return
    for item in value:
        yield from _pieces(item, file, hint, depth + 1)


def _object(value: dict[str, Any], file: str, hint: str, depth: int) -> Iterator[Piece]:
    if _is_gviz(value):
        piece = _table(value, file)
        if piece is not None:
            yield piece
        return
    if is_memory_viewer(value):
        yield memory_viewer(value, file)
        return
    if isinstance(value.get("podStatsSequence"), dict):
        yield pod_viewer(value, file)
        return
    if isinstance(value.get("memoryProfilePerAllocator"), dict):
        yield Piece("memory_profile", file, allocators=value["memoryProfilePerAllocator"])
        return
    if isinstance(value.get("byProgram"), dict) or isinstance(value.get("byCategory"), dict):
        yield _op_profile(value, file)
        return
    flat = normalized(value)
    kpis = Piece(hint or "kpis", file)
    for key in ("performance_summary", "kpis", "kpi_metrics", "program"):
        inner = flat.get(key)
        if isinstance(inner, dict):
            values = normalized(inner)
            if key == "program":
                values = {"flops_utilization_percent": values.get("compute_efficiency_percent")}
            kpis.kpis.update({name: item for name, item in values.items() if not isinstance(item, dict | list)})
        elif inner is not None and key in ("kpis", "kpi_metrics") and not isinstance(inner, str):
            raise IngestError(f"{file}: {key} is not an object.", ACCEPTED, file)
    for key in ("run_environment", "accelerator_info", "device_info", "device"):
        if isinstance(flat.get(key), dict):
            kpis.device.update(normalized(flat[key]))
    kpis.kpis.update({key: item for key, item in flat.items() if isinstance(item, str | int | float)})
    for key in _OP_LISTS:
        if key not in flat:
            continue
        rows = flat[key]
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise IngestError(f"{file}: {key} is not a list of ops.", ACCEPTED, file)
        kpis.ops += [normalized(row) for row in rows]
        total = flat.get("total_records", flat.get("total_operations_analyzed"))
        if isinstance(total, int) and not isinstance(total, bool) and total >= len(rows):
            kpis.dropped = total - len(rows)
        break
    if kpis.ops or kpis.device or _has_kpi(kpis.kpis):
        yield kpis
    for key, item in value.items():
        tool = _TOOLS.get(key_of(key))
        if tool and tool != "kpis" and isinstance(item, dict | list | str):
            yield from _pieces(item, file, tool, depth + 1)


def _has_kpi(kpis: dict[str, Any]) -> bool:
    return any(
        part in key for key in kpis for part in ("step_time", "steptime", "duty_cycle", "communication", "goodput")
    )


def _overview(tables: list[Any], file: str) -> Piece:
    piece = Piece("overview_page" if len(tables) > 5 else "input_pipeline_analyzer", file)
    for table in tables:
        if not isinstance(table, dict):
            continue
        properties = table.get("p")
        if isinstance(properties, dict):
            piece.kpis.update({key_of(key): value for key, value in properties.items()})
        columns = _columns(table) if _is_gviz(table) else set()
        if "stepnum" in columns:
            piece.steps = gviz_rows(table)
        if {"severity", "message"} <= columns:
            piece.notes = [(str(row.get("severity", "")), str(row.get("message", ""))) for row in gviz_rows(table)]
    piece.device = {
        key: piece.kpis[key] for key in ("device_type", "device_core_count", "host_count") if key in piece.kpis
    }
    return piece


def _hlo_stats(table: dict[str, Any], file: str) -> Piece:
    rows = [normalized(row) for row in gviz_rows(table)]
    return Piece("hlo_stats", file, ops=rows, complete=True, dropped=0, bare_unit="us")


def _roofline(table: dict[str, Any], file: str) -> Piece:
    rows = [row for row in gviz_rows(table) if row.get("include_infeed_outfeed") is not False]
    ops = [normalized(row) for row in rows if row.get("step") == "Total" and row.get("operation") != "Program"]
    for row in ops:
        # The key says percent, the value is 0–1.
        row["time_fraction"] = row.pop("total_self_time_percent", None)
    programs = {str(row.get("step")): row for row in rows if row.get("operation") == "Program"}
    program = programs.get("Average") or programs.get("Total") or {}
    properties = table.get("p") if isinstance(table.get("p"), dict) else {}
    device = {key_of(key): value for key, value in (properties or {}).items()}
    kpis = {"program_compute_efficiency": program.get("compute_efficiency"), "program_hbm_bw": program.get("hbm_bw")}
    capped = len(ops) >= 1000
    return Piece(
        "roofline_model",
        file,
        kpis=kpis,
        device=device,
        ops=ops,
        complete=not capped,
        dropped=None if capped else 0,
        bare_unit="us",
        scale="fraction",
    )


def _op_profile(tree: dict[str, Any], file: str) -> Piece:
    """Leaves of the tree; times in ps, FLOPs as counted."""
    root = next(tree[key] for key in ("byProgram", "byCategory") if isinstance(tree.get(key), dict))
    rows: list[dict[str, Any]] = []
    stack: list[tuple[Any, tuple[str, ...]]] = [(root, ())]
    while stack:
        node, path = stack.pop()
        if not isinstance(node, dict):
            continue
        children = node.get("children") or []
        # Ops that XProf holds for the same are grouped in a node of their own, which looks like an op.
        is_group = bool(children) and str(node.get("name", "")).endswith("duplicate(s)")
        if isinstance(node.get("xla"), dict) and not is_group:
            metrics = node.get("metrics") if isinstance(node.get("metrics"), dict) else {}
            assert isinstance(metrics, dict)
            rows.append(
                {
                    "name": node.get("name"),
                    "category": node["xla"].get("category") or (path[-1] if path else ""),
                    "hlo": node["xla"].get("expression"),
                    "provenance": node["xla"].get("provenance"),
                    "program": path[1] if len(path) > 2 else "",
                    "self_time_ps": metrics.get("rawTime"),
                    "total_time_ps": metrics.get("rawTime"),
                    "flops": metrics.get("rawFlops"),
                    "occurrences": metrics.get("occurrences"),
                }
            )
        elif isinstance(children, list):
            stack += [(child, (*path, str(node.get("name", "")))) for child in children]
    metrics = root.get("metrics") if isinstance(root.get("metrics"), dict) else {}
    assert isinstance(metrics, dict)
    whole = number(metrics.get("rawTime"))
    idle = [node for node in root.get("children") or [] if isinstance(node, dict) and node.get("name") == "IDLE"]
    kpis: dict[str, Any] = {"profile_time_ps": metrics.get("rawTime")}
    if whole and rows:
        said = [node["metrics"] for node in idle if isinstance(node.get("metrics"), dict)]
        times = [number(one.get("rawTime")) or 0.0 for one in said]
        kpis |= {"op_profile_idle": sum(times) / whole, "op_profile_flops": metrics.get("flops")}
        bandwidths = metrics.get("bandwidthUtils")
        kpis["op_profile_hbm"] = bandwidths[0] if isinstance(bandwidths, list) and bandwidths else None
    return Piece("op_profile", file, kpis=kpis, device=_peaks_of(metrics, whole), ops=rows, complete=None, dropped=None)


def _peaks_of(metrics: dict[str, Any], time_ps: float | None) -> dict[str, Any]:
    """Peaks of a core in XProf's units, which its utilisations of the whole and its counts imply."""
    peaks: dict[str, Any] = {}
    flops, share = number(metrics.get("rawFlops")), number(metrics.get("flops"))
    if time_ps and flops and share:
        peaks["peak_flop_rate"] = flops / (time_ps * 1e-12) / share / 1e9
    counts, shares = metrics.get("rawBytesAccessedArray"), metrics.get("bandwidthUtils")
    if time_ps and isinstance(counts, list) and isinstance(shares, list) and counts and shares:
        moved, used = number(counts[0]), number(shares[0])
        if moved and used:
            peaks["peak_hbm_bw"] = moved / (time_ps * 1e-12) / used / GIB
    return peaks


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


def is_memory_viewer(value: Mapping[str, Any]) -> bool:
    return "maxHeap" in value or "peakHeapMib" in value or ("hloModule" in value and "bufferAssignment" in value)


def memory_viewer(value: Mapping[str, Any], file: str) -> Piece:
    """Return the bytes that one program allocates by its buffer assignment."""
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
