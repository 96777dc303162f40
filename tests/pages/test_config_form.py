from __future__ import annotations

from typing import Any

import pytest
from django.http import QueryDict

from experiments import config_form
from perfmodel import config_file
from perfmodel.execution import load_profiles

CONFIG: dict[str, Any] = {
    "name": "two slices of v5p",
    "hardware": {"chip": "v5p", "topology": [4, 4, 4], "slices": 2, "overrides": {"dcn_bytes_per_s": 1e9}},
    "mesh": {"ici": {"mdl": 8, "fsdp": 8}, "dcn": {"data": 2}, "axis_roles": {"mdl": "model"}},
    "model": {"name": "llama3.1-8b"},
    "training": {"global_batch": 64, "seq_len": 4096, "remat": "minimal", "xla_flags": ["--a=1", "--b=2"]},
    "notes": "kept as it is",
}


def post(data: dict[str, Any]) -> QueryDict:
    """What a browser sends for a form filled with `data`."""
    fields = config_form.fields_from(data)
    query = QueryDict(mutable=True)
    for key in ("name", "chip", "topology", "slices", "model", "xla_flags"):
        query[key] = fields[key]
    for key in (*config_form.TRAINING_NUMBERS, *config_form.TRAINING_WORDS):
        query[key] = fields[key]
    for kind in ("ici", "dcn"):
        query.setlist(f"{kind}_name", [axis.name for axis in fields[kind]])
        query.setlist(f"{kind}_size", [axis.size for axis in fields[kind]])
        query.setlist(f"{kind}_role", [axis.role for axis in fields[kind]])
    for key, value in fields["shape"].items():
        query[f"shape_{key}"] = str(value)
    return query


def test_a_configuration_survives_the_form_with_its_axes_in_order() -> None:
    back = config_form.data_from(post(CONFIG), CONFIG)
    assert back == CONFIG
    assert list(back["mesh"]["ici"]) == ["mdl", "fsdp"]  # major to minor


def test_a_shape_survives_the_form() -> None:
    shape = {"layers": 4, "d_model": 64, "d_ff": 256, "heads": 4, "kv_heads": 2, "head_dim": 16, "vocab": 512}
    back = config_form.data_from(post({**CONFIG, "model": shape}), CONFIG)
    assert back["model"] == shape


def test_an_empty_form_says_nothing() -> None:
    assert config_form.data_from(QueryDict()) == {"hardware": {}, "mesh": {"ici": {}}}


def test_what_is_no_number_is_left_for_the_check_to_name() -> None:
    query = post(CONFIG)
    query["global_batch"] = "many"
    errors = {error.field for error in config_file.all_errors(config_form.data_from(query, CONFIG))}
    assert errors == {"training.global_batch"}


@pytest.mark.parametrize(
    ("sizes", "ok", "hint"),
    [
        ({"data": 4, "model": 4}, True, "Laid out row-major on 4×4, minor axis last."),
        ({"data": 4, "model": 2}, False, "Multiply one axis by 2."),
        ({"data": 8, "model": 4}, False, "Divide one axis by 2."),
        ({"data": 3, "model": 4}, False, "Choose sizes whose product is 16, the number of chips in 4×4."),
    ],
)
def test_product_is_checked_against_the_chips(sizes: dict[str, int], ok: bool, hint: str) -> None:
    found = config_form.product_check({"hardware": {"topology": [4, 4]}, "mesh": {"ici": sizes}})
    assert found is not None
    assert (found["ok"], found["hint"]) == (ok, hint)


def test_errors_stand_at_their_fields_and_the_rest_above_the_form() -> None:
    errors = {
        "mesh.ici.mdl": "is no role.", "training.global_batch": "Not this.",
        "hardware.overrides": "Odd.", "": "Broken.",
    }  # fmt: skip
    assert config_form.errors_by_slot(errors) == {
        "mesh-ici": "mdl is no role.", "training-global_batch": "Not this.", "form": "hardware.overrides: Odd. Broken.",
    }  # fmt: skip


def test_json_is_written_as_by_hand() -> None:
    assert '"topology": [4, 4, 4]' in config_form.pretty(CONFIG)
    assert '"ici": {"mdl": 8, "fsdp": 8}' in config_form.pretty(CONFIG)


def typed(**fields: str) -> dict[str, Any]:
    query = post(CONFIG)
    for key, value in fields.items():
        query[key] = value
    return config_form.data_from(query, CONFIG)


def test_framework_and_measured_survive_the_form_beside_what_it_does_not_show() -> None:
    full = {
        **CONFIG,
        "software": {"framework": "fsdp", "version": "2.6"},
        "measured": {"step_time_s": 2.31, "peak_memory_bytes": 61_500_000_001},
    }
    query = post(full)
    fields = config_form.fields_from(full)
    for key in ("framework", "step_time_s", "peak_memory_gb"):
        query[key] = fields[key]
    assert config_form.data_from(query, full) == full
    query["framework"] = ""
    assert config_form.data_from(query, full)["software"] == {"version": "2.6"}


@pytest.mark.parametrize(
    ("text", "seconds"), [("2.31", 2.31), ("2,310 ms", 2.31), ("2.31 s", 2.31), (".5", 0.5), ("1e1", 10.0)]
)
def test_a_step_time_is_read_in_seconds_or_milliseconds(text: str, seconds: float) -> None:
    assert typed(step_time_s=text)["measured"]["step_time_s"] == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["fast", "2 min", "nan", "inf", "--", "1e999", "3 GB"])
def test_what_is_no_step_time_is_named_at_its_field(text: str) -> None:
    errors = {error.field for error in config_file.all_errors(typed(step_time_s=text))}
    assert errors == {"measured.step_time_s"}


@pytest.mark.parametrize(
    ("text", "size"), [("61.5", 61_500_000_000), ("61500 MB", 61_500_000_000), ("60 GiB", 60 * 2**30)]
)
def test_peak_memory_is_read_in_gigabytes(text: str, size: int) -> None:
    assert typed(peak_memory_gb=text)["measured"] == {"peak_memory_bytes": size}


def test_the_form_says_as_what_a_framework_is_priced() -> None:
    def said(chip: str, framework: str | None) -> str:
        software = {"software": {"framework": framework}} if framework else {}
        return config_form.priced_as({"hardware": {"chip": chip}, **software})

    titles = {name: profile.title for name, profile in load_profiles().items()}
    assert said("v5p", None) == f"not given: priced as {titles['xla']}"
    assert said("h100", None) == f"not given: priced as {titles['megatron-core']}"
    assert said("h100", "torchtitan 0.2") == f"priced as {titles['fsdp']}"
    assert said("", None) == ""
    assert set(config_form.frameworks()) == set(titles.values())
    for title, names in config_form.frameworks().items():
        for name in names:
            assert said("h100", name) == f"priced as {title}" and config_form.is_offered(name)
    assert not config_form.is_offered("our own trainer")
