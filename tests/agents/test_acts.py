"""Whoever answers claims no act of its own; what a program launches is none."""

from __future__ import annotations

import pytest

from proposals.agents.action_claims import claimed_actions


@pytest.mark.parametrize(
    "text",
    [
        "We see 1,204 kernels launched per step, one after the other.",
        "I count 1,204 launched kernels.",
        "We find that the kernels are launched late, i.e. the host is the limit.",
        "The all-gathers are slow, i.e. they are launched one by one.",
        "I read from the timeline that the collectives were all scheduled behind the matmuls.",
        "As we have launched fewer, larger kernels here, the host keeps up.",
    ],
)
def test_what_a_program_launches_is_no_act(text: str) -> None:
    assert list(claimed_actions(text, ())) == []


@pytest.mark.parametrize(
    "text",
    [
        "We launched the run on 64 chips.",
        "I have launched it, to see fewer kernels.",
        "I checked that the kernels are launched late and launched proposal 2.",
        "We see 1,204 kernels launched per step, and I have scheduled a run.",
        "I launched a trial with larger kernels.",
        "Proposal 1 is approved now.",
    ],
)
def test_an_act_is_claimed_whatever_is_said_of_kernels(text: str) -> None:
    assert len(list(claimed_actions(text, ()))) == 1
