"""Participants of a collective in every notation, and the mesh axes they span, against brute force."""

from __future__ import annotations

from itertools import combinations, product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis.analyzer.axes import MeshAxes
from experiments.hlo import groups
from perfmodel.config import Mesh

SIZES = (("data", 2), ("seq", 3), ("model", 4))
NAMES = [name for name, _ in SIZES]
SUBSETS = [subset for count in (1, 2, 3) for subset in combinations(NAMES, count)]


def members_by_hand(sizes: tuple[tuple[str, int], ...], chosen: tuple[str, ...]) -> list[list[int]]:
    """Groups of the devices that differ only along `chosen`, ids counted row-major, major axis first."""
    found: dict[tuple[int, ...], list[int]] = {}
    for number, place in enumerate(product(*(range(size) for _, size in sizes))):
        key = tuple(at for (name, _), at in zip(sizes, place, strict=True) if name not in chosen)
        found.setdefault(key, []).append(number)
    return list(found.values())


def explicit(chosen: tuple[str, ...]) -> str:
    inner = ",".join("{" + ",".join(map(str, group)) + "}" for group in members_by_hand(SIZES, chosen))
    return f"replica_groups={{{inner}}}"


def iota(chosen: tuple[str, ...]) -> str:
    order = [NAMES.index(name) for name in NAMES if name not in chosen] + [NAMES.index(name) for name in chosen]
    size = prod(dict(SIZES)[name] for name in chosen)
    dims = ",".join(str(size_) for _, size_ in SIZES)
    turned = f"T({','.join(map(str, order))})" if order != [0, 1, 2] else ""
    return f"replica_groups=[{24 // size},{size}]<=[{dims}]{turned}"


def named(chosen: tuple[str, ...]) -> str:
    axes = ",".join(f"'axis_{number}'={size}" for number, (_, size) in enumerate(SIZES))
    return f"replica_groups=mesh[{axes}] {{{','.join(repr(f'axis_{NAMES.index(name)}') for name in chosen)}}}"


@pytest.mark.parametrize("write", [explicit, iota, named])
@pytest.mark.parametrize("chosen", SUBSETS)
def test_three_notations_name_the_same_axes(write, chosen) -> None:
    stated = groups.parse(
        f"%x = f32[8] all-reduce(f32[8] %p), channel_id=3, {write(chosen)}, use_global_device_ids=true"
    )
    assert stated is not None
    assert sorted(map(sorted, stated.members.tolist())) == sorted(map(sorted, members_by_hand(SIZES, chosen)))
    match = MeshAxes(Mesh(SIZES)).match(stated)
    assert match is not None and match.exact
    assert match.ici == chosen
    assert match.label == (chosen[0] if len(chosen) == 1 else chosen)
    assert match.participants == prod(dict(SIZES)[name] for name in chosen)


@given(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4), st.data())
@settings(max_examples=60, deadline=None)
def test_any_mesh_and_any_axes(sizes: list[int], data: st.DataObject) -> None:
    axes = tuple((f"a{number}", size) for number, size in enumerate(sizes))
    chosen = tuple(name for name, size in axes if size > 1 and data.draw(st.booleans()))
    inner = ",".join("{" + ",".join(map(str, group)) + "}" for group in members_by_hand(axes, chosen))
    stated = groups.parse(f"replica_groups={{{inner}}}")
    assert stated is not None
    match = MeshAxes(Mesh(axes)).match(stated)
    if not chosen:
        assert match is None
    else:
        assert match is not None and match.ici == chosen


def test_iota_with_transpose_by_hand() -> None:
    stated = groups.parse("replica_groups=[4,4]<=[4,4]T(1,0)")
    assert stated is not None
    assert stated.members.tolist()[:2] == [[0, 4, 8, 12], [1, 5, 9, 13]]


def test_sub_axis_of_a_mesh_notation() -> None:
    """Axis x of 4 split as 2 × 2: the minor half groups neighbours, the major half every second device."""
    minor = groups.parse("replica_groups=mesh['x'=4] {'x':(2)2}")
    major = groups.parse("replica_groups=mesh['x'=4] {'x':(1)2}")
    assert minor is not None and minor.members.tolist() == [[0, 1], [2, 3]]
    assert major is not None and major.members.tolist() == [[0, 2], [1, 3]]
    match = MeshAxes(Mesh((("x", 4),))).match(minor)
    assert match is not None and match.ici == ("x",) and not match.exact and match.participants == 2


def test_named_axes_are_believed_in_any_order() -> None:
    """The program's mesh may order the axes otherwise than the configuration; its names are what counts."""
    stated = groups.parse("replica_groups=mesh['model'=4,'data'=2] {'model'}")
    assert stated is not None
    match = MeshAxes(Mesh((("data", 2), ("model", 4)))).match(stated)
    assert match is not None and match.ici == ("model",)


def test_empty_groups_are_everyone() -> None:
    stated = groups.parse("replica_groups={}")
    assert stated is not None and stated.everyone
    match = MeshAxes(Mesh((("data", 2), ("replica", 1), ("model", 4)))).match(stated)
    assert match is not None and match.ici == ("data", "model") and match.participants == 8


def test_groups_of_one_talk_to_nobody() -> None:
    stated = groups.parse("replica_groups={{0},{1},{2},{3}}")
    assert stated is not None and MeshAxes(Mesh((("data", 4),))).match(stated) is None


def test_permute_pairs_name_their_axis() -> None:
    mesh = MeshAxes(Mesh((("data", 2), ("seq", 4))))
    ring = groups.parse("source_target_pairs={{0,1},{1,2},{2,3},{3,0},{4,5},{5,6},{6,7},{7,4}}")
    across = groups.parse("source_target_pairs={{0,4},{4,0},{1,5},{5,1},{2,6},{6,2},{3,7},{7,3}}")
    assert ring is not None and across is not None
    along = mesh.match(ring)
    assert along is not None and along.ici == ("seq",) and along.participants == 4
    other = mesh.match(across)
    assert other is not None and other.ici == ("data",)


def test_across_slices_is_dcn() -> None:
    """Two slices of (data 2, model 4), numbered slice by slice: 0 and 8 are the same place in both."""
    mesh = MeshAxes(Mesh((("data", 2), ("model", 4)), (("replica", 2),)))
    pair = groups.parse("replica_groups=[8,2]<=[2,8]T(1,0)")
    inside = groups.parse("replica_groups=[4,4]<=[16]")
    all_data = groups.parse("replica_groups=[4,4]<=[4,4]T(1,0)")
    assert pair is not None and inside is not None and all_data is not None
    crossing = mesh.match(pair)
    assert crossing is not None and crossing.label == "dcn" and crossing.participants == 2
    local = mesh.match(inside)
    assert local is not None and local.label == "model"
    both = mesh.match(all_data)
    assert both is not None and both.label == "dcn" and both.ici == ("data",)


def test_two_devices_per_chip() -> None:
    """Ironwood: eight devices on a mesh of four chips; each half of a chip talks to the same halves."""
    mesh = MeshAxes(Mesh((("data", 2), ("model", 2))))
    stated = groups.parse("replica_groups={{0,2},{1,3},{4,6},{5,7}}")
    assert stated is not None
    match = mesh.match(stated)
    assert match is not None and match.ici == ("model",) and match.participants == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "replica_groups=",
        "replica_groups=[4,4]<=[3]",
        "replica_groups=[2,2]<=[4]T(3,1)",
        "replica_groups=mesh['x'=0] {'x'}",
        "replica_groups=mesh['x'=4] {'y'}",
        "replica_groups=[999999,999999]<=[999999,999999]",
        "replica_groups={{999999999999}}",
        "source_target_pairs={}",
        "source_target_pairs={{1}}",
        "replica_groups={{0,1},{2",
    ],
)
def test_damaged_text_is_no_error(text: str) -> None:
    stated = groups.parse(text)
    if stated is not None:
        MeshAxes(Mesh((("x", 4),))).match(stated)


def test_ids_of_another_machine_have_no_axis() -> None:
    stated = groups.parse("replica_groups={{0,1,2,3,4,5,6}}")
    assert stated is not None and MeshAxes(Mesh((("x", 4),))).match(stated) is None
