"""What proposals cite: passages that exist, bear on the move, and belong to the run's kind of chip."""

from __future__ import annotations

import pytest

from knowledge.passage_file import read_all
from proposals.proposer.citations import cite

PASSAGES = {passage.id: passage for file in read_all() for passage in file.passages}


@pytest.mark.parametrize(
    ("tags", "verdict", "expected"),
    [
        (["less_model", "more_data"], "communication", "mixed-optimum"),
        (["more_model", "less_seq"], "memory", "tpu-memory"),
        (["remat"], "compute", "remat"),
        (["flags", "overlap"], "communication", "latency-hiding-scheduler"),
        (["keep", "method"], "compute", "keep-what-runs"),
        (["fsdp", "replicated"], "communication", "fsdp"),
    ],
)
def test_a_move_cites_the_principle_it_rests_on(tags: list[str], verdict: str, expected: str) -> None:
    cited = cite(tags, "tpu", verdict, experts=False, most=4)
    assert expected in [item.key for item in cited]
    for item in cited:
        assert item.title == PASSAGES[item.key].title
        assert item.statement and item.statement in " ".join(PASSAGES[item.key].text.split())
        assert item.source in ("book", "knowledge") and item.section


@pytest.mark.parametrize("kind", ["tpu", "gpu"])
def test_the_other_kind_of_chip_and_absent_experts_are_not_cited(kind: str) -> None:
    every = cite(["memory_capacity", "more_model", "flags", "expert", "gpu"], kind, "communication", False, most=500)
    for item in every:
        assert {kind, "any"} & set(PASSAGES[item.key].hardware)
        assert "expert" not in PASSAGES[item.key].tags


def test_every_kind_of_move_has_something_to_cite() -> None:
    moves = [f"{way}_{role}" for way in ("more", "less") for role in ("data", "seq", "model", "expert", "pipeline")]
    for tag in (*moves, "flags", "remat", "fsdp", "critical_batch", "grad_accum", "dcn", "keep", "overlap"):
        assert cite([tag], "tpu", "unknown", experts=True, most=1), tag
