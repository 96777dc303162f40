"""Every way to upload something that is no profile ends in one sentence about the right file."""

from __future__ import annotations

import contextlib
import gzip
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.ingest import IngestError, Limits, read_profile
from experiments.xplane import XSpace
from tests.ingest.conftest import OPS, Save
from tests.ingest.xspaces import OpSpec, tpu_xspace

pytestmark = pytest.mark.slow


def refusal(*paths: Path, **arguments: object) -> IngestError:
    with pytest.raises(IngestError) as caught:
        read_profile(list(paths), **arguments)  # type: ignore[arg-type]
    error = caught.value
    assert "\n" not in error.line
    assert len(error.line) <= 300
    assert error.message.endswith(".")
    assert error.next_step.endswith(".")
    return error


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "host-0.xplane.pb"
    path.touch()
    error = refusal(path)
    assert error.kind == "empty"
    assert "host-0.xplane.pb is empty (0 bytes)" in error.message


def test_truncated_file(save: Save) -> None:
    whole = save(cores=range(2), steps=500)
    whole.write_bytes(whole.read_bytes()[:-12_300])
    error = refusal(whole)
    assert error.kind == "truncated"
    assert not error.excludable


@pytest.mark.parametrize("seed", range(5))
def test_random_bytes(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "noise.xplane.pb"
    path.write_bytes(random.Random(seed).randbytes(50_000))
    error = refusal(path)
    assert error.file == "noise.xplane.pb"
    assert error.kind in ("format", "truncated")


def test_text_and_other_files(tmp_path: Path) -> None:
    for name, content, expected in (
        ("notes.xplane.pb", b"loss 1.2\nloss 1.1\n", "text file"),
        ("notes.txt", "größer\n".encode(), "text file"),
        ("picture.png", b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "not a profile"),
        ("vm.trace.json", b'{"displayTimeUnit":"ns","traceEvents":[]}', "no op, kernel or step"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        assert expected in refusal(path).message


def test_flipped_bytes_never_escape_as_anything_but_a_sentence(save: Save) -> None:
    path = save(steps=20)
    whole = path.read_bytes()
    for seed in range(6):
        chance = random.Random(seed)
        data = bytearray(whole)
        for _ in range(20):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data)
        with contextlib.suppress(IngestError):
            assert read_profile([path]).device.host_count == 1


def test_profile_without_planes(tmp_path: Path) -> None:
    path = tmp_path / "h.xplane.pb"
    path.write_bytes(XSpace(hostnames=["h"]).SerializeToString())
    assert "nothing was recorded" in refusal(path).message


def test_large_sparse_file_is_refused_by_its_size_alone(tmp_path: Path) -> None:
    path = tmp_path / "big.xplane.pb"
    with path.open("wb") as target:
        target.truncate(600_000_000)
    error = refusal(path)
    assert error.kind == "too_large"
    assert "has 600 MB; at most 500 MB" in error.message


def test_large_sparse_file_within_the_limit_is_no_profile(tmp_path: Path) -> None:
    path = tmp_path / "big.xplane.pb"
    with path.open("wb") as target:
        target.truncate(300_000_000)
    assert refusal(path).kind == "format"


def test_two_files_of_one_host_are_refused_by_name(save: Save) -> None:
    error = refusal(save("a.xplane.pb", host="worker-7"), save("b.xplane.pb", host="worker-7", steps=3))
    assert error.kind == "duplicate_host"
    for word in ("worker-7", "a.xplane.pb", "b.xplane.pb"):
        assert word in error.message


def test_files_without_a_host_in_them_go_by_their_names(save: Save, tmp_path: Path) -> None:
    nameless = tpu_xspace(OPS)
    del nameless.hostnames[:]
    paths = [save("x/host-0.xplane.pb", nameless), save("y/host-0.xplane.pb", nameless)]
    assert "host-0" in refusal(*paths).message
    profile = read_profile(paths, names=["host-0.xplane.pb", "host-1.xplane.pb"])
    assert [file.host for file in profile.files] == ["host-0", "host-1"]


def test_a_broken_host_is_named_and_the_rest_can_be_read_without_it(save: Save) -> None:
    good = save("t1v-n-0.xplane.pb", host="t1v-n-0")
    broken = save("t1v-n-1.xplane.pb", host="t1v-n-1")
    broken.write_bytes(broken.read_bytes()[:-100])
    error = refusal(good, broken)
    assert error.file == "t1v-n-1.xplane.pb"
    assert error.excludable
    assert "continue without this host" in error.next_step
    profile = read_profile([good, broken], exclude=[error.file])
    assert profile.device.host_count == 1
    assert any("t1v-n-1" in note.message and note.severity == "warning" for note in profile.notes)


def test_leaving_every_host_out_is_refused(save: Save) -> None:
    assert "excluded" in refusal(save(), exclude=["host-0"]).message


def test_markup_in_names_stays_text(save: Save) -> None:
    evil = "<script>alert(1)</script>"
    space = tpu_xspace((OpSpec(evil, f"<b>{evil}", 1, 50, op_name=f"jit({evil})"),), host=f"<img src=x>\n{evil}")
    path = save(space=space)
    profile = read_profile([path], names=[f"{evil}.xplane.pb"])
    assert profile.ops[0].name == evil
    assert profile.files[0].host.startswith("<img src=x>")
    path.write_bytes(path.read_bytes()[:-50])
    assert "\n" not in refusal(path, names=[f"a\n{evil}.xplane.pb"]).message


def test_damaged_gzip(save: Save) -> None:
    path = save()
    packed = path.with_name("host-0.xplane.pb.gz")
    whole = gzip.compress(path.read_bytes())
    packed.write_bytes(whole[:-30])
    assert refusal(packed).kind == "truncated"
    packed.write_bytes(whole[:20] + os.urandom(40) + whole[60:])
    assert refusal(packed).kind in ("truncated", "format")


@pytest.mark.parametrize("times", [(1 << 62, 1 << 62), (5, -(1 << 62)), (-5, 10)])
def test_impossible_times(save: Save, times: tuple[int, int]) -> None:
    space = tpu_xspace(OPS)
    event = space.planes[0].lines[2].events.add()
    event.metadata_id, (event.offset_ps, event.duration_ps) = 2, times
    assert "/device:TPU:0, an op starts or lasts longer than" in refusal(save(space=space)).message


def test_too_many_ops_for_the_memory_are_refused_before_the_converter_starts(save: Save) -> None:
    wide = tuple(OpSpec(f"op.{n}", "loop fusion", 1 + n * 0.01, 0.005) for n in range(9_000))
    path = save(space=tpu_xspace(wide, cores=range(8), steps=2))
    tight = replace(Limits(), memory_bytes=300_000_000)
    stages: list[str] = []
    error = refusal(path, limits=tight, on_progress=lambda stage, *_: stages.append(stage))
    assert error.kind == "memory"
    assert "convert" not in stages


def test_missing_path_and_folder(tmp_path: Path) -> None:
    assert "cannot be opened" in refusal(tmp_path / "none.xplane.pb").message
    assert "is not a file" in refusal(tmp_path).message
    assert refusal().kind == "empty"
