"""Explore and Accuracy: the URL is the state, the page shows the model's own numbers, teams are separate."""

from __future__ import annotations

import json
import re
from html import unescape
from math import prod
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np
import pytest
from django.http import QueryDict
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

import formatting
from asapweb.explore import report
from asapweb.explore.answer import answer
from asapweb.explore.spaces import meshes_of
from asapweb.explore.state import divisors, from_config, pairs_of, read, refit
from evaluation.accuracy_numbers import load_accuracy
from perfmodel.config_file import parse_config
from perfmodel.prediction import predict
from perfmodel.search import search
from tests.backend.factories import CONFIG, People, Stored

V5E = {
    "hardware": {"chip": "v5e", "topology": [16, 16], "slices": 1},
    "mesh": {"ici": {"data": 16, "seq": 1, "model": 16}},
    "model": {"name": "llama3.1-8b"},
    "training": {"global_batch": 256, "seq_len": 8192},
}
SHAPE = {"layers": 4, "d_model": 512, "d_ff": 2048, "heads": 8, "kv_heads": 4, "head_dim": 64, "vocab": 32000}


def address(data: dict, **more: str) -> str:
    return "/explore/?" + urlencode([*pairs_of(data), *more.items()])


def page(client: Client, where: str, status: int = 200) -> str:
    answer = client.get(where)
    assert answer.status_code == status
    return unescape(answer.content.decode())


def data_in(html: str, name: str) -> dict:
    found = re.search(rf'<script id="{name}" type="application/json">(.*?)</script>', html, re.S)
    assert found is not None, f"no {name}"
    return json.loads(found[1])


# the state


@pytest.mark.parametrize(
    "data",
    [
        V5E,
        {**V5E, "model": SHAPE},
        {**V5E, "model": {**SHAPE, "experts": 8, "experts_per_token": 2, "d_ff_expert": 1024, "tied_embeddings": True}},
        {
            **V5E,
            "hardware": {"chip": "v5p", "topology": [4, 4, 4], "slices": 2, "overrides": {"hbm_bytes": 5e10}},
            "mesh": {"ici": {"model": 4, "mdl": 4, "data": 4}, "dcn": {"data": 2}, "axis_roles": {"mdl": "seq"}},
            "training": {"global_batch": 64, "seq_len": 4096, "precision": "int8", "remat": "none", "micro_batch": 1},
            "software": {"date": "2025-10"},
        },
        {**V5E, "mesh": {"ici": {"mdl": 16, "data": 16}}, "axis_roles": {"mdl": "model"}},
        CONFIG,
    ],
)
def test_the_address_brings_back_the_same_prediction(data):
    state = from_config(data)
    assert state.errors == {}
    again = read(QueryDict(state.query()))
    assert again.config == state.config
    wanted = predict(parse_config(data)[0])
    assert predict(again.config).step_time_s == wanted.step_time_s
    assert predict(again.config).hbm_per_chip_bytes == wanted.hbm_per_chip_bytes


def test_axes_that_were_left_out_stay_out_and_others_come_in():
    only = read(QueryDict(from_config(V5E).query() + "&axes=model+data"))
    assert only.sizes == {"model": 16, "data": 16}
    again = read(QueryDict(only.query()))
    assert again.sizes == only.sizes
    assert meshes_of(again.config).space.axes == ("model", "data")
    # the form sends the names it shows: that is no choice
    same = read(QueryDict(from_config(V5E).query() + "&axes=data+seq+model"))
    assert not same.own_axes
    mixture = read(QueryDict(from_config({**V5E, "model": {"name": "mixtral-8x7b"}}).query()))
    assert "expert" in mixture.sizes


def test_the_order_of_the_axes_survives_the_address():
    data = {**V5E, "mesh": {"ici": {"model": 16, "seq": 1, "data": 16}}}
    assert list(read(QueryDict(from_config(data).query())).sizes) == ["model", "seq", "data"]


@given(
    st.lists(st.sampled_from([1, 2, 3, 4, 5, 7, 8, 16]), min_size=2, max_size=5),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(1, 300),
)
def test_a_moved_axis_keeps_its_size_and_the_product(sizes, follows, moved, total):
    names = [f"a{n}" for n in range(len(sizes))]
    before = dict(zip(names, sizes, strict=True))
    axis = names[moved % len(names)]
    after = refit(before, total, names[follows % len(names)], axis)
    if total % before[axis]:
        assert after == before  # the sentence about it comes from the check
    else:
        assert prod(after.values()) == total
        assert after[axis] == before[axis]


def test_what_one_axis_takes_the_following_one_gives():
    before = {"data": 16, "seq": 2, "model": 8}
    assert refit({**before, "model": 16}, 256, "data", "model") == {"data": 8, "seq": 2, "model": 16}
    # the following axis moved itself: the next one that has something gives
    assert refit({**before, "data": 32}, 256, "data", "data") == {"data": 32, "seq": 1, "model": 8}
    # more than the following axis has: the others give as far as they must
    assert refit({**before, "model": 256}, 256, "data", "model") == {"data": 1, "seq": 1, "model": 256}


@given(st.integers(1, 20_000))
def test_divisors_divide(number):
    assert list(divisors(number)) == [n for n in range(1, number + 1) if number % n == 0]


# all meshes


def test_the_list_agrees_with_the_search():
    config = parse_config(V5E)[0]
    meshes, found = meshes_of(config), search(config, top=5)
    assert [meshes.config(int(i)).mesh for i in meshes.ranked[:5]] == [c.config.mesh for c in found.candidates]
    assert meshes.considered == found.considered
    assert meshes.rejected_by_rule == found.rejected_by_rule


def test_nothing_legal_beats_the_front():
    meshes = meshes_of(parse_config(V5E)[0])
    legal, time, memory = meshes.ranked, meshes.estimate_s, meshes.memory_bytes
    front = np.flatnonzero(meshes.front)
    assert legal[np.argmin(time[legal])] in front
    for i in front:
        assert not ((time[legal] <= time[i]) & (memory[legal] < memory[i])).any()
    for i in legal[~meshes.front[legal]]:
        assert ((time[front] <= time[i]) & (memory[front] <= memory[i])).any()


# the pages


def test_the_page_shows_what_the_model_predicts(people: People):
    html = page(people.client("viewer"), address(V5E))
    wanted = predict(parse_config(V5E)[0])
    step = formatting.by_origin(wanted.step_time_s["estimate"], "s", "predicted")
    assert re.search(rf'value p" id="k-step"[^>]*>{re.escape(step.number)}<small>{step.unit}</small>', html)
    hbm = formatting.quantity(wanted.hbm_per_chip_bytes["total"], "bytes")
    assert f'memory model">{hbm.number}<small>{hbm.unit}</small>' in html
    assert data_in(html, "x-state")["sizes"] == {"data": 16, "seq": 1, "model": 16}


def test_the_column_of_the_bounds_adds_up_to_them_and_says_that_compute_is_at_its_best(people: People):
    rows = {term.key: (term.value, bound_s) for term, bound_s in answer(parse_config(V5E)[0]).terms}
    time = predict(parse_config(V5E)[0]).step_time_s
    assert sum(bound_s for _, bound_s in rows.values()) == pytest.approx(time["upper"])
    assert max(bound_s for key, (_, bound_s) in rows.items() if key not in ("bubble", "overhead")) == time["lower"]
    assert rows["compute"][1] < rows["compute"][0], "best case: less than the estimate exposes"
    html = page(people.client("viewer"), address(V5E))
    assert "In the bounds" in html and "compute at best-case efficiency" in html


def test_a_mesh_that_breaks_rules_is_priced_and_its_rules_are_said(people: People):
    html = page(people.client("viewer"), address(V5E))
    assert "8 KV heads are not divisible by 16 tensor shards." in html
    assert "Rejected" in html and 'id="k-step"' in html


def test_without_a_mesh_the_fastest_legal_one_is_shown(people: People):
    query = "chip=v5e&topology=16x16&model=llama3.1-8b&global_batch=256&seq_len=8192"
    html = page(people.client("viewer"), f"/explore/?{query}")
    best = search(parse_config(V5E)[0], top=1).candidates[0]
    assert data_in(html, "x-state")["sizes"] == dict(best.config.mesh.ici)
    assert "the fastest of" in html


@pytest.mark.parametrize(
    ("lacks", "says"),
    [
        ("model", "Choose a model or enter its shape"),
        ("global_batch", "Enter the global batch"),
        ("seq_len", "Enter the sequence length"),
    ],
)
def test_what_is_missing_is_said_and_the_rest_answered(lacks, says, people: People):
    data = json.loads(json.dumps(V5E))
    data.pop(lacks, None)
    data["training"].pop(lacks, None)
    html = page(people.client("viewer"), address(data))
    assert says in html and "not predicted" in html
    assert "To price all meshes, set" in html
    if lacks != "model":  # weights and optimizer need neither batch nor length
        known = predict(parse_config(data)[0]).hbm_per_chip_bytes
        assert str(formatting.quantity(known["params"], "bytes")) in html


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("chip=v9z&topology=4x4", "is not a known chip"),
        ("chip=v5e&topology=0x4", "hardware.topology"),
        ("chip=v5e&topology=4x4&global_batch=-3", "training.global_batch"),
        ("chip=v5e&topology=4x4&seq_len=nan", "training.seq_len"),
        ("chip=v5e&topology=99999999x99999999", "hardware.topology"),
        ("chip=v5e&topology=4x4&model=no-such-model", "is not in the catalogue"),
        ("chip=v5e&topology=4x4&axes=data+zz", "is not a known role"),
        ("chip=v5e&topology=4x4&ici_name=data&ici_size=3&ici_name=model&ici_size=1&moved=data", "mesh.ici"),
        ("chip=%00&topology=%F0%9F%98%80", "hardware.chip"),
        ("experiment=&page=x&sort=;drop&show=<b>", "Meshes"),
    ],
)
def test_nonsense_in_the_address_is_answered_in_a_sentence(query, says, people: People):
    html = page(people.client("viewer"), f"/explore/?{query}")
    assert says in html
    assert "<b>Rejected" not in html and "Traceback" not in html


def test_a_wrong_product_is_refused(people: People):
    data = {**V5E, "mesh": {"ici": {"data": 8, "seq": 1, "model": 8}}}
    html = page(people.client("viewer"), address(data, follow="none"))
    assert "8×1×8 = 64, needs 256" in html


def test_other_hardware_fits_the_mesh_and_says_so(people: People):
    data = {**V5E, "hardware": {"chip": "v5e", "topology": [8, 8], "slices": 1}}
    html = page(people.client("viewer"), address(data, chips="256"))
    assert "The mesh was fitted to 64 chips per slice: data 16 → 4." in html


def test_too_many_meshes_are_not_listed_but_the_mesh_is_priced(people: People):
    data = {
        **V5E,
        "hardware": {"chip": "v5p", "topology": [180, 168, 120], "slices": 1},
        "mesh": {"ici": {"pipeline": 1, "replica": 1, "data": 3628800, "seq": 1, "model": 1, "expert": 1}},
    }
    html = page(people.client("viewer"), address(data))
    assert "are too many to price interactively" in html
    assert 'id="k-step"' in html


def test_rejected_meshes_are_listed_with_their_rule(people: People):
    html = page(people.client("viewer"), address(V5E, show="rejected"))
    meshes = meshes_of(parse_config(V5E)[0])
    assert f"Rejected {meshes.considered - len(meshes.ranked)}" in html
    assert "32 heads are not divisible by 256 tensor shards." in html


def test_the_list_sorts_and_pages_and_leads_to_each_mesh(people: People):
    client = people.client("viewer")
    meshes = meshes_of(parse_config(V5E)[0])
    html = page(client, address(V5E, sort="memory"))
    rows = re.findall(r'class="plainlink x-take" href="([^"]+)"', html)
    order = meshes.order("legal", "memory")
    assert [int(n) for n in parse_qs(urlsplit(rows[0]).query)["ici_size"]] == list(meshes.sizes(int(order[0])).values())
    taken = data_in(page(client, rows[3]), "x-state")["sizes"]
    assert taken == meshes.sizes(int(order[3]))
    second = page(client, address(V5E, page="2"))
    assert "16–30 of 30" in second


def test_htmx_gets_the_part_alone_and_choices_become_addresses(people: People):
    client = people.client("viewer")
    live = client.get(address(V5E, moved="model"), headers={"HX-Request": "true", "HX-Target": "answer"})
    assert b"<html" not in live.content and b'id="x-axes"' not in live.content
    assert "HX-Push-Url" not in live.headers and live.headers["Cache-Control"] == "no-store"
    headers = {
        "HX-Request": "true",
        "HX-Target": "answer",
        "X-Commit": "1",
        "HX-Current-URL": "http://testserver/explore/",
    }
    chosen = client.get(address(V5E), headers=headers)
    assert b'id="x-axes"' in chosen.content
    assert read(QueryDict(urlsplit(chosen.headers["HX-Push-Url"]).query)).config == from_config(V5E).config
    table = client.get(address(V5E), headers={"HX-Request": "true", "HX-Target": "meshes"})
    assert b"Meshes table" in table.content and b"kpis" not in table.content


# from an experiment


def test_an_experiment_opens_with_its_configuration_and_its_measured_step(ready: Stored, people: People):
    client = people.client("viewer")
    answer = client.get(f"/experiments/{ready.experiment.pk}/explore/")
    assert answer.status_code == 302
    state = read(QueryDict(urlsplit(answer.url).query))
    assert state.config.mesh.ici == parse_config(CONFIG)[0].mesh.ici
    assert state.config.training == parse_config(CONFIG)[0].training
    html = page(client, answer.url)
    assert ready.experiment.name in html and "Measured" in html and "1.25\u00a0s" in html
    assert "measured: this is the run" in html and 'value p" id="k-step"' not in html
    assert 'value p" id="k-step"' in page(client, f"{answer.url}&evidence=none")


# a pasted config.json


def test_a_pasted_config_json_becomes_the_shape_in_the_address(people: People):
    pasted = {
        "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 512, "intermediate_size": 2048,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 32000,
    }  # fmt: skip
    client = people.client("viewer")
    sent = {"state": urlencode(pairs_of(V5E)), "config_json": json.dumps(pasted)}
    answer = client.post("/explore/model/", sent)
    assert answer.status_code == 303
    state = read(QueryDict(urlsplit(answer.url).query))
    assert predict(state.config).step_time_s == predict(parse_config({**V5E, "model": SHAPE})[0]).step_time_s
    assert "custom model" in page(client, answer.url)


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '{"hidden_size": NaN}', '{"hidden_size": -4, "n_layer": 2}', "a" * 300_000]
)
def test_a_pasted_text_that_is_no_model_is_refused_in_a_sentence(text, people: People):
    answer = people.client("viewer").post("/explore/model/", {"state": "", "config_json": text})
    assert answer.status_code == 422
    assert 'id="err-paste"' in answer.content.decode()
    assert people.client("viewer").get("/explore/model/").status_code == 405


# accuracy


def test_the_accuracy_page_shows_the_numbers_of_the_fit(people: People):
    html, numbers = page(people.client("viewer"), "/accuracy/"), load_accuracy()
    for distances in numbers.distances.values():
        for row in distances.values():
            assert f"<b>{row.median * 100:.1f}\u00a0%</b>" in html
    scatter = data_in(html, "x-agreement")
    assert sum(len(group["points"]) for group in scatter["groups"]) == numbers.rows


def test_the_accuracy_page_shows_how_good_proposals_are(people: People):
    html, numbers = page(people.client("viewer"), "/accuracy/"), report.context()
    assert f"{numbers['confidence']['all']['pairs']:,} pairs of measured runs" in html
    for row in numbers["confidence"]["reliability"]:
        assert f"{row['right'] * 100:.1f}\u00a0%" in html


def test_predictions_quote_the_error_of_their_own_distance(people: People):
    near, far = page(people.client("viewer"), address(V5E)), {**V5E, "software": {"framework": "homemade"}}
    unknown = page(people.client("viewer"), address(far))
    for html, config in ((near, V5E), (unknown, far)):
        error = predict(parse_config(config)[0]).error
        assert error is not None
        assert f"median error of {error.median * 100:.1f}\u00a0%" in re.sub(r"[ \n]+", " ", html)
        assert error.meaning in html.lower()
    assert "no run of this framework was measured" in unknown.lower()
    assert "no run of this framework was measured" not in near.lower()


def test_the_framework_is_a_choice_and_prices_the_mesh(people: People):
    gpus = {
        "hardware": {"chip": "h100", "topology": [8, 2]},
        "mesh": {"ici": {"data": 2, "model": 8}},
        "model": {"name": "llama3-8b"},
        "training": {"global_batch": 64, "seq_len": 4096, "micro_batch": 1},
    }
    html = page(people.client("viewer"), address(gpus))
    assert html.count("riced as") == 1 and "(software.framework) is not given: priced as Megatron-Core" in html
    chosen = page(people.client("viewer"), address({**gpus, "software": {"framework": "nanotron"}}))
    assert '<option value="nanotron" selected>' in chosen
    assert "Priced as nanotron" in chosen
