"""XProf's own tables of a profile, made in a process of its own as ingestion does."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TOOLS = ("overview_page", "hlo_stats", "roofline_model", "pod_viewer")


def _convert(paths: list[str], queue: Any) -> None:
    from xprof.convert import _pywrap_profiler_plugin as plugin

    queue.put({tool: plugin.xspace_to_tools_data(paths, tool, {"use_saved_result": True}) for tool in TOOLS})


def xprof_tables(files: Sequence[Path], folder: Path) -> dict[str, Any]:
    """XProf's tables by tool.  `folder` is private to the call: XProf leaves its cache beside its input."""
    paths = []
    for file in files:
        target = folder / file.name.removesuffix(".gz")
        if file.suffix == ".gz":
            target.write_bytes(gzip.decompress(file.read_bytes()))
        else:
            shutil.copy(file, target)
        paths.append(str(target))
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_convert, args=(paths, queue))
    process.start()
    answers = queue.get(timeout=120)
    process.join(30)
    assert all(ok for _, ok in answers.values()), answers
    return {tool: json.loads(data) for tool, (data, _) in answers.items()}


def rows(table: dict[str, Any]) -> list[dict[str, Any]]:
    """A gviz table as dictionaries."""
    ids = [column["id"] for column in table["cols"]]
    return [dict(zip(ids, (cell["v"] for cell in row["c"]), strict=True)) for row in table["rows"]]
