"""Records to test with: small, legal, and varied by what a test is about."""

from __future__ import annotations

from typing import Any

from history.record import Record, Side, outcome_of


def side(data: int = 8, seq: int = 8, model: int = 8, **values: Any) -> Side:
    return Side(mesh={"ici": {"model": model, "data": data, "seq": seq}, "dcn": {}}, **values)


def record(key: str, **values: Any) -> Record:
    """A mesh change on 512 chips of v5p unless the values say otherwise."""
    speedup = values.setdefault("speedup", 1.2)
    known: dict[str, Any] = {
        "title": "Sequence sharding traded for data parallelism",
        "change": "seq 8 → 4, data 8 → 16",
        "changes": ("mesh",),
        "before": side(kpis={"step_time_s": 12.0}),
        "after": side(data=16, seq=4, kpis={"step_time_s": 10.0}),
        "outcome": "no_change" if speedup is None else outcome_of(speedup),
        "source": "our sweep of May",
        "provenance": "imported",
        "chip": "v5p",
        "chips": 512,
        "topology": (8, 8, 8),
        "model_name": "llama3.1-8b",
        "model_family": "llama",
        "bottleneck": "communication",
        "measure": "step time",
    }
    return Record(key, **{**known, **values})
