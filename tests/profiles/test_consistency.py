"""What the shipped profiles say of their configuration is true, and no single change of it goes unnoticed."""

from __future__ import annotations

import copy
import json
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.reconstruct.scenarios import SCENARIOS
from evaluation.steps import shipped
from experiments.consistency import Facts, contradictions, exchange_unrecorded, facts_of, prefilled
from experiments.consistency.groups import runs_of
from experiments.ingest import read_profile
from experiments.samples.samples import SAMPLES
from perfmodel.chips import load_chips
from perfmodel.config_file import parse_config

pytestmark = pytest.mark.slow

KEYS = [sample.key for sample in SAMPLES]
REAL = Path("/work/shared/profiles")
every_sample = pytest.mark.parametrize("key", KEYS)


@cache
def facts(key: str) -> Facts:
    return facts_of(shipped.sample(key)[0])


def truth(key: str) -> dict[str, Any]:
    """The configuration with all that is known of it: of the reconstructions the model that they were made with."""
    sample = next(sample for sample in SAMPLES if sample.key == key)
    data: dict[str, Any] = json.loads(sample.config.read_text())
    if key in SCENARIOS:
        work = SCENARIOS[key].workload
        names = ("layers", "d_model", "d_ff", "heads", "kv_heads", "head_dim", "vocab")
        data["model"] = {name: getattr(work, name) for name in names}
        data["training"] |= {"remat": "full" if work.recompute else "none", "precision": "bf16"}
    data["software"] = {"framework": "jax"}
    return data


def found(key: str, data: dict[str, Any]) -> list[str]:
    config, _ = parse_config(data)
    return [item.field for item in contradictions(facts(key), data, config)]


def size(data: dict[str, Any], *axes: str) -> int:
    return prod(data["mesh"]["ici"].get(axis, 1) for axis in axes)


@every_sample
def test_a_profile_does_not_contradict_what_it_was_recorded_with(key: str) -> None:
    assert found(key, truth(key)) == []


@every_sample
def test_what_the_shapes_say_is_what_ran(key: str) -> None:
    data, said = truth(key), facts(key)
    model, tensor, seq = data["model"], size(data, "model"), size(data, "seq")
    config, _ = parse_config(data)
    assert said.value("devices") == config.hardware.chips
    assert said.value("d_model") == model["d_model"]
    assert said.value("d_ff_per_device") == model["d_ff"] // tensor
    assert said.value("vocab_per_device") == model["vocab"] // tensor
    assert said.value("framework") == "jax"
    assert said.value("remat") == data["training"]["remat"]
    if "layers" in said:
        assert said.value("layers") == model["layers"]
    if "heads_per_device" in said:
        assert said.value("heads_per_device") == model["heads"] // tensor
        assert said.value("head_dim") == model["head_dim"]
    training = config.training
    if training.seq_len and training.global_batch:
        batch = training.global_batch // size(data, "replica", "data")
        # As many tokens as the model is wide: an activation and a weight have the same shape, so nothing is said.
        ambiguous = batch * training.seq_len // seq == model["d_model"]
        assert said.value("batch_per_device") == (None if ambiguous else batch)
        assert said.value("tokens_per_device") == batch * training.seq_len // seq


@every_sample
def test_every_fact_has_its_evidence_and_every_gap_its_reason(key: str) -> None:
    said = facts(key)
    assert all(fact.evidence and all(fact.evidence) and fact.text for fact in said.known.values())
    assert all(said.unavailable.values())
    assert not set(said.known) & set(said.unavailable)


#: A field, what makes another value of it, and the fact without which the profile cannot tell.
CHANGES = {
    "training.global_batch": "batch_per_device",
    "training.seq_len": "seq_len_per_device",
    "training.precision": "precision",
    "training.remat": "remat",
    "model.layers": "layers",
    "model.d_model": "d_model",
    "model.d_ff": "d_ff_per_device",
    "model.heads": "heads_per_device",
    "model.head_dim": "head_dim",
    "model.vocab": "vocab_per_device",
    "software.framework": "framework",
    "hardware.chip": "chip",
}
WORDS = {
    "training.precision": ["bf16", "fp8", "fp32"],
    "training.remat": ["none", "full"],
    "software.framework": ["maxtext", "megatron-lm", "pytorch"],
    "hardware.chip": list(load_chips()),
}


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(KEYS), st.sampled_from(sorted(CHANGES)), st.sampled_from([2, 3, 4, 8]), st.booleans(), st.data())
def test_any_single_change_is_found(key: str, field: str, factor: int, up: bool, data: st.DataObject) -> None:
    changed = copy.deepcopy(truth(key))
    part, name = field.split(".")
    before = changed.get(part, {}).get(name)
    if before is None or CHANGES[field] not in facts(key):
        return
    if field in WORDS:
        value: Any = data.draw(st.sampled_from([word for word in WORDS[field] if word != before]))
        if field == "software.framework" and value == "maxtext":
            return  # the same family
    else:
        value = before * factor if up or before % factor else before // factor
    changed[part][name] = value
    if (
        field == "model.heads"
        and size(changed, "seq") > 1
        and facts(key).value("kv_len") == facts(key).value("seq_len_per_device")
    ):
        return  # each device may attend a part of more heads over all tokens
    if field == "model.heads" and changed["model"]["heads"] % changed["model"]["kv_heads"]:
        changed["model"]["kv_heads"] = 1
    if field == "hardware.chip":
        chip = load_chips()[value]
        chips = prod(changed["hardware"]["topology"])
        changed["hardware"]["topology"] = [1] * ((chip.ici_axes or 2) - 1) + [chips]
    try:
        parse_config(changed)
    except ValueError:
        return  # no configuration: its own check says so
    assert field in found(key, changed)


def test_of_all_meshes_only_the_one_that_ran_is_accepted() -> None:
    """Experiment 3 has groups along each of its axes."""
    data = truth("asap-experiment-3")
    chips = prod(data["mesh"]["ici"].values())
    sizes = [2**power for power in range(9)]
    accepted = []
    for a, b in product(sizes, sizes):
        if chips % (a * b) == 0:
            tried = copy.deepcopy(data)
            tried["mesh"]["ici"] = {"data": a, "seq": b, "model": chips // (a * b)}
            if not {"mesh.ici", "training.global_batch", "training.seq_len"} & set(found("asap-experiment-3", tried)):
                accepted.append((a, b, chips // (a * b)))
    assert accepted == [(4, 16, 4)]


def test_the_order_of_the_axes_counts_and_the_right_one_is_offered() -> None:
    data = truth("asap-experiment-3")
    data["mesh"]["ici"] = {"model": 4, "seq": 16, "data": 4, "replica": 1}
    config, _ = parse_config(data)
    assert found("asap-experiment-3", data) == []  # the same sizes, so the groups are the same
    data["mesh"]["ici"] = {"seq": 16, "data": 4, "model": 4}
    config, _ = parse_config(data)
    (item,) = contradictions(facts("asap-experiment-3"), data, config)
    assert item.field == "mesh.ici"
    assert list(item.use["mesh.ici"].items()) == [("data", 4), ("seq", 16), ("model", 4)]
    assert "16 devices, stride 4" in item.sentence


def test_fewer_chips_than_the_collectives_name() -> None:
    data = truth("asap-experiment-3")
    data["hardware"]["topology"], data["mesh"]["ici"] = [8, 16], {"data": 2, "seq": 16, "model": 4}
    config, _ = parse_config(data)
    item = next(
        item for item in contradictions(facts("asap-experiment-3"), data, config) if item.field == "hardware.topology"
    )
    assert item.use["hardware.topology"] == [16, 16]
    assert prod(item.use["mesh.ici"].values()) == 256


@every_sample
def test_what_is_filled_in_does_not_contradict_itself(key: str) -> None:
    filled = prefilled(facts(key), key)
    data = copy.deepcopy(filled.data)
    if "hardware" in data:  # a CPU is none of the chips, so that one is left to the user
        assert found(key, data) == []
    assert set(filled.marks) <= {
        "hardware.chip", "hardware.topology", "mesh.ici", "software.framework", "model", "training.seq_len",
        "training.global_batch", "training.precision", "training.remat",
    }  # fmt: skip


def test_only_what_was_given_is_held_against_the_profile() -> None:
    """Experiment 2 recomputes nothing; a configuration that does not say so is not contradicted by a default."""
    data = truth("asap-experiment-2")
    del data["training"]["remat"]
    assert found("asap-experiment-2", data) == []
    data["training"]["remat"] = "full"
    assert found("asap-experiment-2", data) == ["training.remat"]


def test_groups_as_sizes_and_strides() -> None:
    assert runs_of([0, 1, 2, 3]) == ((4, 1),)
    assert runs_of([1, 5, 9, 13]) == ((4, 4),)
    assert runs_of([0, 1, 8, 9]) == ((2, 1), (2, 8))
    assert runs_of([0, 1, 3]) is None


@pytest.mark.skipif(not (REAL / "xprof_tpu_training").exists(), reason="real profiles are not here")
def test_a_real_training_step_on_v5p_is_read_as_its_readme_says() -> None:
    """The README beside the file: 16 scanned layers, d_model 2048, d_ff 7168, 16 heads × 128, sequence 2048, local
    batch 1, full remat, one host with 4 v5p chips."""
    folder = REAL / "xprof_tpu_training"
    said = facts_of(read_profile([folder / "overview_page.json.gz", folder / "hlo_stats.json.gz"]))
    expected = {
        "chip": "v5p", "layers": 16, "d_model": 2048, "d_ff_per_device": 7168, "heads_per_device": 16, "head_dim": 128,
        "seq_len_per_device": 2048, "batch_per_device": 1, "remat": "full", "devices": 4, "precision": "bf16",
    }  # fmt: skip
    assert {name: said.value(name) for name in expected} == expected
    data = prefilled(said).data
    assert data["hardware"] == {"chip": "v5p", "topology": [2, 2, 1], "slices": 1}
    data["hardware"]["chip"], data["hardware"]["topology"] = "v5e", [2, 2]
    config, _ = parse_config(data)
    assert [item.field for item in contradictions(said, data, config)] == ["hardware.chip"]


@pytest.mark.skipif(not (REAL / "934987a2fc2f.xplane.pb").exists(), reason="real profiles are not here")
def test_a_real_profile_of_one_of_eight_gpus_says_so_and_tells_no_mesh() -> None:
    profile = read_profile([REAL / "934987a2fc2f.xplane.pb"])
    said = facts_of(profile)
    assert said.value("recorded") == {"recorded": 1, "devices": 8}
    assert said.value("chip") == "mi355x"
    assert "mesh" not in said and "batch_per_device" in said
    assert prefilled(said).data.get("training", {}).get("global_batch") is None
    assert "1 of 8 devices" in exchange_unrecorded(profile)
