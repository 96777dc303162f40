"""What the dialogue and the launch files say of a compile check."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.events import TextDelta
from experiments.without_profile import without_profile
from perfmodel.config_file import parse_config
from proposals.agents.capabilities import AnswerContext, answer, arguments, registry
from proposals.agents.tools.launching import Launched, LaunchTools
from proposals.agents.workbench import ProposalState, Workbench
from proposals.compiling.result import CollectiveUse, CompileCheck
from proposals.compiling.wording import sentence

CONFIG = {
    "hardware": {"chip": "v5p", "topology": [4, 4, 4]},
    "mesh": {"ici": {"data": 8, "model": 8}},
    "model": {"name": "llama3.1-8b"},
    "training": {"global_batch": 256, "seq_len": 4096},
    "measured": {"step_time_s": 4.0},
}
FITS = CompileCheck(
    "fits", peak_bytes=2.5e10, capacity_bytes=1e11,
    collectives=(CollectiveUse("all-gather", ("data",), 8, 1e9, 32, 3e10, "jit(train_step)/mlp"),),
)  # fmt: skip
FULL = CompileCheck("out_of_memory", needed_bytes=1.2e11, capacity_bytes=1e11)


@pytest.fixture(scope="module")
def plain() -> Workbench:
    config, _ = parse_config(CONFIG)
    return Workbench.of_values(without_profile(config), config)


@pytest.fixture(scope="module")
def compiled(plain: Workbench) -> Workbench:
    first, second, *others = plain.proposals
    rows = (replace(first, compiled=FITS), replace(second, compiled=FULL), *(ProposalState(o.proposal) for o in others))
    return replace(plain, stored=plain.plan, rows=rows, compiled=FITS)


def said(of: Workbench, key: str, **values: object) -> str:
    item = registry()[key]
    events = answer(AnswerContext(of), item, arguments(item, values))
    return "".join(event.text for event in events if isinstance(event, TextDelta)).replace("\xa0", " ")


def test_an_answer_on_memory_sets_the_compiled_beside_the_computed(plain: Workbench, compiled: Workbench) -> None:
    assert "Compiled" not in said(plain, "memory")
    text = said(compiled, "memory")
    assert text.count("25.0 GB, fits") == 2  # the current configuration, and the first proposal
    assert text.count("at least 120 GB, out of memory") == 1


def test_a_proposal_is_explained_with_what_it_sends(plain: Workbench, compiled: Workbench) -> None:
    assert "compiled step" not in said(plain, "explain", proposal=1)
    text = said(compiled, "explain", proposal=1)
    assert "The compiled step fits: peak 25.0 GB of 100 GB per chip" in text
    assert "all-gather" in text and "30.0 GB" in text
    assert "runs out of memory: the compiler asks for at least 120 GB" in said(compiled, "explain", proposal=2)


def test_other_facts_are_not_those_that_were_compiled(compiled: Workbench) -> None:
    assert "Compiled" not in said(compiled.with_facts({"training.global_batch": 512}), "memory")


def test_launch_files_say_it_in_their_heads(compiled: Workbench) -> None:
    found = LaunchTools(compiled).launch_files(Launched(number=1, kind="yaml")).files[0].text
    head = " ".join(found.replace("#", " ").split())
    assert "Compile check: The compiled step fits: peak 25.0 GB of 100 GB per chip" in head


@pytest.mark.parametrize("outcome", ["invalid", "crashed", "timed_out"])
def test_a_check_without_a_verdict_claims_none(outcome: str) -> None:
    text = sentence(CompileCheck(outcome, "It did not end."))
    assert "no verdict" in text and "It did not end." in text
