"""`asap propose` with constraints, and with a mesh of the user's own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from asapweb.cli import main
from experiments.samples.samples import SAMPLES

pytestmark = pytest.mark.slow

SAMPLE = next(item for item in SAMPLES if item.key == "asap-experiment-3")
RUN = ["propose", *map(str, SAMPLE.files), "--config", str(SAMPLE.config)]


def answer(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main([*RUN, *options, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_constraints_are_obeyed_and_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "--keep-axis", "model", "--at-most", "data=8", "--no-flags")
    assert found["constraints"] == {"keep_axes": ["model"], "at_most": {"data": 8}, "no_flags": True}
    assert len(found["proposals"]) == 3
    for item in found["proposals"]:
        assert item["mesh"]["ici"]["model"] == 4 and item["mesh"]["ici"]["data"] <= 8
        assert "xla_flags" not in item["changes"]
    assert {"diagnosis", "rejected", "considered"} <= set(found)


def test_an_own_mesh_is_evaluated_with_its_violations(capsys: pytest.CaptureFixture[str]) -> None:
    fine = answer(capsys, "--mesh", "replica=1,data=8,seq=16,model=2")["evaluation"]
    assert fine["kind"] == "own" and fine["violations"] == []
    low, high = fine["predicted"]["speedup_low80"], fine["predicted"]["speedup_high80"]
    assert 0 < low < fine["predicted"]["speedup"] < high
    wrong = answer(capsys, "--mesh", "data=16,seq=16,model=1")["evaluation"]
    assert [item["rule"] for item in wrong["violations"]] == ["batch"]


def test_text_says_what_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--keep-batch"]) == 0
    text = capsys.readouterr().out
    assert "Constraint: Keep the global batch." in text


@pytest.mark.parametrize(
    "options",
    [
        ["--memory-margin", "2"],
        ["--keep-axis", "modle"],
        ["--fix", "model"],
        ["--set", "remat=some"],
        ["--mesh", "x=2"],
    ],
)
def test_nonsense_is_one_line_and_exit_2(capsys: pytest.CaptureFixture[str], options: list[str]) -> None:
    assert main([*RUN, *options]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and len(said.err) <= 301
