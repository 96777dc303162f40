"""Meshes on links: which dimensions an axis occupies, rings and lines, NVLink and network."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel import topology
from perfmodel.chips import get_chip
from perfmodel.topology import Links, group_links, lay_out, network_links, physical_dims


def links(chip_name, topology, axes, members):
    chip = get_chip(chip_name)
    dims = physical_dims(chip, topology)
    wraps = chip.wraps(dims) if chip.kind == "tpu" else ()
    return group_links(chip, lay_out(np.array([axes]), dims), members, wraps)


def test_axes_take_minor_dimensions_first():
    layout = lay_out(np.array([[4, 16, 4]]), (16, 16))
    assert layout.extents[0].tolist() == [[4, 1], [4, 4], [1, 4]]
    assert layout.start[0].tolist() == [[4, 1], [1, 4], [1, 1]]
    assert layout.regular.tolist() == [True]


def test_an_axis_that_cuts_a_dimension_unevenly_is_not_regular():
    assert lay_out(np.array([[1120, 8]]), (16, 20, 28)).regular.tolist() == [False]
    assert lay_out(np.array([[320, 28]]), (16, 20, 28)).regular.tolist() == [True]


def test_a_mesh_of_the_wrong_size_is_not_regular():
    assert lay_out(np.array([[4, 8]]), (4, 4)).regular.tolist() == [False]


def test_wraparound_halves_the_time_of_a_gather():
    """v5e closes a dimension of 16, not one of 8 (book 2.2)."""
    ring = links("v5e", (16, 16), [16, 16], [1])
    line = links("v5e", (8, 8), [8, 8], [1])
    array = 1e9
    per_link = get_chip("v5e").ici_link_bytes_per_s
    assert topology.collective_s("all-gather", ring, array)[0] == pytest.approx(array / (2 * per_link))
    assert topology.collective_s("all-gather", line, array)[0] == pytest.approx(7 / 8 * array / per_link)


def test_part_of_a_ring_is_a_line_and_its_major_part_shares_the_wires():
    minor = links("v5e", (16, 16), [16, 4, 4], [2])
    major = links("v5e", (16, 16), [16, 4, 4], [1])
    per_link = get_chip("v5e").ici_link_bytes_per_s
    assert minor.gather_s_per_byte[0] == pytest.approx(3 / 4 / per_link)
    # A ring of four chips, four hops apart: four such rings share every link.
    assert major.gather_s_per_byte[0] == pytest.approx(4 / (2 * per_link))


def test_two_dimensions_double_the_bandwidth():
    one = links("v5p", (8, 8, 8), [8, 8, 8], [0])
    two = links("v5p", (8, 8, 8), [8, 8, 8], [0, 1])
    assert one.gather_s_per_byte[0] == pytest.approx(2 * two.gather_s_per_byte[0])


@pytest.mark.parametrize(
    ("chip", "shape", "sent"),
    [("v5p", (2, 2, 1), 2), ("v6e", (4, 4), 2), ("v5p", (2, 2, 2), 3), ("v5e", (8, 8), 2), ("v5e", (4,), 1)],
)
def test_the_corner_of_a_torus_without_wraparound_has_one_link_per_dimension(chip, shape, sent):
    """Every chip takes in all but its own share of the array; the corner has as many links as there are dimensions, so
    that a gather of many chips takes V ÷ (W · dimensions) with W one way (book 3.2), whatever the schedule."""
    size = int(np.prod(shape))
    found = links(chip, shape, [size], [0])
    rate = (1 - 1 / size) / found.gather_s_per_byte[0]
    assert rate == pytest.approx(sent * get_chip(chip).ici_link_bytes_per_s)


def test_minor_axes_of_a_gpu_mesh_stay_on_nvlink():
    chip = get_chip("h100")
    inside = links("h100", (8, 4), [4, 8], [1])
    across = links("h100", (8, 4), [4, 8], [0])
    assert inside.gather_s_per_byte[0] == pytest.approx(7 / 8 / chip.nvlink_bytes_per_s)
    assert across.gather_s_per_byte[0] == pytest.approx(3 / 4 / chip.dcn_bytes_per_s_per_chip)


def test_gpus_of_a_node_share_the_work_across_nodes():
    """A group that spans nodes moves each byte into a node once, over all its network cards."""
    chip = get_chip("h100")
    both = links("h100", (8, 4), [32], [0])
    out = 3 / 4 / (8 * chip.dcn_bytes_per_s_per_chip)
    within = 31 / 32 / chip.nvlink_bytes_per_s
    assert both.gather_s_per_byte[0] == pytest.approx(max(out, within))


def test_one_chip_says_nothing():
    for group in (Links.none(), links("v5p", (8, 8, 8), [512, 1], [1]), network_links(1, 1e9)):
        assert topology.collective_s("all-reduce", group, 1e12)[0] == 0
        assert topology.collective_s("all-to-all", group, 1e12)[0] == 0
        assert topology.collective_s("collective-permute", group, 1e12)[0] == 0


powers = st.integers(0, 4).map(lambda power: 2**power)


@given(st.tuples(powers, powers, powers), st.data())
def test_a_regular_mesh_uses_every_chip_of_every_dimension_once(dims, data):
    total = int(np.prod(dims))
    first = data.draw(st.sampled_from([n for n in range(1, total + 1) if total % n == 0]))
    second = data.draw(st.sampled_from([n for n in range(1, total // first + 1) if (total // first) % n == 0]))
    layout = lay_out(np.array([[first, second, total // first // second]]), dims)
    assert layout.regular[0]
    assert np.prod(layout.extents[0], axis=0).tolist() == list(dims)
    assert np.prod(layout.extents[0], axis=1).tolist() == layout.sizes[0].tolist()


@given(st.floats(1, 1e12), st.sampled_from(["v4", "v5e", "v5p", "v6e", "tpu7x"]), st.sampled_from([0, 1]))
def test_all_reduce_is_reduce_scatter_and_all_gather(size, chip, member):
    group = links(chip, (4, 4, 4) if get_chip(chip).ici_axes == 3 else (8, 8), [8, 8], [member])
    both = topology.collective_s("reduce-scatter", group, size) + topology.collective_s("all-gather", group, size)
    assert topology.collective_s("all-reduce", group, size)[0] == pytest.approx(both[0])


@given(st.floats(1e3, 1e12), st.floats(1.1, 10))
def test_time_grows_with_the_message_and_never_falls(size, factor):
    group = links("v5e", (16, 16), [16, 16], [1])
    assert (
        topology.collective_s("all-gather", group, size * factor)[0]
        >= topology.collective_s("all-gather", group, size)[0]
    )
    assert (
        topology.collective_s("all-to-all", group, size)[0] <= topology.collective_s("all-gather", group, size * 16)[0]
    )
