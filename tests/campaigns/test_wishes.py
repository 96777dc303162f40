"""Configurations that somebody asks for: found in the space however they are written, or refused with the rule."""

from __future__ import annotations

from functools import cache
from io import BytesIO
from typing import Any

import pytest

from campaigns.engine.acquisition import look
from campaigns.engine.loop import iterate
from campaigns.engine.pool import Pool, Trial
from campaigns.engine.space import NoCandidateError, Space, searched
from evaluation.campaigns.landscape import listed
from proposals.candidate import Candidate
from proposals.constraints import Constraints
from proposals.failures import read_failure
from tests.campaigns.worlds import config, space

OUT_OF_MEMORY = b"RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1234567890 bytes."


@cache
def known() -> Space:
    return space()


def test_every_candidate_is_found_by_its_mesh_and_changes_however_they_are_written() -> None:
    asked = known()
    base = config().training
    for row, each in enumerate(known().candidates.configs):
        changes = {
            key: getattr(each.training, key)
            for key in ("grad_accum", "remat", "weight_sharding", "virtual_stages")
            if getattr(each.training, key) != getattr(base, key)
        }
        assert asked.find(Candidate(each.mesh.to_json(), changes)) == row
        assert asked.find(Candidate({"ici": {axis: n for axis, n in each.mesh.ici if n > 1}}, changes)) == row


@pytest.mark.parametrize(
    ("ici", "changes", "rule"),
    [
        ({"data": 8}, {}, "chips per slice; make the products equal"),
        ({"model": 16}, {}, "KV heads are not divisible"),
        ({"data": 16}, {"global_batch": 16}, "global batch"),
        ({"data": 16}, {"remat": "none", "weight_sharding": "none"}, "GB are usable"),
        ({"data": 16}, {"remat": "everything"}, "use one of"),
        ({"warp": 16}, {}, "is not a known role"),
        ({"data": True}, {}, "whole number"),
    ],
)
def test_what_is_none_names_the_rule(ici: dict[str, Any], changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(NoCandidateError, match=f"(?i){rule}"):
        known().find(Candidate({"ici": ici}, changes))


def test_what_the_campaign_keeps_is_kept() -> None:
    rules = Constraints(keep_axes=("model",))
    asked = searched(config(), rules)
    with pytest.raises(NoCandidateError, match="Your constraint: keep"):
        asked.find(Candidate({"ici": {"data": 8, "model": 2}}))


def test_gradient_accumulation_follows_from_the_micro_batch() -> None:
    """Runs that are recorded with both are found by either."""
    base = config(micro_batch=4, grad_accum=2)
    c = listed([base, config(micro_batch=2, grad_accum=4)])
    asked = Space(base, c, 0, 2, {})
    assert asked.find(Candidate(base.mesh.to_json(), {"micro_batch": 2})) == 1
    assert asked.find(Candidate(base.mesh.to_json(), {"micro_batch": 2, "grad_accum": 4})) == 1


def test_the_rules_of_the_built_in_choice_hold_for_wishes() -> None:
    c = known().candidates
    order = sorted(range(len(c)), key=lambda row: float(c.fill[row]))
    half, full = order[len(order) // 2], order[-1]
    failure = read_failure(BytesIO(OUT_OF_MEMORY), c.configs[half])
    pool = Pool((Trial(known().baseline, "done", 2.6), Trial(half, "failed", failure=failure)))
    now = look(c, pool)
    assert now.refused(known().baseline) == "It is a trial of this campaign already."
    assert "known to fail" in now.refused(full)
    assert now.refused(order[0]) == ""
    unsure = look(c, Pool((Trial(known().baseline, "done", 2.6, peak_bytes=float(c.peak_bytes[0]) * 2.2),)))
    assert any("runs out of memory with a probability" in unsure.refused(row) for row in range(len(c)))


def test_wishes_come_first_and_the_rest_is_chosen_as_ever() -> None:
    c = known().candidates
    pool = Pool((Trial(known().baseline, "done", 2.6),))
    built_in = [choice.candidate for choice in iterate(c, pool, 3).choices]
    asked = next(row for row in range(len(c)) if row not in built_in and not look(c, pool).refused(row))
    found = iterate(c, pool, 3, requested=[known().baseline, asked, asked]).choices
    assert [choice.requested for choice in found] == [True, False, False]
    assert found[0].candidate == asked
    assert {choice.candidate for choice in found[1:]} <= set(range(len(c))) - {asked, known().baseline}
    now = look(c, pool)
    alone = now.choice(asked)
    assert (found[0].step_time_s, found[0].gain) == (alone.step_time_s, alone.gain)


def test_a_wish_does_not_keep_a_campaign_going_that_has_converged() -> None:
    c = known().candidates
    best = iterate(c, Pool((Trial(known().baseline, "done", 2.6),))).choices[0].candidate
    others = [row for row in range(len(c)) if row != best][:6]
    slow = [Trial(row, "done", float(c.time_s[row]) * 1.5) for row in others]
    pool = Pool((Trial(best, "done", 0.5), *slow))
    assert iterate(c, pool, requested=[others[0] + 50]).choices == ()
