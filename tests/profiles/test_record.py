"""`asap record`: a real recording, and what it says to those who ask for what cannot be."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from asapweb.cli import main
from experiments.xplane import XSpace
from perfmodel.config_file import read_config
from tests.xla import COMPILED_QUICKLY

TINY = ["--layers", "1", "--d-model", "32", "--d-ff", "64", "--heads", "4", "--kv-heads", "2", "--head-dim", "8"]
TINY += ["--vocab", "64", "--batch", "4", "--seq-len", "16", "--steps", "2"]


def hlo_ops(space: XSpace) -> list[tuple[int, str]]:
    """(device, op) of every op event."""
    found = []
    for plane in space.planes:
        names = {key: meta.name for key, meta in plane.stat_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                stats = {names[stat.metadata_id]: stat for stat in event.stats}
                if "hlo_op" in stats and "device_ordinal" in stats:
                    number = stats["device_ordinal"]
                    op = plane.event_metadata[event.metadata_id].name
                    found.append((number.int64_value or number.uint64_value, op))
    return found


@pytest.mark.slow
def test_records_a_sharded_step_end_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_FLAGS", COMPILED_QUICKLY)
    out = tmp_path / "log"
    assert main(["record", "--json", "--out", str(out), "--mesh", "data=2,model=2", *TINY]) == 0
    answer = json.loads(capsys.readouterr().out)
    losses = answer["losses"]
    assert all(math.isfinite(loss) for loss in losses)
    assert losses[0] == pytest.approx(math.log(64), rel=0.3)  # an untrained model guesses among 64 tokens
    assert losses[-1] < losses[0]  # and the optimizer works
    assert len(answer["step_times_s"]) == 2

    (profile,) = out.glob("plugins/profile/*/*.xplane.pb")
    space = XSpace.FromString(profile.read_bytes())
    ops = hlo_ops(space)
    assert {device for device, _ in ops} == {0, 1, 2, 3}
    assert any(op.startswith(("all-reduce", "all-gather", "reduce-scatter")) for _, op in ops)
    markers = [
        event
        for plane in space.planes
        for line in plane.lines
        for event in line.events
        if plane.event_metadata[event.metadata_id].name == "train"
    ]
    assert len(markers) == 2

    config, warnings = read_config(out / "config.json")
    assert warnings == []
    assert config.mesh.ici == (("data", 2), ("model", 2))
    assert (config.training.global_batch, config.training.seq_len) == (4, 16)
    assert config.model is not None
    assert (config.model.layers, config.model.d_model, config.model.vocab) == (1, 32, 64)
    assert "CPU" in config.notes

    assert (
        main(["record", "--out", str(out), "--mesh", "data=2", *TINY]) == 2
    )  # never into a folder that holds a profile
    assert "not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--mesh", "data=three"], "--mesh"),
        (["--mesh", "data=0"], "--mesh"),
        (["--mesh", "data=512", "--batch", "512"], "512 devices"),
        (["--mesh", "data=8", "--batch", "6"], "not divisible"),
        (["--mesh", "model=8", "--kv-heads", "2"], "not divisible"),
        (["--heads", "6", "--kv-heads", "4"], "heads"),
        (["--layers", "0"], "model.layers"),
        (["--steps", "0"], "--steps"),
        (["--steps", "1000"], "--steps"),
        (["--layers", "x"], "invalid int value"),
    ],
)
def test_bad_arguments_get_one_clear_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert main(["record", "--out", str(tmp_path / "log"), *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert says in captured.err
    assert captured.err.count("\n") == 1
    assert len(captured.err) <= 301
    assert not (tmp_path / "log").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["record", "--out", str(tmp_path / "file" / "log"), "--mesh", "data=2"]) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.slow
def test_a_platform_that_is_not_here_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "--out", str(tmp_path / "log"), "--platform", "tpu", "--mesh", "data=2"]) == 2
    assert "tpu" in capsys.readouterr().err.lower()
