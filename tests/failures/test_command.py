"""`asap failure`: the cause of a log on the terminal and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from asapweb.cli.dispatch import dispatch

LOG = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def test_the_cause_is_printed_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text(LOG)
    assert dispatch(["failure", str(tmp_path / "a.log")]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Out of memory (confidence 95\xa0%): forbid\n") and "a.log, line 1 of 1, rank 3:" in said


def test_several_files_and_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text("all well\n")
    (tmp_path / "b.log").write_text(LOG)
    config = tmp_path / "config.yaml"
    config.write_text("hardware: {chip: v5e, topology: [4, 4]}\nmesh: {ici: {data: 2, model: 8}}\n")
    arguments = ["failure", str(tmp_path / "a.log"), str(tmp_path / "b.log"), "--config", str(config), "--json"]
    assert dispatch(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["cause"], found["file"], found["forbidden"]["rule"]) == ("out_of_memory", "b.log", "memory")
    assert "mesh.ici.model" in found["parameters"] and "mesh.seq" not in found["parameters"]


def test_nothing_known_prints_the_last_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text("step 1\nstep 2\n")
    assert dispatch(["failure", str(tmp_path / "a.log")]) == 0
    said = capsys.readouterr().out
    assert "No known error in 2 lines." in said and "step 2" in said


@pytest.mark.parametrize("log", ["missing.log", "."])
def test_what_is_no_file_is_one_sentence(
    log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert dispatch(["failure", log]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and said.err.startswith("Cannot read the log")
