"""What is stored of a diagnosis is read back as the value it was, whichever version stored it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from diagnosis.analyzer import diagnose
from diagnosis.report import DIAGNOSIS, OP, OpDiagnosis, SourcedValue
from evaluation.steps import paper
from evaluation.steps.generated import profile as profiled
from evaluation.steps.scenario import LARGE, Scenario
from evaluation.steps.scenario import config as configured
from experiments.step_profile import Timeline

RUN = Scenario(
    "", "", (), "v5p", (4, 4, 4), (("data", 16), ("seq", 1), ("model", 4)), LARGE, 256, 4096, remat="full"
)  # fmt: skip

#: A diagnosis as the first version of the product stored it: without what later versions say beside it.
FIRST: dict[str, Any] = {
    "kpis": {"step_time_s": 1.25, "duty_cycle": 0.9, "mfu": None},
    "not_measured": {"mfu": "the batch is not known"},
    "bottleneck": {
        "primary": "communication",
        "confidence": 0.8,
        "statement": "All-gathers take 41.6 % of the step.",
        "evidence": [
            {"label": "share", "value": 0.416, "unit": "share", "origin": "measured", "formula": "", "source": "",
             "ops": ["jit_step/all-gather.1"]},
        ],
        "contradictions": ["Duty cycle is 90 %."],
        "secondary": None,
    },
    "findings": [
        {"rule": "exposed_collectives", "title": "Exposed all-gathers", "insight": "They wait.", "action": "Overlap.",
         "impact": "", "evidence": [], "saving_s": 0.52, "saving_share": 0.416, "mesh_axis": None,
         "flags": ["--xla_a=true"], "flags_source": "elsewhere"},
    ],
    "breakdown_s": {"compute": 0.73, "ici:data": 0.52},
}  # fmt: skip


def through_json(data: object) -> Any:
    return json.loads(json.dumps(data, ensure_ascii=False))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_diagnosis_of_a_published_profile_is_read_back_as_it_was_written(number: int) -> None:
    found = diagnose(paper.profile(number), paper.config(number))
    assert DIAGNOSIS.read(through_json(DIAGNOSIS.write(found))) == found


def test_a_diagnosis_with_collectives_and_steps_is_read_back_as_it_was_written() -> None:
    steps = Timeline(("core 0",), ("host-0",), (1, 2), ((1.0, 2.0),), {"idle": ((0.0, 0.5),)}, 1, 2)
    found = diagnose(replace(profiled(RUN), timeline=steps), configured(RUN))
    assert found.collectives and found.timeline == steps
    assert DIAGNOSIS.read(through_json(DIAGNOSIS.write(found))) == found
    assert [OP.read(through_json(OP.write(op))) for op in found.ops] == list(found.ops)


def test_what_the_first_version_stored_is_read() -> None:
    found = DIAGNOSIS.read({**FIRST, "ops": ()})
    assert found.kpis == FIRST["kpis"] and found.breakdown_s == FIRST["breakdown_s"]
    assert found.bottleneck.evidence == (
        SourcedValue("share", 0.416, "share", "measured", ops=("jit_step/all-gather.1",)),
    )
    assert found.findings[0].saving_s == 0.52
    assert (found.basis, found.measured, found.timeline, found.predicted_step_time_s) == (
        "profile",
        True,
        Timeline(),
        None,
    )


def test_an_op_of_an_earlier_version_is_read_with_what_was_stored_beside_it() -> None:
    op = OpDiagnosis("all-gather.1", "jit_step/all-gather.1", "all-gather", 0.4, None, 10, None, None, ("data", "seq"))
    op = replace(op, hlo="%all-gather.1 = bf16[8] all-gather()", op_name="jit(step)/dot")
    assert OP.read({**through_json(OP.write(op)), "rank": 1}) == op


def test_the_contract_has_the_largest_ops_and_reads_as_its_value() -> None:
    found = diagnose(paper.profile(2), paper.config(2))
    contract = through_json(found.to_json(top=3))
    assert [row["name"] for row in contract["top_ops"]] == [op.name for op in found.ops[:3]]
    assert DIAGNOSIS.read({**contract, "ops": contract["top_ops"]}) == replace(
        found, ops=tuple(replace(op, hlo="") for op in found.ops[:3])
    )
