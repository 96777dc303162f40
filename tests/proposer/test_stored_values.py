"""Failures and effects that were stored, in the form of today and of before, come back as values."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from typing import Any

import pytest

from perfmodel.config_file import parse_config
from proposals.agents.conversation import EFFECT, ConstraintStated, Effect, FactStated, MeshOffered
from proposals.failures import read_failure
from proposals.failures.stored import FAILURE, StoredFailure

CONFIG: dict[str, Any] = {
    "hardware": {"chip": "v5e", "topology": [4, 4]},
    "mesh": {"ici": {"data": 2, "seq": 1, "model": 8}},
    "model": {"name": "llama2-7b"},
    "training": {"global_batch": 64, "seq_len": 4096},
}


@pytest.mark.parametrize(
    "log",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "ValueError: dimension 30 should be divisible by 8",
        "nothing of note",
    ],
)
def test_a_failure_says_the_same_without_its_log(log: str) -> None:
    config = parse_config(CONFIG)[0]
    failure = read_failure(io.BytesIO(log.encode()), config)
    stored = FAILURE.read(json.loads(json.dumps(failure.to_json())))
    again = stored.of(config)
    assert (stored.words, stored.failure, stored.line) == (failure.words, failure.history, failure.line)
    assert (again.cause, again.verdict, str(again.sentence)) == (failure.cause, failure.verdict, str(failure.sentence))
    assert again.forbidden == failure.forbidden
    if failure.forbidden is not None and stored.forbidden is not None:
        assert stored.forbidden.constraints == failure.forbidden.constraints.to_json()


def test_nothing_stored_says_nothing_and_a_cause_of_another_version_is_unknown() -> None:
    assert FAILURE.read({}) == StoredFailure() and not FAILURE.read({}).words
    old = FAILURE.read({"cause": "solar flare", "confidence": 1, "sentence": "Bright.", "lines": 3, "forbidden": None})
    assert (old.words, old.of(None).cause) == ("solar flare", "unknown")


@pytest.mark.parametrize(
    "effect",
    [
        ConstraintStated({"keep_batch": True, "fixed": {"seq": 4}}, "The batch stays."),
        FactStated("hardware.overrides.hbm_bytes", 9e10, "It has 90 GB."),
        MeshOffered({"ici": {"seq": 2, "data": 4}, "dcn": {}}, {"remat": "full", "xla_flags": ["--a"]}, "seq 2"),
    ],
)
def test_an_effect_comes_back_in_its_kind_and_order(effect: Effect) -> None:
    stored = json.loads(json.dumps(EFFECT.write(effect)))
    assert EFFECT.read(stored) == effect == EFFECT.read(json.loads(json.dumps(asdict(effect))))
    assert list(stored) == list(asdict(effect))


def test_an_offer_of_a_mesh_alone_is_read() -> None:
    offered = EFFECT.read({"kind": "mesh", "mesh": {"ici": {"seq": 2, "data": 4}, "dcn": {}}})
    assert isinstance(offered, MeshOffered) and list(offered.mesh["ici"]) == ["seq", "data"]
    assert (offered.changes, offered.title) == ({}, "")
