from __future__ import annotations

from typing import Any

import pytest
from django.http import QueryDict

from experiments import config_form
from perfmodel import config_file

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
        ({"data": 4, "model": 4}, True, "Laid row-major on 4×4, minor axis last."),
        ({"data": 4, "model": 2}, False, "Multiply one axis by 2."),
        ({"data": 8, "model": 4}, False, "Divide one axis by 2."),
        ({"data": 3, "model": 4}, False, "Choose sizes whose product is 16, the chips of 4×4."),
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
    assert config_form.errors_by_slot(errors, config_form.SLOTS) == {
        "mesh-ici": "mdl is no role.", "training-global_batch": "Not this.", "form": "hardware.overrides: Odd. Broken.",
    }  # fmt: skip


def test_json_is_written_as_by_hand() -> None:
    assert '"topology": [4, 4, 4]' in config_form.pretty(CONFIG)
    assert '"ici": {"mdl": 8, "fsdp": 8}' in config_form.pretty(CONFIG)
