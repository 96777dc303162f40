"""`asap ask`: the dialogue's questions without the application, over a configuration alone or with a profile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from asapweb.cli import main
from experiments.samples.samples import SAMPLES

SAMPLE = next(item for item in SAMPLES if item.key == "asap-experiment-3")
CONFIG = {
    "name": "8B on 16 chips",
    "hardware": {"chip": "v5e", "topology": [4, 4]},
    "mesh": {"ici": {"fsdp": 16}},
    "model": {"name": "llama3.1-8b"},
    "training": {"global_batch": 16, "seq_len": 4096, "weight_sharding": "fsdp", "remat": "full"},
}


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "run.json"
    file.write_text(json.dumps(CONFIG))
    return str(file)


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["ask", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_memory_is_answered_from_a_configuration_alone(capsys: pytest.CaptureFixture[str], config: str) -> None:
    found = ask(capsys, "Does it fit in memory?", "--config", config)
    assert "GB" in found["answer"] and found["tools"]


def test_a_named_mesh_is_priced_and_can_be_taken_further(capsys: pytest.CaptureFixture[str], config: str) -> None:
    found = ask(capsys, "What if fsdp 8, model 2?", "--config", config)
    assert found["meshes"][0]["mesh"]["ici"] == {"fsdp": 8, "model": 2}


def test_what_is_not_understood_is_not_answered(capsys: pytest.CaptureFixture[str], config: str) -> None:
    found = ask(capsys, "Do the purple elephants dance at noon?", "--config", config)
    assert found["tools"] == [] and found["meshes"] == []


def test_a_profile_says_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    files = [word for file in SAMPLE.files for word in ("--profile", str(file))]
    assert main(["ask", "Why is this step slow?", "--config", str(SAMPLE.config), *files]) == 0
    assert "measured" in capsys.readouterr().out


def test_a_missing_configuration_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ask", "Does it fit?", "--config", "/nowhere.json"]) != 0
    said = capsys.readouterr().err
    assert "/nowhere.json" in said and said.count("\n") == 1
