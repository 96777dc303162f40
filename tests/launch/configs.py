"""Configurations for launch files, and legal ones by chance."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from hypothesis import strategies as st

from perfmodel import legality
from perfmodel.catalogue import model_names
from perfmodel.chips import get_chip, load_chips
from perfmodel.config import ExperimentConfig
from perfmodel.config_file import parse_config


def config(
    chip: str,
    topology: list[int],
    ici: Mapping[str, int],
    dcn: Mapping[str, int] | None = None,
    model: Any = "llama3.1-8b",
    name: str = "run",
    **training: Any,
) -> ExperimentConfig:
    """A configuration as a user writes it.  model None and training keys of None are left out."""
    given = {"global_batch": 64, "seq_len": 8192, **training}
    data: dict[str, Any] = {
        "name": name,
        "hardware": {"chip": chip, "topology": topology, "slices": prod((dcn or {}).values())},
        "mesh": {"ici": dict(ici), "dcn": dict(dcn or {})},
        "training": {key: value for key, value in given.items() if value is not None},
    }
    if model is not None:
        data["model"] = {"name": model} if isinstance(model, str) else model
    return parse_config(data)[0]


def llama_on_8(**training: Any) -> ExperimentConfig:
    return config("v5e", [2, 4], {"data": 2, "seq": 2, "model": 2}, **training)


#: What the configuration takes as a name.
_NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
_AXES = ("pipeline", "replica", "data", "fsdp", "expert", "seq", "model")


@st.composite
def legal_configs(draw: st.DrawFn) -> ExperimentConfig:
    """A configuration that keeps every rule of divisibility; memory is not asked."""
    chip = get_chip(draw(st.sampled_from(sorted(load_chips()))))
    gpu = chip.kind == "gpu"
    power = st.integers(0, 3).map(lambda n: 2**n)
    topology = [8, draw(power)] if gpu else [draw(power) for _ in range(chip.ici_axes)]
    left, sizes = prod(topology), {}
    for axis in draw(st.permutations([a for a in _AXES if gpu or a != "pipeline"])):
        sizes[axis] = draw(st.sampled_from([n for n in (1, 2, 4, 8) if left % n == 0]))
        left //= sizes[axis]
    order = draw(st.permutations(_AXES)) if draw(st.booleans()) else _AXES
    ici = {axis: sizes.get(axis, 1) * (left if axis == "data" else 1) for axis in order}
    dcn = {draw(st.sampled_from(["data", "replica", "fsdp"])): draw(st.sampled_from([1, 2, 3]))} if not gpu else {}
    stages = ici["pipeline"]
    accumulate = draw(st.sampled_from([1, 2, 3])) * stages
    batch = prod(ici[a] for a in ("replica", "data", "fsdp", "expert")) * prod(dcn.values()) * accumulate
    training = {
        "global_batch": draw(st.sampled_from([None, batch, batch * 3, batch * 8])),
        "seq_len": draw(st.sampled_from([None, 4096, 8192, 131072])),
        "grad_accum": accumulate,
        "precision": draw(st.sampled_from(["bf16", "fp16", "fp8", "mxfp8", "nvfp4", "int8", "fp32"])),
        "optimizer": draw(st.sampled_from(["adamw", "adam", "adafactor", "sgd", "momentum", "lion", "muon"])),
        "weight_sharding": draw(st.sampled_from(["none", "zero1", "fsdp"])),
        "remat": draw(st.sampled_from(["none", "minimal", "full", "offload"])),
        "virtual_stages": draw(st.sampled_from([1, 2])) if stages > 1 else 1,
        "xla_flags": draw(st.lists(st.sampled_from(["--xla_tpu_a=1", "xla_b=$(id)", "--xla_c='x'"]), max_size=2)),
    }
    model = draw(st.sampled_from([None, *model_names()]))
    found = config(chip.name, topology, ici, dcn, model, draw(_NAMES), **training)
    return found if not _broken(found) else config(chip.name, topology, ici, dcn, None, **training)


def _broken(found: ExperimentConfig) -> bool:
    return any(legality.indivisible(found).values())
