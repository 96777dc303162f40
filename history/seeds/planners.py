"""Records of Alpa's artifact: how much a planner's layout matters."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from history.record import Record, Side, outcome_of
from perfmodel.published import RUNS_FILE


def records() -> list[Record]:
    """Pairs of planners on one model and as many GPUs.  The artifact has TFLOP/s per planner, no mesh and no batch."""
    groups: dict[tuple[str, int], dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for row in json.loads(RUNS_FILE.read_text(encoding="utf-8")):
        if row["source_repo"] == "alpa-projects/alpa" and row["chips"] > 1:
            groups[row["model"], row["chips"]][row["parallelism"]["method"].removeprefix("parax.")] = row
    steps = (("megatron", "auto"), ("deepspeed", "auto"), ("megatron", "inter_only"), ("intra_only", "inter_only"))
    return [_planner(rows[a], rows[b]) for rows in groups.values() for a, b in steps if a in rows and b in rows]


_PLANNERS = {
    "megatron": "Megatron-LM's hand-made layout",
    "deepspeed": "DeepSpeed's hand-made layout",
    "auto": "Alpa's automatic layout",
    "intra_only": "Alpa, within operators only",
    "inter_only": "Alpa, pipeline stages only",
}


def _planner(before: Mapping[str, Any], after: Mapping[str, Any]) -> Record:
    names = [_PLANNERS[row["parallelism"]["method"].removeprefix("parax.")] for row in (before, after)]
    speedup = round(after["tflops_per_chip"] / before["tflops_per_chip"], 4)
    other_code = "auto" in after["parallelism"]["method"] or before["parallelism"]["method"] == "megatron"
    model = after["model"]
    caveats = ["Mesh and batch are not published: the row says how much a layout can matter, not which one."]
    if other_code:
        caveats.append("The two planners are also two code bases.")
    nodes = -(-after["chips"] // 8)

    def side(name: str, row: Mapping[str, Any]) -> Side:
        kpis = {"flops_per_s_per_chip": round(row["tflops_per_chip"] * 1e12, -7)}
        return Side(label=name, training={"precision": row["precision"]}, kpis=kpis)

    return Record(
        id=f"runs-{before['id']}-{after['id']}",
        title=f"{names[0]} → {names[1]}: {model} on {after['chips']} × v100-16gb",
        change=f"{names[0]} → {names[1]}",
        changes=("mesh", "software") if other_code else ("mesh",),
        before=side(names[0], before),
        after=side(names[1], after),
        outcome=outcome_of(speedup),
        source=f"alpa, {after['path']} (OSDI'22 artifact)",
        chip="v100-16gb",
        chips=after["chips"],
        topology=(min(8, after["chips"]), nodes),
        model_name=model,
        model_family="moe" if "moe" in model else "gpt",
        parameters=after["params"],
        speedup=speedup,
        measure="TFLOP/s per chip",
        effect=f"{before['tflops_per_chip']:.1f} → {after['tflops_per_chip']:.1f} TFLOP/s per GPU",
        caveats=tuple(caveats),
        url=f"https://github.com/{after['source_repo']}/blob/{after['commit']}/{after['path']}",
        licence=after["source_licence"],
    )
