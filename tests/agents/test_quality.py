"""Questions of others are answered in their conversations, and marks are counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaluation.quality import evaluate

CONFIG = {
    "hardware": {"chip": "h100", "topology": [8, 8]},
    "mesh": {"ici": {"data": 8, "model": 8}},
    "model": {"name": "llama3.1-8b"},
    "training": {"global_batch": 256, "seq_len": 4096},
    "measured": {"step_time_s": 3.0},
}


def test_questions_lead_to_computations_and_the_first_is_answered(tmp_path: Path) -> None:
    config, runs, questions = tmp_path / "c.json", tmp_path / "runs.json", tmp_path / "q.json"
    config.write_text(json.dumps(CONFIG))
    runs.write_text(json.dumps({"one": {"config": str(config)}}))
    asked = [
        {"id": "1", "run": "one", "before": [], "text": "what if the batch 512?"},
        {"id": "2", "run": "one", "before": [], "text": "Tell me of purple elephants."},
        {"id": "3", "run": "elsewhere", "before": [], "text": "Why is it slow?"},
    ]
    questions.write_text(json.dumps(asked))
    evaluate.main([str(questions), str(runs), str(tmp_path / "a.jsonl")])
    first, _ = map(json.loads, (tmp_path / "a.jsonl").read_text().splitlines())
    assert first["results"][0]["key"] == "price" and first["results"][0]["arguments"]["changes"] == {
        "global_batch": 512
    }
    assert "per token" in first["answer"]


def test_marks_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marked = tmp_path / "a.jsonl"
    marked.write_text("\n".join(json.dumps({"mark": mark}) for mark in ("right", "right", "wrong", "offered")))
    evaluate.main(["--summary", str(marked)])
    assert "right           2  50.0%" in capsys.readouterr().out
