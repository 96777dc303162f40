"""Values in a message, by properties: what is written is read back, and what a number is follows from its unit."""

from __future__ import annotations

import itertools
import random

import pytest

from evaluation.quality.evidence import bench
from perfmodel.catalogue import load_catalogue
from perfmodel.chips import load_chips
from perfmodel.config import Mesh
from proposals.agents.mesh_completion import Sizes, fill
from proposals.agents.notation import ParseContext, joined, read, sizes, written

MESH = Mesh((("fsdp", 32), ("seq", 2), ("tensor", 8)), (("replica", 2),))
UNITS = ("ms", "s", "%", "GB", "GB/s", "×", "chips", "tokens", "hours", "days", "layers", "Gbit/s", "MB")


def names(text: str) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for item in read(text, mesh=MESH).values:
        found.setdefault(item.name, []).append(item.value)
    return found


@pytest.mark.parametrize(
    "form", ["{a}={n}", "{a} {n}", "{a}: {n}", "{a} = {n}", "'{a}': {n}", "ici_{a}_parallelism={n}"]
)
def test_any_mesh_is_read_back_from_any_notation(form: str) -> None:
    drawn = random.Random(1)
    for _ in range(40):
        ici = {
            axis: 2 ** drawn.randrange(0, 8) for axis in drawn.sample(["fsdp", "seq", "tensor"], drawn.randrange(1, 4))
        }
        text = ", ".join(form.format(a=axis, n=size) for axis, size in ici.items())
        if form == "{a} {n}" and any(axis == "seq" and size >= 512 for axis, size in ici.items()):
            continue
        assert dict(sizes(text, MESH).ici) == ici, text


def test_what_is_written_is_read_as_the_same_sizes() -> None:
    for one in (
        Sizes(ici={"fsdp": 16, "tensor": 4}),
        Sizes(ici={"fsdp": 8}, dcn={"replica": 4}),
        Sizes(positional=(8, 4, 2)),
        Sizes(factors={"fsdp": 2.0, "tensor": 0.5}),
    ):
        assert sizes(written(one), MESH) == one


@pytest.mark.parametrize(
    ("short", "axis"), [("tp", "tensor"), ("dp", "fsdp"), ("cp", "seq"), ("pp", "pipeline"), ("ep", "expert")]
)
def test_short_names_mean_the_axis_of_their_role(short: str, axis: str) -> None:
    for text in (f"{short}4", f"{short}=4", f"{short} 4"):
        assert dict(sizes(text, MESH).ici) == {axis: 4}, text


def test_replicas_beside_shards_are_one_mesh_and_a_vs_parts_two() -> None:
    assert names("fsdp 32 with 4 replicas")["mesh"] == [Sizes(ici={"fsdp": 32, "replica": 4})]
    assert len(names("fsdp=8, tensor=2 vs fsdp=4, tensor=4")["mesh"]) == 2


@pytest.mark.parametrize(("number", "unit"), list(itertools.product(("2", "3", "45", "0.5"), UNITS)))
def test_a_number_with_a_unit_is_never_a_proposal_nor_bare(number: str, unit: str) -> None:
    found = names(f"it gets {number} {unit} here")
    assert "proposal" not in found and "number" not in found, found


@pytest.mark.parametrize("text", ["proposal 2", "#2", "option 2", "the second one", "proposals 2"])
def test_proposals_are_named(text: str) -> None:
    assert names(text)["proposal"] == [2]


def test_lists_of_proposals_end_where_a_unit_begins() -> None:
    assert names("compare proposal 1 and 3")["proposal"] == [1, 3]
    assert names("proposal 1, 2 and 3")["proposal"] == [1, 2, 3]
    assert names("is proposal 1 and 20 % enough")["proposal"] == [1]


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("batch 512", "batch", 512), ("a global batch of 1,024", "batch", 1024), ("seq 16k", "seq_len", 16384),
        ("context length of 10k", "seq_len", 10000), ("remat none", "remat", "none"),
        ("without remat", "remat", "none"),
        ("selective remat", "remat", "minimal"), ("in fp8", "precision", "fp8"), ("zero-1", "weight_sharding", "zero1"),
        ("vpp=4", "virtual_stages", 4), ("2 virtual stages", "virtual_stages", 2), ("gb 8192", "batch", 8192),
        ("gbs 1024", "batch", 1024), ("8k then", "seq_len", 8192), ("w/ grads in bf16", "state_precision", "bf16"),
        ("8k context instead of 2k", "seq_len", 8192),
        ("8 microbatches", "micro_batches", 8), ("adafactor", "optimizer", "adafactor"), ("128 chips", "chips", 128),
        ("$2.70 per chip-hour", "usd_per_chip_hour", 2.7), ("3 USD per GPU hour", "usd_per_chip_hour", 3.0),
        ("1T tokens", "tokens", 1e12), ("15 trillion tokens", "tokens", 15e12), ("0.5 s/step", "step_time_s", 0.5),
        ("250 ms per step", "step_time_s", 0.25), ("20 % free", "share", 0.2), ("14 GB", "bytes", 14e9),
        ("400 Gbit/s", "bytes_per_s", 50e9), ("on the tensor axis", "axis", "tensor"), ("over DCN", "axis", "dcn"),
    ],
)  # fmt: skip
def test_settings_and_quantities(text: str, name: str, value: object) -> None:
    assert names(text)[name] == [pytest.approx(value) if isinstance(value, float) else value]


@pytest.mark.parametrize("chip", load_chips())
def test_every_chip_is_read_by_its_key(chip: str) -> None:
    assert names(f"what about {chip}?")["chip"] == [chip]
    assert names(f"on 64 {chip.upper()} chips")["chip"] == [chip]


@pytest.mark.parametrize("model", list(load_catalogue())[::4])
def test_models_are_read_by_their_names(model: str) -> None:
    assert names(f"we train {model} here")["model_name"] == [model]


def test_sequences_per_chip_are_a_batch_and_no_other_chip() -> None:
    of = bench("gradients over DCN").config
    found = read("what if I use 2 sequences per chip", ParseContext(of))
    assert found.of("batch") == [2 * of.hardware.chips] and not found.of("chip") and not found.of("chips")


def test_ops_are_known_by_name_and_by_form() -> None:
    of = bench("gradients over DCN")
    known = next(op.name for op in of.profile.ops)
    assert read(f"explain {known}.", ParseContext(of.config, {known})).of("op") == [known]
    assert read("explain all-gather.3", ParseContext(of.config)).of("op") == ["all-gather.3"]
    assert read("llama3.1-8b and v5.0", ParseContext(of.config)).of("op") == []


def test_axes_that_are_not_named_fill_the_chips() -> None:
    drawn = random.Random(2)
    for _ in range(60):
        axis, size = drawn.choice(["fsdp", "seq", "tensor"]), 2 ** drawn.randrange(0, 6)
        found = fill(Sizes(ici={axis: size}), MESH.to_json(), 512, MESH)
        for mesh in found.meshes:
            product = 1
            for n in mesh["ici"].values():
                product *= n
            assert product == 512 and mesh["ici"].get(axis, 1) == size
    assert joined([Sizes(ici={"a": 1}), Sizes(ici={"b": 2})]).ici == {"a": 1, "b": 2}


def test_two_policies_are_two_values_and_no_change_is_none() -> None:
    assert names("recompute minimal or full")["remat"] == ["minimal", "full"]
    assert "remat" not in names("no remat change")


def test_sizes_in_one_breath_are_one_mesh_and_an_arrangement_of_chips_is_none() -> None:
    assert names("EP8 inside the node + dp2 between both")["mesh"] == [Sizes(ici={"expert": 8, "fsdp": 2})]
    assert names("data 8 x fsdp 64")["mesh"] == [Sizes(ici={"data": 8, "fsdp": 64})]
    assert names("HSDP, data 8 x fsdp 64")["mesh"] == [Sizes(ici={"replica": 8, "fsdp": 64})]
    assert names("drop TP and shard more")["mesh"] == [Sizes(ici={"tensor": 1})]
    assert names("over DCN with replica=2")["mesh"] == [Sizes(dcn={"replica": 2})]
    assert "mesh" not in names("128 chips (8x16)")
