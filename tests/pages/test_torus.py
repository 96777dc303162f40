from __future__ import annotations

from math import prod

from hypothesis import given
from hypothesis import strategies as st

from proposals import torus


def test_minor_axis_takes_neighbours_on_the_last_dimension() -> None:
    """data 4 · seq 16 · model 4 row-major on 16×16: chips 0–3 of a row are one model group."""
    groups = torus.groups_of(0, [("data", 4), ("seq", 16), ("model", 4)])
    assert groups["model"] == [0, 1, 2, 3]
    assert groups["seq"] == [4 * i for i in range(16)]
    assert groups["data"] == [64 * i for i in range(4)]


@given(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=4), st.data())
def test_groups_of_all_axes_share_the_chip_and_nothing_else(sizes: list[int], data: st.DataObject) -> None:
    chips = prod(sizes)
    chip = data.draw(st.integers(0, chips - 1))
    axes = [(f"a{i}", size) for i, size in enumerate(sizes)]
    groups = torus.groups_of(chip, axes)
    assert set(groups) == {axis for axis, size in axes if size > 1}
    for axis, size in axes:
        if size > 1:
            assert len(groups[axis]) == size and chip in groups[axis]
    members = [set(group) for group in groups.values()]
    for i, one in enumerate(members):
        for other in members[i + 1 :]:
            assert one & other == {chip}


def test_every_chip_is_drawn_once() -> None:
    drawing = torus.draw([4, 4, 4], {"data": 4, "seq": 2, "model": 8})
    assert drawing is not None
    assert dict(drawing.paths)["chipd"].count("M") == 64
    assert dict(drawing.paths)["m"].count("M") == 8
    assert len(drawing.frames) == 4  # one plane for each place on the first dimension
    assert drawing.text == "a model group is 8 chips, a seq group is 2 chips, a data group is 4 chips"


def test_domains_of_gpus_are_rows() -> None:
    drawing = torus.draw([8, 2], {"data": 2, "model": 8}, gpu=True)
    assert drawing is not None
    assert drawing.width > drawing.height


def test_what_cannot_be_drawn_is_not() -> None:
    assert torus.draw([4, 4], {"data": 8}) is None
    assert torus.draw([16, 20, 28], {"data": 8960}) is None
    assert torus.draw([], {}) is None
