"""Catalogued shapes add up to what their authors publish, and are found by the names people use."""

import copy
from dataclasses import replace

import pytest

from perfmodel.accounting import parameters
from perfmodel.catalogue import (
    UnknownModelError,
    architecture,
    get_model,
    load_catalogue,
    model_names,
    parse_models,
    read_model,
    recognised,
)
from perfmodel.config import ModelShape
from perfmodel.efficiency import model_key
from perfmodel.reading import DataError, shipped


@pytest.mark.parametrize("name", list(load_catalogue()))
def test_parameters_add_up_to_the_published_count(name):
    entry = load_catalogue()[name]
    total = parameters(entry.shape).total
    # MaxText names its own shapes by round numbers; Gemma's E models count embeddings their shape here leaves out.
    tolerance = 0.03 if name.startswith("maxtext") else 0.045 if name == "gemma4-e2b" else 0.02
    assert total == pytest.approx(entry.params, rel=tolerance)


@pytest.mark.parametrize("name", [n for n, e in load_catalogue().items() if e.active_params])
def test_active_parameters_match_with_or_without_the_input_embedding(name):
    entry = load_catalogue()[name]
    count = parameters(entry.shape)
    counted = (count.active, count.active + count.embedding)
    assert any(value == pytest.approx(entry.active_params, rel=0.06) for value in counted)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3.1-8b"),
        ("LLAMA3.1_405B", "llama3.1-405b"),
        ("DeepSeek_V3", "deepseek-v3"),
        ("Qwen/Qwen3-235B-A22B", "qwen3-235b-a22b"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("gemma-3-12b-it", "gemma3-12b"),
        ("Mixtral-8x7B", "mixtral-8x7b"),
        ("turing-530B", "megatron-530b"),
        ("deepseek3-671b", "deepseek-v3"),
    ],
)
def test_names_people_use(written, name):
    assert get_model(written).name == name


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(UnknownModelError, match=r"did you mean 'llama3\.1-8b'"):
        get_model("llama3.1-9b")
    with pytest.raises(UnknownModelError, match="give its shape"):
        get_model("zzzzzzzz")


def test_a_row_without_source_or_with_a_stray_key_does_not_load():
    rows = shipped("models.toml")
    for key, value, word in (("source", "hearsay", "without a source"), ("colour", "blue", "Unexpected keyword")):
        wrong = copy.deepcopy(rows)
        wrong["llama2-7b"][key] = value
        with pytest.raises(DataError, match=word):
            parse_models(wrong)


def test_family_of_a_shape_by_name_or_by_its_sizes():
    known = get_model("gpt-oss-120b")
    nameless = ModelShape(36, 2880, 2880, 64, 8, 64, 201088, experts=128, experts_per_token=4, d_ff_expert=2880)
    assert architecture(known) == architecture(nameless) == "gpt-oss"
    assert architecture(get_model("kimi-k2")) == "deepseek"
    assert architecture(ModelShape(7, 333, 999, 3, 3, 111, 1000)) == ""


@pytest.mark.parametrize("name", model_names())
def test_a_spelt_out_shape_is_known_by_its_sizes(name: str) -> None:
    """By all of it, and by what people write: the sizes, without embeddings, windows and the kind of MLP."""
    shape = get_model(name)
    same = replace(get_model(recognised(shape)), name="", source="")
    assert same == replace(shape, name="", source="")
    sizes = ("layers", "d_model", "d_ff", "heads", "kv_heads", "head_dim", "vocab")
    spelt = {key: getattr(shape, key) for key in sizes}
    if not shape.experts and shape.attention == "gqa":
        read = read_model(spelt)
        assert read is not None and read.name
        assert model_key(read) == model_key(shape)
        off = read_model({**spelt, "d_ff": shape.d_ff + 128})
        assert off is not None and off.name == ""


def test_of_models_of_one_shape_one_names_it() -> None:
    shapes: dict[ModelShape, list[str]] = {}
    for name, entry in load_catalogue().items():
        shapes.setdefault(replace(entry.shape, name="", source=""), []).append(name)
    for names in shapes.values():
        if len(names) > 1:
            assert sum(load_catalogue()[name].names_shape for name in names) == 1, names
    assert recognised(get_model("llama3.3-70b")) == "llama3.1-70b"
