"""The sources beside a proposal: each opens in place and says what it supports."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from django.template.loader import render_to_string

from proposals.plan import Citation

LINE = "model 4 → 2: the degree was above what the width hides."


@pytest.mark.parametrize("key", ["tensor-parallel-bound", ""])
def test_a_source_says_what_it_supports(key: str) -> None:
    cite = Citation("book", "5.1.3", "Tensor parallelism is bound by d_ff", "It is.", "https://x.y", key, LINE)
    found = render_to_string("proposals/_cites.html", {"p": SimpleNamespace(citations=(cite,), findings=())})
    assert LINE in found and "How to Scale Your Model, section 5.1.3 · Tensor parallelism" in found
    assert ('href="/knowledge/passages/tensor-parallel-bound/"' in found) == bool(key)


def test_what_was_stored_without_a_line_has_none() -> None:
    cite = Citation("book", "5.2", "Fully sharded data parallelism")
    found = render_to_string("proposals/_cites.html", {"p": SimpleNamespace(citations=(cite,), findings=())})
    assert cite.title in found and '<p class="small">' not in found
