"""Results of tools are read as they were written, also by a later version and after they were shortened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic_core import to_jsonable_python

from agent.bounded import bounded
from evaluation.quality.evidence import ask, bench
from proposals.agents.capabilities.answer_context import reader
from proposals.agents.capabilities.common import offers
from proposals.agents.priced import Priced
from proposals.agents.tools import (
    EconomicsTools,
    FigureTools,
    FlagTools,
    LaunchTools,
    MachineTools,
    MemoryTools,
    ModelFreeTools,
    ModelTools,
    OpTools,
    RetrievalTools,
    RunTools,
    StepTools,
    WhatIfTools,
)

RUN = "cpu-data2-seq2-model2"
MESH = {"ici": {"data": 4, "seq": 1, "model": 2}, "changes": {"remat": "none"}}
SPENT = {"price_per_chip_hour": 2.5, "tokens": 1e12, "days": 3.0}
CALLS: tuple[tuple[Callable[..., object], dict[str, Any]], ...] = (
    (ModelTools.proposals, {}), (ModelTools.proposals, {"number": 1}), (ModelTools.predict, MESH),
    (ModelTools.legality, MESH), (ModelTools.search, {}), (ModelTools.rejected, {}),
    (ModelTools.sensitivity, {"number": 1}), (ModelTools.compare_meshes, {"configurations": [MESH, MESH]}),
    (WhatIfTools.vary, {"key": "remat"}), (WhatIfTools.retarget, {"chips": 16}), (WhatIfTools.chip_counts, {}),
    (LaunchTools.launch_files, {"number": 1}), (FigureTools.figures, {"text": "a step of 0.6 s, 40 % and 9 GB"}),
    (RunTools.kpis, {}), (RunTools.bottleneck, {}), (RunTools.findings, {}), (OpTools.ops, {}),
    (OpTools.ops, {"group_by": "family", "then_by": "phase"}), (OpTools.op, {"op": "#1"}),
    (RunTools.collectives, {}), (RunTools.collectives, {"by_kind": True}), (RunTools.run, {}),
    (EconomicsTools.throughput, {}), (EconomicsTools.cost, {}), (EconomicsTools.cost, SPENT),
    (MachineTools.hardware, {"chip": "h100"}), (MachineTools.model_size, {}), (MachineTools.divisors, {}),
    (MachineTools.flags, {}), (FlagTools.flag, {"text": "xla_tpu_enable_latency_hiding_scheduler, NCCL_ALGO, xla_x"}),
    (StepTools.steps, {}), (MemoryTools.memory_use, {"stated_bytes": 3e9}),
    (ModelFreeTools.without_model, {"chip": "v5p"}), (RetrievalTools.search_history, {"query": "tensor"}),
    (RetrievalTools.similar_runs, {"proposal": 1}), (RetrievalTools.search_knowledge, {"query": "fsdp"}),
    (RetrievalTools.passage, {"id": "ring-attention"}),
)  # fmt: skip
each_call = pytest.mark.parametrize(
    ("tool", "asked"), CALLS, ids=[f"{tool.__name__}-{number}" for number, (tool, _) in enumerate(CALLS)]
)


@each_call
def test_a_result_is_read_as_it_was_written(tool: Callable[..., object], asked: dict[str, Any]) -> None:
    result = ask(bench(RUN), tool.__name__, **asked)
    assert to_jsonable_python(reader(tool).validate_python(result)) == result


@each_call
def test_a_result_of_another_version_is_read(tool: Callable[..., object], asked: dict[str, Any]) -> None:
    """Of one whose keys have other names: none of these is known, none of ours is there."""
    result = ask(bench(RUN), tool.__name__, **asked)
    for other in (*_lacking(result), _with_more(result)):
        reader(tool).validate_python(other)
    assert to_jsonable_python(reader(tool).validate_python(_with_more(result))) == result


@each_call
@pytest.mark.parametrize("room", [8000, 3000, 1500])
def test_a_shortened_result_is_read(tool: Callable[..., object], asked: dict[str, Any], room: int) -> None:
    shorter, _ = bounded(ask(bench(RUN), tool.__name__, **asked), room)
    if not isinstance(shorter, str):  # too little room even for one entry of each list
        reader(tool).validate_python(shorter)


def test_what_was_stored_before_this_version_is_read() -> None:
    stored = {
        "mesh": {"ici": {"data": 8}, "dcn": {}}, "mesh_text": "data 8", "stands_as_proposal": 2, "may_run": True,
        "speedup_per_token": 1.2, "step_time_s": {"estimate": 2, "low80": 1.5, "high80": 3.0},
        "violations": [], "what_runs": {"mesh_text": "data 4 · model 2", "step_time_s": 2.4},
    }  # fmt: skip
    row = Priced.model_validate(stored)
    assert (row.gain, row.sure, row.proposal_number, row.current.mesh_text) == (1.2, 0.0, None, "")
    assert row.step_time_s is not None and row.step_time_s.high80 == 3.0
    assert [offer.mesh for offer in offers([row])] == [stored["mesh"]]


def test_a_time_or_memory_that_lacks_a_number_is_not_known_rather_than_0() -> None:
    row = Priced.model_validate({"step_time_s": {"lower": 1.0}, "hbm_per_chip_bytes": {"params": 2e9}})
    assert row.step_time_s is None and row.hbm_per_chip_bytes is None


def _lacking(value: Any) -> Iterator[Any]:
    """The value without each of its keys in turn, at every depth that is not itself data."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield {other: kept for other, kept in value.items() if other != key}
            if key not in ("ici", "dcn"):
                yield from ({**value, key: shorter} for shorter in _lacking(inner))
    elif isinstance(value, list) and value:
        yield from ([shorter, *value[1:]] for shorter in _lacking(value[0]))


def _with_more(value: Any, within: str = "") -> Any:
    """The value with a key more wherever the keys are fields."""
    if isinstance(value, list):
        return [_with_more(item, within) for item in value]
    if not isinstance(value, dict) or within in _DATA:
        return value
    return {**{key: _with_more(item, key) for key, item in value.items()}, "of_another_version": ["x"]}


#: Fields whose keys are data.
_DATA = (
    "mesh", "changes", "breakdown_s", "breakdown_share", "count_by_rule", "constraints", "fixed_by_user",
    "stated_by_user", "traffic", "shares_0_to_1", "not_measured", "memory", "neighbourhood", "inputs", "not_priced",
    "of_the_step_share", "axes_of_the_mesh", "configuration", "model_shape", "axis_roles", "peaks_flops_per_s",
    "sources", "model_sizes", "parts_bytes", "sought", "mesh_before", "mesh_after",
)  # fmt: skip
