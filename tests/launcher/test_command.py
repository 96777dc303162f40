"""The `asap` command as a shell meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from asapweb.cli import main
from tests.launcher.application import command, environment

CONFIG = {
    "name": "llama3.1-8b on v6e-16",
    "hardware": {"chip": "v6e", "topology": [4, 4], "slices": 1},
    "mesh": {"ici": {"replica": 1, "data": 4, "seq": 4, "model": 1}, "dcn": {"data": 1}},
    "model": {"name": "llama3.1-8b"},
    "training": {"global_batch": 32, "seq_len": 8192, "precision": "bf16", "weight_sharding": "fsdp", "remat": "full"},
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    return path


def asap(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), env=environment(Path("/nonexistent")), capture_output=True, text=True, timeout=120
    )


def test_json_is_one_document(config: Path) -> None:
    done = asap("predict", str(config), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["step_time_s"]["estimate"] > 0


def test_without_json_it_is_text_for_people(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(config)]) == 0
    printed = capsys.readouterr().out
    with pytest.raises(json.JSONDecodeError):
        json.loads(printed)
    assert "step_time_s" in printed


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["predict"],
        ["predict", "--nonsense", "x"],
        ["predict", "/nonexistent/config.json"],
        ["predict", "/nonexistent/" + "long" * 200],
        ["predict", "line\nbreak.json"],
        ["diagnose", "/nonexistent.xplane.pb"],
    ],
)
def test_what_the_user_can_mend_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    assert len(printed.err.strip()) <= 300


def test_a_product_that_does_not_match_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**CONFIG, "mesh": {"ici": {"data": 5}}}))
    done = asap("predict", str(path))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


def test_a_reader_that_has_seen_enough_is_no_error(config: Path) -> None:
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", '"$@" | head -c 1 > /dev/null', "bash", *command("search", str(config))],
        env=environment(Path("/nonexistent")),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_predict_never_loads_django_or_jax(config: Path) -> None:
    program = (
        "import sys; from asapweb.cli import main; status = main(sys.argv[1:]);"
        "slow = [name for name in ('django', 'celery', 'jax', 'xprof') if name in sys.modules];"
        "print(status, *slow, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "predict", str(config)],
        env={**os.environ, **environment(Path("/nonexistent"))},
        capture_output=True,
        text=True,
    )
    assert done.stderr.strip() == "0"


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["--help"])
    printed = capsys.readouterr().out
    for name in ("run", "predict", "search", "diagnose", "propose", "record"):
        assert name in printed
