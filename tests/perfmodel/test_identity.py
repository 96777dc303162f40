"""When two configurations are the same run: the order of axes counts, notation does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfmodel.config import (
    ExperimentConfig,
    Hardware,
    Mesh,
    Training,
    config_key,
    mesh_distance,
    placement,
    placement_text,
)

HARDWARE = Hardware("h100", (8, 2))


def config(ici: dict[str, int], **training: object) -> ExperimentConfig:
    values = {"global_batch": 32, "seq_len": 4096, **training}
    return ExperimentConfig(HARDWARE, Mesh(tuple(ici.items())), training=Training(**values))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "other",
    [
        {"data": 4, "model": 4},
        {"fsdp": 4, "tensor": 4},
        {"pipeline": 1, "fsdp": 4, "seq": 1, "model": 4},
        {"data": 2, "fsdp": 2, "model": 2, "tensor": 2},
    ],
)
def test_key_ignores_notation(other: dict[str, int]) -> None:
    assert config_key(config(other)) == config_key(config({"fsdp": 4, "model": 4}))
    assert mesh_distance(config(other).mesh, config({"fsdp": 4, "model": 4}).mesh) == 0.0


def test_key_tells_orders_of_axes_apart() -> None:
    one, other = config({"fsdp": 4, "model": 4}), config({"model": 4, "fsdp": 4})
    assert config_key(one) != config_key(other)
    assert mesh_distance(one.mesh, other.mesh) > 0


def test_key_tells_ici_from_dcn_and_weights_sharded_across_slices_from_replicas() -> None:
    across = [Mesh((("data", 8),), (("data", 2),)), Mesh((("data", 8),), (("fsdp", 2),)), Mesh((("data", 16),))]
    assert len({placement(mesh) for mesh in across}) == 3


def test_key_counts_micro_batches_however_they_are_given() -> None:
    mesh = {"fsdp": 8, "model": 2}
    assert config_key(config(mesh, micro_batch=2)) == config_key(config(mesh, grad_accum=2))
    assert config_key(config(mesh, micro_batch=1)) != config_key(config(mesh, grad_accum=2))


def test_key_ignores_settings_without_effect() -> None:
    mesh = {"fsdp": 16}
    assert config_key(config(mesh, virtual_stages=4)) == config_key(config(mesh))
    assert config_key(config({"model": 16}, weight_sharding="none")) == config_key(config({"model": 16}))
    assert config_key(config(mesh, xla_flags=("--a", "--b"))) == config_key(config(mesh, xla_flags=("--b", "--a")))


def test_key_ignores_names_and_counts_overrides() -> None:
    one = config({"fsdp": 16})
    assert config_key(replace(one, name="x", notes="y")) == config_key(one)
    assert config_key(replace(one, hardware=replace(HARDWARE, overrides={"hbm_bytes": 60e9}))) != config_key(one)


def test_placement_text_reads_custom_names_by_their_role() -> None:
    assert placement_text({"ici": {"mdl": 4, "data": 2}}, {"mdl": "model"}) == "model=4 data=2"
    assert placement_text({"ici": {"fsdp": 8}, "dcn": {"data": 2}}) == "data=8 | data=2"
