"""Reading a configuration: what a user writes, what comes out, and the one sentence that says what is wrong."""

import json
from math import prod

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from perfmodel import memory
from perfmodel.catalogue import get_model, model_names
from perfmodel.chips import load_chips
from perfmodel.config import ConfigError
from perfmodel.config_file import (
    all_errors,
    config_to_json,
    parse_config,
    parse_mesh_argument,
    read_config,
    read_mapping,
    with_mesh,
)
from perfmodel.workload import from_config


def example(**changes):
    data = {
        "name": "llama3.1-8b on v6e-16",
        "hardware": {"chip": "v6e", "topology": [4, 4], "slices": 1},
        "mesh": {"ici": {"replica": 1, "data": 4, "seq": 4, "model": 1}, "dcn": {"data": 1}},
        "model": {"name": "llama3.1-8b"},
        "training": {
            "global_batch": 32,
            "seq_len": 8192,
            "precision": "bf16",
            "optimizer": "adamw",
            "weight_sharding": "fsdp",
            "remat": "full",
            "grad_accum": 1,
            "xla_flags": [],
        },
    }
    for path, value in changes.items():
        *parents, key = path.split("__")
        part = data
        for parent in parents:
            part = part[parent]
        if value is DROP:
            del part[key]
        else:
            part[key] = value
    return data


DROP = object()


def test_the_example_of_the_contract_reads_without_warning():
    config, warnings = parse_config(example())
    assert warnings == []
    assert config.hardware.chips == 16
    assert config.mesh.size("data") == 4
    assert config.mesh.size("seq") == 4
    assert config.model == get_model("llama3.1-8b")
    assert config.training.global_batch_tokens == 32 * 8192


def test_yaml_and_json_read_the_same(tmp_path):
    as_json, as_yaml = tmp_path / "run.json", tmp_path / "run.yaml"
    as_json.write_text(json.dumps(example()), encoding="utf-8")
    as_yaml.write_text(yaml.safe_dump(example(), sort_keys=False), encoding="utf-8")
    assert read_config(as_json) == read_config(as_yaml) == read_config(str(as_json))
    assert read_config(as_json.read_bytes()) == read_config(as_json)


def test_key_order_of_the_mesh_is_kept():
    config, _ = parse_config(example(mesh__ici={"model": 2, "data": 4, "seq": 2}))
    assert [axis for axis, _ in config.mesh.ici] == ["model", "data", "seq"]


@pytest.mark.parametrize(
    ("changes", "field", "word"),
    [
        ({"hardware": DROP}, "hardware", "missing"),
        ({"hardware__chip": "v7q"}, "hardware.chip", "not a known chip"),
        ({"hardware__chip": "v6f"}, "hardware.chip", "did you mean 'v6e'"),
        ({"hardware__chip": 6}, "hardware.chip", "name of a chip"),
        ({"hardware__topology": [4, 0]}, "hardware.topology", "at least 1"),
        ({"hardware__topology": [4, -4]}, "hardware.topology", "at least 1"),
        ({"hardware__topology": [4, 4, 4]}, "hardware.topology", "2D torus"),
        ({"hardware__topology": [4, 10**9]}, "hardware.topology", "out of range"),
        ({"hardware__topology": "four by four"}, "hardware.topology", "list"),
        ({"hardware__slices": 0}, "hardware.slices", "at least 1"),
        ({"hardware__slices": True}, "hardware.slices", "whole number"),
        ({"hardware__slices": 2}, "mesh.dcn", "make them equal"),
        ({"hardware__overrides": {"hbm_bytes": -1}}, "hardware.overrides.hbm_bytes", "above zero"),
        ({"hardware__overrides": {"hbm_bytes": float("nan")}}, "hardware.overrides.hbm_bytes", "finite"),
        ({"mesh": DROP}, "mesh", "missing"),
        ({"mesh": {"dcn": {"data": 1}}}, "mesh.ici", "missing"),
        ({"mesh__ici": {"data": 8, "seq": 4}}, "mesh.ici", "8 x 4 = 32"),
        ({"mesh__ici": {"data": 4.5, "seq": 4}}, "mesh.ici.data", "whole number"),
        ({"mesh__ici": {"data": "4", "seq": 4}}, "mesh.ici.data", "whole number"),
        ({"mesh__ici": {"mdl": 4, "data": 4}}, "mesh.ici.mdl", "axis_roles"),
        ({"mesh__ici": {"dta": 4, "seq": 4}}, "mesh.ici.dta", "did you mean 'data'"),
        ({"mesh__axis_roles": {"data": "boss"}}, "mesh.axis_roles.data", "use one of"),
        ({"model": "llama3.1-9b"}, "model", "did you mean 'llama3.1-8b'"),
        ({"model": {"name": "my-own"}}, "model.name", "give layers"),
        ({"model": {"layers": 4, "d_model": 64}}, "model.d_ff", "missing"),
        ({"model": 5}, "model", "mapping"),
        ({"training__global_batch": 0}, "training.global_batch", "at least 1"),
        ({"training__seq_len": 10**12}, "training.seq_len", "out of range"),
        ({"training__precision": "bf15"}, "training.precision", "did you mean 'bf16'"),
        ({"training__remat": "some"}, "training.remat", "use one of none minimal full offload"),
        ({"training__weight_sharding": "fspd"}, "training.weight_sharding", "did you mean 'fsdp'"),
        ({"training__xla_flags": [1]}, "training.xla_flags", "list of strings"),
        ({"training": []}, "training", "mapping"),
        ({"software": {"date": "last week"}}, "software.date", "2025-10"),
    ],
)
def test_one_sentence_names_the_field(changes, field, word):
    with pytest.raises(ConfigError) as raised:
        parse_config(example(**changes))
    assert raised.value.field == field
    assert word in str(raised.value)
    assert len(str(raised.value)) <= 300
    assert "\n" not in str(raised.value)


def test_a_form_gets_every_complaint_at_once():
    data = example(hardware__chip="v99", training__remat="some", training__seq_len=-1, model="nobody")
    assert [error.field for error in all_errors(data)] == [
        "hardware.chip",
        "model",
        "training.seq_len",
        "training.remat",
    ]
    assert all_errors(example()) == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "empty"),
        ("- 1", "mapping"),
        ('{"a": NaN}', "a: is nan"),
        ('{"a": -Infinity}', "a: is -inf"),
        ('{"a": 1e999}', "finite"),
        ('{"a": ' + "9" * 5000 + "}", "out of range"),
        ('{"a": 1, "a": 2}', "twice"),
        ('{"a" 1}', "line 1"),
        ("a: .nan", "finite"),
        ("a: 1\na: 2", "twice"),
        ("a: &x [1]\nb: *x", "aliases"),
        ("a: " + "[" * 3000, "deeply"),
        ('{"a": ' + "[" * 100_000, "deeply"),
        ("a: !!python/object:os.system x", "not valid YAML"),
        ('{"name": "\\ud800"}', "Unicode"),
        ('{"name": "a\\u0000b"}', "Unicode"),
        ("? [a]\n: b", "plain text"),
        ("a: " + "x" * 1_000_001, "longer than"),
    ],
)
def test_hostile_text_is_refused_with_a_reason(text, word):
    with pytest.raises(ConfigError, match=word):
        read_mapping(text + "\n" if text else "\n")


def test_a_yaml_bomb_stops_at_its_first_alias():
    bomb = 'a: &a ["x"]\n' + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    with pytest.raises(ConfigError, match="aliases"):
        read_mapping(bomb)


def test_bytes_that_are_not_utf8_and_a_missing_file_are_named(tmp_path):
    with pytest.raises(ConfigError, match="UTF-8"):
        read_config(b"name: \xff")
    with pytest.raises(ConfigError, match="No such file"):
        read_config(tmp_path / "absent.json")
    with pytest.raises(ConfigError, match="cannot read"):
        read_config(tmp_path)


def test_yaml_keeps_words_words_and_numbers_numbers():
    assert read_mapping("a: yes\nb: 4:4\nc: 1e5\nd: 2026-01-02\ne: 1_000\nf: true\n") == {
        "a": "yes",
        "b": "4:4",
        "c": 1e5,
        "d": "2026-01-02",
        "e": 1000,
        "f": True,
    }


@pytest.mark.parametrize(
    ("given", "key", "suggested"),
    [({"training__grad_acum": 4}, "training.grad_acum", "grad_accum"),
     ({"model": {"name": "llama3-8b", "layerz": 3}}, "model.layerz", "layers")],
)  # fmt: skip
def test_an_unknown_key_is_a_warning_with_a_suggestion(given, key, suggested):
    config, warnings = parse_config(example(**given))
    assert config.training.grad_accum == 1
    assert len(warnings) == 1
    assert key in warnings[0] and suggested in warnings[0]


def test_an_optimizer_whose_state_is_not_known_is_a_warning_and_counts_as_adam():
    config, warnings = parse_config(example(training__optimizer="Shampoo"))
    assert config.training.optimizer == "shampoo" and "training.optimizer" in warnings[0]
    assert (
        memory.per_chip(from_config(config)).optimizer
        == memory.per_chip(from_config(parse_config(example())[0])).optimizer
    )


def test_custom_axis_names_take_a_role():
    data = example(mesh={"ici": {"dp": 4, "mdl": 4}, "axis_roles": {"mdl": "model", "dp": "data"}})
    config, warnings = parse_config(data)
    assert warnings == []
    assert config.mesh.size("model") == 4
    beside = example(mesh={"ici": {"dp": 4, "mdl": 4}}, axis_roles={"mdl": "tensor", "dp": "data"})
    assert parse_config(beside)[0].mesh.size("model") == 4


def test_batch_length_and_model_may_be_absent():
    config, _ = parse_config(example(model=DROP, training=DROP))
    assert config.model is None
    assert config.training.global_batch is None
    assert config.training.seq_len is None


def test_defaults_follow_what_frameworks_do_on_the_kind_of_chip():
    tpu, _ = parse_config(example(training={}))
    assert (tpu.training.weight_sharding, tpu.training.remat) == ("fsdp", "full")
    gpu = {"hardware": {"chip": "h100", "topology": [8, 2]}, "mesh": {"ici": {"data": 8, "model": 2}}}
    assert (parse_config(gpu)[0].training.weight_sharding, parse_config(gpu)[0].training.remat) == ("zero1", "none")
    gpu["mesh"] = {"ici": {"fsdp": 16}}
    assert parse_config(gpu)[0].training.weight_sharding == "fsdp"


def test_a_hugging_face_config_means_the_catalogued_shape():
    llama = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    deepseek = {
        "model_type": "deepseek_v3",
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "vocab_size": 129280,
        "n_routed_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048,
        "n_shared_experts": 1,
        "first_k_dense_replace": 3,
        "moe_layer_freq": 1,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    }
    mixtral = {
        "model_type": "mixtral",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 32000,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "sliding_window": None,
    }
    for hf, name in ((llama, "llama3.1-8b"), (deepseek, "deepseek-v3"), (mixtral, "mixtral-8x7b")):
        config, _ = parse_config(example(model=hf))
        known = get_model(name)
        for key in known.__dataclass_fields__:
            if key not in ("name", "source", "head_dim"):
                assert getattr(config.model, key) == getattr(known, key), (name, key)


def test_a_named_model_may_be_changed_in_part():
    config, _ = parse_config(example(model={"name": "llama3.1-8b", "layers": 16}))
    assert config.model.layers == 16
    assert config.model.d_model == 4096


@pytest.mark.parametrize(
    ("shape", "field"),
    [
        ({"kv_heads": 3}, "model.kv_heads"),
        ({"experts": 8, "experts_per_token": 9}, "model.experts_per_token"),
        ({"attention": "mla"}, "model.kv_lora_rank"),
        ({"first_dense_layers": 5}, "model.first_dense_layers"),
        ({"vocab": 0}, "model.vocab"),
        ({"heads": -8}, "model.heads"),
        ({"mlp": "round"}, "model.mlp"),
        ({"tied_embeddings": "yes"}, "model.tied_embeddings"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(shape, field):
    model = {"layers": 4, "d_model": 512, "d_ff": 2048, "heads": 8, "vocab": 32000} | shape
    assert next(error.field for error in all_errors(example(model=model))) == field


def test_mesh_argument():
    mesh = parse_mesh_argument("data=8,seq=16,model=2")
    assert mesh.ici == (("data", 8), ("seq", 16), ("model", 2))
    assert mesh.dcn == ()
    assert parse_mesh_argument("data=8,dcn.data=2").dcn == (("data", 2),)
    assert parse_mesh_argument("mdl=8", {"mdl": "model"}).size("model") == 8
    for wrong in ("", "data", "data=0", "data=8,data=2", "dcn.data=2", "bogus=4", "data=1e9", "data=-1"):
        with pytest.raises(ConfigError) as raised:
            parse_mesh_argument(wrong)
        assert raised.value.field == "--mesh"


def test_another_mesh_must_fit_the_same_chips():
    config, _ = parse_config(example())
    assert with_mesh(config, parse_mesh_argument("data=16")).mesh.ici == (("data", 16),)
    with pytest.raises(ConfigError, match="the product is 8"):
        with_mesh(config, parse_mesh_argument("data=8"))


@st.composite
def configurations(draw):
    chip = draw(st.sampled_from(list(load_chips().values())))
    dims = draw(st.integers(1, chip.ici_axes if chip.kind == "tpu" else 2))
    topology = draw(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=dims, max_size=dims))
    axes = draw(st.permutations(["replica", "data", "seq", "tp", "expert", "pipeline"]))
    sizes, left = {}, prod(topology)
    for axis in axes[:-1]:
        sizes[axis] = draw(st.sampled_from([size for size in (1, 2, 4, 8) if left % size == 0]))
        left //= sizes[axis]
    sizes[axes[-1]] = left
    slices = draw(st.integers(1, 4))
    optional = {
        "global_batch": draw(st.none() | st.integers(1, 10**6)),
        "seq_len": draw(st.none() | st.integers(1, 10**6)),
        "micro_batch": draw(st.none() | st.integers(1, 64)),
        "remat": draw(st.none() | st.sampled_from(["none", "minimal", "full", "offload"])),
        "sequence_parallel": draw(st.none() | st.booleans()),
        "loss_parallel": draw(st.none() | st.booleans()),
        "xla_flags": draw(st.lists(st.text("abc-=", max_size=9), max_size=3)),
    }
    return {
        "name": draw(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)),
        "hardware": {"chip": chip.name, "topology": topology, "slices": slices},
        "mesh": {"ici": sizes, "dcn": {"data": slices}, "axis_roles": {"tp": "model"}},
        "model": draw(st.none() | st.sampled_from(model_names())),
        "training": {key: value for key, value in optional.items() if value is not None},
    }


@given(configurations())
def test_a_configuration_survives_being_written_and_read(data):
    config, warnings = parse_config(data)
    assert warnings == []
    again, warnings = read_config(json.dumps(config_to_json(config)))
    assert warnings == []
    assert again == config
    assert prod(size for _, size in again.mesh.ici) == again.hardware.chips_per_slice


_junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.sampled_from(
        [
            "hardware",
            "hardware__chip",
            "hardware__topology",
            "hardware__overrides",
            "mesh",
            "mesh__ici",
            "mesh__dcn",
            "model",
            "training",
            "training__global_batch",
            "training__xla_flags",
            "notes",
            "name",
            "software",
        ]
    ),
    _junk,
)
def test_whatever_is_written_the_answer_is_a_configuration_or_one_sentence(path, junk):
    errors = all_errors(example(**{path: junk}))
    for error in errors:
        assert 0 < len(str(error)) <= 300
        assert len(str(error).splitlines()) == 1


MEASURED = {
    "hardware": {"chip": "h100", "topology": [8, 1]},
    "mesh": {"ici": {"data": 8}},
    "measured": {"step_time_s": 2.31, "peak_memory_bytes": 61.5e9},
}


def test_what_was_measured_is_read_and_written_back():
    config, warnings = parse_config(MEASURED)
    assert (config.measured.step_time_s, config.measured.peak_memory_bytes) == (2.31, 61.5e9)
    assert warnings == [] and config_to_json(config)["measured"] == MEASURED["measured"]
    for empty in ({}, None, {"step_time_s": None}):
        bare, _ = parse_config(MEASURED | {"measured": empty})
        assert bare.measured is None and "measured" not in config_to_json(bare)


@pytest.mark.parametrize(
    ("block", "field", "word"),
    [
        ({"step_time_s": 0}, "measured.step_time_s", "above zero"),
        ({"step_time_s": -1.5}, "measured.step_time_s", "above zero"),
        ({"step_time_s": True}, "measured.step_time_s", "a number"),
        ({"step_time_s": "2.31"}, "measured.step_time_s", "a number"),
        ({"step_time_s": 1e9}, "measured.step_time_s", "out of range"),
        ({"step_time_s": [2.3]}, "measured.step_time_s", "a number"),
        ({"peak_memory_bytes": 61.5}, "measured.peak_memory_bytes", "61.5e9"),
        ({"peak_memory_bytes": 600e9}, "measured.peak_memory_bytes", "of one h100"),
        (2.31, "measured", "mapping"),
    ],
)
def test_a_measurement_that_cannot_be_is_refused_by_its_field(block, field, word):
    with pytest.raises(ConfigError) as refused:
        parse_config(MEASURED | {"measured": block})
    assert refused.value.field == field and word in str(refused.value) and len(str(refused.value)) <= 300


def test_a_site_with_more_memory_may_have_used_it():
    hardware = MEASURED["hardware"] | {"overrides": {"hbm_bytes": 141e9}}
    config, _ = parse_config(MEASURED | {"hardware": hardware, "measured": {"peak_memory_bytes": 120e9}})
    assert config.measured.peak_memory_bytes == 120e9


def test_another_mesh_was_not_measured():
    config, _ = parse_config(MEASURED)
    assert with_mesh(config, parse_mesh_argument("data=4,model=2")).measured is None
    assert with_mesh(config, parse_mesh_argument("data=8")).measured == config.measured


@pytest.mark.parametrize(
    ("chip", "topology", "doubted"), [("h100", [16], True), ("h100", [8, 2], False), ("gb200", [64], False)]
)
def test_more_gpus_than_an_nvlink_domain_has_are_doubted_with_the_topology_of_machines(chip, topology, doubted):
    hardware, mesh = {"chip": chip, "topology": topology}, {"ici": {"data": prod(topology)}}
    _, warnings = parse_config({"hardware": hardware, "mesh": mesh})
    assert any("hardware.topology" in line and "[8, 2]" in line for line in warnings) == doubted
