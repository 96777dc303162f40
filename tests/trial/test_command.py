"""`asap trial` on forced CPU devices."""

from __future__ import annotations

import json

import pytest

from asapweb.cli import main
from tests.xla import COMPILED_QUICKLY

CONFIG = {
    "name": "tiny",
    "hardware": {"chip": "v5e", "topology": [2, 2], "slices": 1},
    "mesh": {"ici": {"data": 2, "model": 2}, "dcn": {}},
    "model": {"layers": 1, "d_model": 64, "d_ff": 128, "heads": 4, "kv_heads": 4, "head_dim": 16, "vocab": 256},
    "training": {"global_batch": 4, "seq_len": 64, "precision": "bf16", "weight_sharding": "fsdp"},
}


def asked(capsys, *arguments):
    code = main(["trial", *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(CONFIG))
    return str(path)


@pytest.mark.slow
def test_one_line_with_times_memory_and_profile(tiny, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", COMPILED_QUICKLY)
    folder = tmp_path / "profile"
    code, out, err = asked(capsys, tiny, "--steps", "4", "--profile", str(folder), "--json")
    assert code == 0, err
    (line,) = out.strip().splitlines()
    found = json.loads(line)
    assert len(found["step_times_s"]) == 6 and found["warm_up"] == 2 and min(found["step_times_s"]) > 0
    assert found["failure"] is None and found["profile"] == str(folder)
    assert found["peak_memory_bytes"] > 64 * 256 * 4 / 4 and "compiler" in found["peak_memory_source"]
    assert len(list(folder.glob("plugins/profile/*/*.xplane.pb"))) == 1
    assert json.loads((folder / "config.json").read_text())["mesh"]["ici"] == {"data": 2, "model": 2}
    again, _, error = asked(capsys, tiny, "--profile", str(folder))
    assert again == 2 and "is not empty" in error


@pytest.mark.slow
def test_a_step_that_cannot_be_built_is_a_failure_in_one_sentence(tiny, tmp_path, capsys):
    path = tmp_path / "adafactor.json"
    path.write_text(json.dumps({**CONFIG, "training": {**CONFIG["training"], "optimizer": "adafactor"}}))
    code, out, _ = asked(capsys, str(path), "--steps", "2", "--json")
    found = json.loads(out)
    assert code == 0 and found["step_times_s"] == [] and "AdamW, not adafactor" in found["failure"]


def test_bad_input_is_one_sentence(tiny, tmp_path, capsys):
    large = tmp_path / "large.json"
    mesh = {"hardware": {"chip": "v5p", "topology": [8, 8, 8]}, "mesh": {"ici": {"data": 512}}}
    large.write_text(json.dumps({**CONFIG, **mesh, "training": {**CONFIG["training"], "global_batch": 512}}))
    for arguments, words in (
        ((tiny, "--steps", "0"), "--steps must be"),
        ((tiny, "--upload"), "--upload needs a profile"),
        ((str(large),), "512 devices"),
        ((str(tmp_path / "absent.json"),), "cannot read"),
    ):
        code, out, err = asked(capsys, *arguments)
        assert code == 2 and out == "" and words in err and len(err.strip().splitlines()) == 1 and len(err) <= 301
