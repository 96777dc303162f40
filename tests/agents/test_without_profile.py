"""Questions about a run without a profile: what is predicted is never called measured, and what is unknown is said."""

from __future__ import annotations

import re

import pytest

from agent.events import Final
from experiments.without_profile import without_profile
from perfmodel.config_file import parse_config
from proposals.agents import reasoner
from proposals.agents.conversation import Ask
from proposals.agents.workbench import Workbench

CONFIG = {
    "name": "llama3.1-8b on 64 H100",
    "hardware": {"chip": "h100", "topology": [8, 8]},
    "mesh": {"ici": {"data": 8, "model": 8}},
    "model": {"name": "llama3.1-8b"},
    "training": {"global_batch": 256, "seq_len": 4096},
    "measured": {"step_time_s": 3.0, "peak_memory_bytes": 41e9},
}


@pytest.fixture(scope="module")
def bench() -> Workbench:
    config, _ = parse_config(CONFIG)
    return Workbench.of_values(without_profile(config), config)


def answer(bench: Workbench, text: str) -> str:
    return next(str(event.answer) for event in reasoner.answer(bench, Ask(text)) if isinstance(event, Final))


@pytest.mark.parametrize("question", ["Why is this step slow?", "Where does the time go?"])
def test_the_breakdown_is_called_predicted(bench: Workbench, question: str) -> None:
    said = answer(bench, question)
    assert "predicted, not measured" in said
    assert not re.search(r"of a step go, measured", said)


@pytest.mark.parametrize(
    "question",
    ["Which ops take the most time?", "How much time does communication on the model axis take?"],
)
def test_ops_and_collectives_are_not_known(bench: Workbench, question: str) -> None:
    said = answer(bench, question)
    assert "No profile was recorded, so neither ops nor collectives were measured." in said
    assert "No collective ran" not in said and "predicted, not measured" in said


def test_what_was_measured_is_still_said(bench: Workbench) -> None:
    assert "3.00 s** per step, measured" in answer(bench, "How long does one step take?")
    assert "A profile of the current configuration" in answer(bench, "What should we measure next?")
