"""`asap ask`: the dialogue's questions without the application, over a configuration alone or with a profile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from asapweb.cli import main
from experiments.samples.samples import SAMPLES
from tests.agent.server import ScriptedServer, text

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


@pytest.fixture(autouse=True)
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ASAP_LLM_MODEL"):
        monkeypatch.delenv(name, raising=False)


def test_a_named_computation_is_answered_from_a_configuration_alone(
    capsys: pytest.CaptureFixture[str], config: str
) -> None:
    found = ask(capsys, "fits", "--config", config)
    assert found["computation"] == "fits" and "GB" in found["answer"]
    assert found["values"][0]["unit"] == "bytes" and found["values"][0]["origin"] == "predicted"


def test_a_named_configuration_is_priced_as_predict_prices_it(capsys: pytest.CaptureFixture[str], config: str) -> None:
    found = ask(capsys, "price", "--mesh", "fsdp=8,tp=2", "--config", config)
    assert found["arguments"]["mesh"] == {"fsdp": 8, "tp": 2}
    assert main(["predict", config, "--mesh", "fsdp=8,model=2", "--json"]) == 0
    predicted = json.loads(capsys.readouterr().out)
    assert found["values"][0]["value"] == pytest.approx(predicted["step_time_s"]["estimate"], rel=1e-6)


def test_words_list_what_would_run(capsys: pytest.CaptureFixture[str], config: str) -> None:
    found = ask(capsys, "What", "if", "fsdp=8", "tp=2?", "--config", config)
    assert found["answer"] == "" and "language model" in found["needs"]
    assert found["would_run"][0]["command"] == "asap ask price --mesh fsdp=8,model=2"
    assert ask(capsys, "Do the purple elephants dance at noon?", "--config", config)["would_run"]


def test_arguments_without_a_computation_are_refused(capsys: pytest.CaptureFixture[str], config: str) -> None:
    assert main(["ask", "Why?", "--mesh", "fsdp=8", "--config", config]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and len(said.err) <= 301


def test_a_model_answers_free_text(
    capsys: pytest.CaptureFixture[str], config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedServer([text("Memory is fine.")]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("ASAP_LLM_MODEL", "scripted")
        found = ask(capsys, "Is memory fine?", "--config", config)
    assert (found["answer"], found["model"]) == ("Memory is fine.", "scripted")


def test_a_profile_says_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--profile", *map(str, SAMPLE.files)]
    found = ask(capsys, "verdict", "--config", str(SAMPLE.config), *files)
    assert any(value["origin"] == "measured" for value in found["values"])


def test_a_missing_configuration_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ask", "fits", "--config", "/nowhere.json"]) != 0
    said = capsys.readouterr().err
    assert "/nowhere.json" in said and said.count("\n") == 1
