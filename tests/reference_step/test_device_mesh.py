"""Which device stands where on the mesh."""

from __future__ import annotations

from perfmodel.config_file import parse_config
from reference_step.layout import device_mesh


class Gpu:
    """As JAX reports an NVIDIA GPU: coordinates that are all the same, and no core."""

    platform = "cuda"
    coords = (0, 0, 0)


class TpuCore:
    def __init__(self, *coords: int) -> None:
        self.coords, self.core_on_chip = coords, 0


CONFIG, _ = parse_config({"name": "run", "hardware": {"chip": "h100", "topology": [4]}, "mesh": {"ici": {"data": 4}}})


def test_gpus_are_taken_in_their_order() -> None:
    gpus = [Gpu() for _ in range(4)]
    assert list(device_mesh(CONFIG, gpus).devices.flat) == gpus


def test_tpu_cores_are_ordered_by_their_coordinates() -> None:
    cores = [TpuCore(1, 1, 0), TpuCore(1, 0, 0), TpuCore(0, 1, 0), TpuCore(0, 0, 0)]
    assert list(device_mesh(CONFIG, cores).devices.flat) == cores[::-1]
