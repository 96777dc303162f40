"""Names from hostile text are read in one pass: a long one must not keep a worker busy for ever."""

from __future__ import annotations

import pytest

from proposals.agents import grounding


@pytest.mark.parametrize("text", ["long_name_" * 200, "fusion_" * 300 + ".", "a_fusion_b-" * 200, "a/" * 300])
def test_a_long_name_claims_nothing_and_ends(text):
    assert grounding.supports(text, []) == []
