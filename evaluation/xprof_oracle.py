"""What XProf itself says of a profile, straight from its tools' JSON: independent of how the product reads them."""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_TOOLS = ("overview_page", "hlo_stats", "roofline_model", "op_profile", "memory_profile", "framework_op_stats")
_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "send", "recv")


def of_xplanes(paths: Sequence[Path]) -> dict[str, float]:
    """Quantities of one session by the installed XProf."""
    from xprof.convert import _pywrap_profiler_plugin as xprof

    with tempfile.TemporaryDirectory() as folder:
        copies: list[str] = []
        for path in paths:
            copies.append(str(Path(folder) / path.name))
            shutil.copyfile(path, copies[-1])
        tools: dict[str, Any] = {}
        for name in _TOOLS:
            data, ok = xprof.xspace_to_tools_data(copies, name, {"use_saved_result": True})
            if ok and data:
                tools[name] = json.loads(data)
    return _quantities(tools)


def of_exports(paths: Sequence[Path]) -> dict[str, float]:
    """The same of JSON exports, distinguished by their names."""
    tools: dict[str, Any] = {}
    for path in paths:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        name = path.name.partition(".json")[0].removeprefix("profile_demo.")
        tools[{"input_pipeline": "input_pipeline_analyzer"}.get(name, name)] = json.loads(raw)
    return _quantities(tools)


def _rows(table: Any) -> list[dict[str, Any]]:
    ids = [column["id"] for column in table["cols"]]
    return [dict(zip(ids, [(cell or {}).get("v") for cell in row["c"]], strict=False)) for row in table["rows"]]


def _float(value: Any) -> float | None:
    try:
        return float(str(value).rstrip("%"))
    except ValueError:
        return None


def _quantities(tools: dict[str, Any]) -> dict[str, float]:
    quantities: dict[str, float | None] = {}
    for table in tools.get("overview_page") or tools.get("input_pipeline_analyzer") or ():
        said = table.get("p") or {} if isinstance(table, dict) else {}
        for key, name, scale in (
            ("duty_cycle", "device_duty_cycle_percent", 100.0),
            ("idle", "device_idle_time_percent", 100.0),
            ("mxu_utilization", "mxu_utilization_percent", 100.0),
            ("input", "infeed_percent_average", 100.0),
            ("step_time", "steptime_ms_average", 1e3),
            ("step_time_spread", "steptime_ms_standard_deviation", 1e3),
        ):
            value = _float(said.get(name))
            if value is not None:
                quantities[key] = value / scale
    if "roofline_model" in tools:
        quantities |= _roofline(tools["roofline_model"][0])
    if "hlo_stats" in tools:
        ops = [row for row in _rows(tools["hlo_stats"]) if row["hlo_op_name"] != "IDLE"]
        if ops:
            quantities["ops"] = float(len(ops))
            quantities["top_op"] = max(row["total_self_time_percent"] for row in ops) / 100
    if "op_profile" in tools:
        quantities |= _op_profile(tools["op_profile"])
    if "framework_op_stats" in tools:
        rows = _rows(tools["framework_op_stats"][0])
        quantities["idle_row"] = sum(
            row["device_total_self_time_percent"] for row in rows if row["operation"] == "IDLE"
        )
    memory = (tools.get("memory_profile") or {}).get("memoryProfilePerAllocator") or {}
    peaks = [float(one["profileSummary"]["peakStats"]["peakBytesInUse"]) for one in memory.values()]
    lifetime = [float(one["profileSummary"]["peakBytesUsageLifetime"]) for one in memory.values()]
    if peaks or lifetime:
        quantities["peak_memory"] = max(*peaks, *lifetime)
    return {key: value for key, value in quantities.items() if value is not None}


def _roofline(table: Any) -> dict[str, float | None]:
    programs = {
        row["step"]: row for row in _rows(table) if row["operation"] == "Program" and row["include_infeed_outfeed"]
    }
    row = programs.get("Average")
    row = row if row and row["total_time"] else programs.get("Total")
    peak = _float((table.get("p") or {}).get("peak_hbm_bw"))
    if row is None:
        return {}
    return {
        "flops_utilization": row["compute_efficiency"],
        "hbm_utilization": row["hbm_bw"] / peak if peak else None,
    }


def _op_profile(document: Any) -> dict[str, float | None]:
    """Time in collectives."""
    root = document.get("byCategory") or document.get("byProgram")
    whole = float((root.get("metrics") or {}).get("rawTime") or 0)
    if not whole:
        return {}
    talking = 0.0
    nodes = [root]
    while nodes:
        node = nodes.pop()
        name, category = str(node.get("name")), (node.get("xla") or {}).get("category") or ""
        time = float((node.get("metrics") or {}).get("rawTime") or 0)
        # Ops of one text are children of a node that looks like an op.
        if "xla" not in node or name.endswith("duplicate(s)"):
            nodes += node.get("children") or []
        elif name.startswith("async-collective") or any(word in category for word in _COLLECTIVES):
            talking += time
    return {"communication": talking / whole}
