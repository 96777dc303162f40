"""The module tree: what is left of a framework path, and sums that hold on every level."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis import module_tree
from diagnosis.module_tree import Row


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
    assert module_tree.scope(path) == scope


def test_numbered_layers_stand_together_and_sum_up():
    rows = [Row(f"step/layer_{n}/mlp/dot", 0.1, 0.1, "forward", "compute") for n in range(8)]
    rows.append(Row("step/embed/gather", 0.2, 0.2, "forward", "hbm"))
    step = module_tree.build(rows)["children"][0]
    layers, embed = step["children"]
    assert (layers["name"], layers["merged"], layers["ops"]) == ("layer_#", 8, 8)
    assert layers["share"] == pytest.approx(0.8) and layers["children"][0]["name"] == "mlp"
    assert (embed["name"], embed["merged"]) == ("embed", 1)
    assert step["phases"] == {"forward": pytest.approx(1.0)}
    assert step["resources"] == {"compute": pytest.approx(0.8), "hbm": pytest.approx(0.2)}


def test_two_numbered_siblings_stay_apart():
    rows = [Row(f"mlp/fc{n}", 0.1, 0.1, "", "compute") for n in (1, 2)]
    assert [node["name"] for node in module_tree.build(rows)["children"][0]["children"]] == ["fc1", "fc2"]


def test_a_node_finds_its_own_ops_and_no_others():
    found = re.compile(module_tree.pattern("step/layer_#/mlp"))
    assert found.search("step/layer_11/mlp/dot") and found.search("step/layer_2/mlp")
    assert not found.search("step/layer_2/mlp_norm/mul") and not found.search("step/layer_x/mlp/dot")
    assert not re.search(module_tree.pattern("a.b"), "aXb/c")


def test_a_huge_tree_keeps_its_largest_nodes_and_counts_the_rest():
    rows = [
        Row(f"step/{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}{chr(97 + n // 676)}/op", None, 1 / (n + 2), "", "hbm")
        for n in range(3000)
    ]
    tree = module_tree.build(rows)

    def walk(node):
        yield node
        for child in node["children"]:
            yield from walk(child)

    nodes = list(walk(tree))
    assert len(nodes) <= module_tree.MAX_NODES + 1
    step = tree["children"][0]
    assert step["ops"] == 3000 == step["left_out"] + sum(child["ops"] for child in step["children"])
    assert step["time_s"] is None  # one op without a time per step: the sum is not known


NAMES = st.sampled_from(["layer_0", "layer_1", "layer_2", "layer_3", "attention", "mlp", "dot", "norm"])


@given(
    st.lists(
        st.tuples(st.lists(NAMES, max_size=5).map("/".join), st.floats(0, 1), st.sampled_from(["hbm", "ici", "other"])),
        max_size=40,
    )
)
def test_every_level_holds_at_least_its_children(rows):
    tree = module_tree.build(Row(scope, share, share, "", resource) for scope, share, resource in rows)
    assert tree["ops"] == len(rows)
    assert tree["share"] == pytest.approx(sum(share for _, share, _ in rows))

    def check(node):
        assert sum(child["share"] for child in node["children"]) <= node["share"] + 1e-9
        assert sum(node["resources"].values()) == pytest.approx(node["share"])
        for child in node["children"]:
            check(child)

    check(tree)


@given(st.text(max_size=60))
def test_no_path_breaks_the_scope(path):
    assert isinstance(module_tree.scope(path), str)
    re.compile(module_tree.pattern(module_tree.scope(path)))
