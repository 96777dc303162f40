"""The scope of an op: what is left of its framework path."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis import scopes


@pytest.mark.parametrize(
    ("path", "scope"),
    [
        ("jit(train_step)/transpose(jvp(while))/body/layer_0/mlp/psum", "train_step/layer_0/mlp/psum"),
        ("jit(step)/jvp()/while/body/closed_call/attention/dot_general", "step/attention/dot_general"),
        ("jit(step)/checkpoint/rematted_computation/layer_3/mlp/mul", "step/layer_3/mlp/mul"),
        ("jit(step)/jvp(Transformer)/blocks_1/attn/dot", "step/Transformer/blocks_1/attn/dot"),
        ("jit(f)/(mlp/dot_general:attention/dot_general)", "f/mlp + attention/dot_general"),
        ("jit(f)/(transpose(jvp(embed))/gather:jvp(loss)/gather)", "f/embed + loss/gather"),
        ("a/b;c/d", "a/b"),
        ("", ""),
        ("while/body", ""),
    ],
)
def test_a_scope_is_the_path_without_wrappers_and_loops(path, scope):
    assert scopes.scope(path) == scope


def test_a_scope_finds_its_own_ops_and_no_others():
    found = re.compile(scopes.pattern("step/layer_#/mlp"))
    assert found.search("step/layer_11/mlp/dot") and found.search("step/layer_2/mlp")
    assert not found.search("step/layer_2/mlp_norm/mul") and not found.search("step/layer_x/mlp/dot")
    assert not re.search(scopes.pattern("a.b"), "aXb/c")


@given(st.text(max_size=60))
def test_no_path_breaks_the_scope(path):
    assert isinstance(scopes.scope(path), str)
    re.compile(scopes.pattern(scopes.scope(path)))
