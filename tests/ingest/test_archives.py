from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
import zipfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.ingest import IngestError, Limits, read_profile
from experiments.ingest.archives import unpack
from tests.ingest.conftest import OPS
from tests.ingest.xspaces import tpu_xspace

pytestmark = pytest.mark.slow

PROFILE = "plugins/profile/2026_01_02_03_04_05"


def profile_bytes(host: str = "host-0") -> bytes:
    return tpu_xspace(OPS, host=host).SerializeToString()


def zip_of(path: Path, members: Iterable[tuple[str, bytes]]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def tar_of(path: Path, members: Iterable[tuple[str, bytes]], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def refusal(path: Path, limits: Limits | None = None) -> IngestError:
    with pytest.raises(IngestError) as caught:
        read_profile([path], limits=limits)
    return caught.value


@pytest.mark.parametrize("pack", ["zip", "tar.gz", "tar", "gz", "plain", "misnamed"])
def test_each_packing_reads_to_the_same_profile(tmp_path: Path, pack: str) -> None:
    member = [(f"{PROFILE}/host-0.xplane.pb", profile_bytes())]
    path = tmp_path / f"run.{pack}"
    match pack:
        case "zip":
            zip_of(path, member)
        case "tar.gz":
            tar_of(path, member)
        case "tar":
            tar_of(path, member, "w")
        case "gz":
            path = tmp_path / "host-0.xplane.pb.gz"
            path.write_bytes(gzip.compress(profile_bytes()))
        case "plain":
            path.write_bytes(profile_bytes())
        case "misnamed":  # content decides, not the ending
            path = zip_of(tmp_path / "host-0.xplane.pb", member)
    profile = read_profile([path])
    assert [op.name for op in profile.ops] == ["fusion.1", "all-reduce.2", "copy.3"]
    assert profile.step_time_s == pytest.approx(100e-6)
    assert profile.files[0].size_bytes == path.stat().st_size


def test_log_directory_with_what_tensorboard_writes_beside_the_profiles(tmp_path: Path) -> None:
    members = [
        (f"{PROFILE}/host-0.xplane.pb", profile_bytes("host-0")),
        (f"{PROFILE}/host-1.xplane.pb.gz", gzip.compress(profile_bytes("host-1"))),
        (f"{PROFILE}/host-0.trace.json.gz", gzip.compress(b'{"displayTimeUnit":"ns","traceEvents":[]}')),
        (f"{PROFILE}/ALL_HOSTS.op_stats_v2.pb", b"\x0a\x04\x10\x01\x18\x02"),
        (f"{PROFILE}/jit_step.hlo_proto.pb", b"\x0a\x08\x0a\x06module"),
        ("events.out.tfevents.1.host", b"\x18\x00\x00\x00binary"),
        (f"__MACOSX/{PROFILE}/._host-0.xplane.pb", b"\x00\x05\x16\x07junk"),
    ]
    path = tar_of(tmp_path / "run.tgz", members)
    profile = read_profile([path])
    assert profile.device.host_count == 2
    assert profile.device.core_count == 2
    assert profile.files[0].host == "host-0, host-1"
    assert any(note.message.startswith("4 other files") for note in profile.notes)


def test_several_sessions_are_named(tmp_path: Path) -> None:
    path = zip_of(
        tmp_path / "runs.zip",
        [("log/plugins/profile/monday/h.xplane.pb", profile_bytes()),
         ("log/plugins/profile/tuesday/h.xplane.pb", profile_bytes())],
    )  # fmt: skip
    error = refusal(path)
    assert error.kind == "sessions"
    assert "monday, tuesday" in error.message


def test_one_broken_host_in_an_archive_can_be_left_out_by_the_name_in_the_error(tmp_path: Path) -> None:
    path = zip_of(
        tmp_path / "run.zip",
        [(f"{PROFILE}/a.xplane.pb", profile_bytes("a")), (f"{PROFILE}/b.xplane.pb", profile_bytes("b")[:-90])],
    )
    error = refusal(path)
    assert error.excludable
    assert error.file is not None
    assert "b.xplane.pb" in error.file
    assert read_profile([path], exclude=[error.file]).device.host_count == 1


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "..\\x.xplane.pb", "C:\\x.pb"])
def test_a_members_path_leads_nowhere(tmp_path: Path, name: str) -> None:
    for path in (
        zip_of(tmp_path / "evil.zip", [(name, profile_bytes())]),
        tar_of(tmp_path / "evil.tgz", [(name, profile_bytes())]),
    ):
        folder = tmp_path / "unpacked"
        folder.mkdir()
        (found,) = unpack([(path, path.name)], folder, Limits()).files
        assert found.path.parent == folder
        assert [item for item in tmp_path.rglob("*") if item.name in ("passwd", "x.xplane.pb", "x.pb")] == []
        shutil.rmtree(folder)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_no_members(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "evil.tar"
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo("host-0.xplane.pb")
        info.type = kind
        info.linkname = "/etc/passwd"
        archive.addfile(info)
    assert "No profile was found" in refusal(path).message


def test_bombs(tmp_path: Path) -> None:
    zeros = b"\0" * 40_000_000
    for path in (
        zip_of(tmp_path / "bomb.zip", [("host-0.xplane.pb", zeros)]),
        tar_of(tmp_path / "bomb.tgz", [("host-0.xplane.pb", zeros)]),
    ):
        error = refusal(path)
        assert error.kind == "archive"
        assert "times its size" in error.message
    packed = tmp_path / "bomb.xplane.pb.gz"
    packed.write_bytes(gzip.compress(zeros))
    assert "times its size" in refusal(packed).message
    total = refusal(
        zip_of(tmp_path / "large.zip", [("h.xplane.pb", zeros)]), replace(Limits(), unpacked_bytes=30_000_000)
    )
    assert total.kind == "too_large"


def test_a_file_of_another_tool_is_named_inside_an_archive_as_it_is_outside(tmp_path: Path) -> None:
    """A Chakra trace in a tgz was called no XProf export."""
    chakra = b'{"schema": "1.0.2-chakra.0.0.4", "pid": 1, "nodes": []}'
    assert "Chakra execution trace" in refusal(tar_of(tmp_path / "et.tgz", [("et.json", chakra)])).message
    beside = tar_of(tmp_path / "both.tgz", [(f"{PROFILE}/h.xplane.pb", profile_bytes()), ("et.json", chakra)])
    assert read_profile([beside]).ops


def test_one_upload_does_not_count_for_the_ratio_of_another(tmp_path: Path) -> None:
    """A large export and a small one beside it: both shrink as JSON does, the sum of both is no bomb."""
    large, small = tmp_path / "large.xplane.pb.gz", tmp_path / "small.xplane.pb.gz"
    large.write_bytes(gzip.compress(profile_bytes("host-0") + tpu_padding(12_000_000), 1))
    small.write_bytes(gzip.compress(profile_bytes("host-1")))
    assert read_profile([large, small]).device.host_count == 2


def tpu_padding(size: int) -> bytes:
    """An unknown field of an XSpace, of random bytes that do not shrink."""
    import random

    return b"\x7a" + _varint(size) + random.Random(1).randbytes(size)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def test_a_zip_that_lies_about_its_sizes(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "liar.zip", [("host-0.xplane.pb", b"\0" * 30_000_000)])
    data = path.read_bytes()
    path.write_bytes(data.replace((30_000_000).to_bytes(4, "little"), (10).to_bytes(4, "little")))
    assert refusal(path).kind in ("archive", "truncated", "format")


def test_too_many_members_and_archives_in_archives(tmp_path: Path) -> None:
    many = zip_of(tmp_path / "many.zip", ((f"f{n}", b"") for n in range(60)))
    assert "more than 50 members" in refusal(many, replace(Limits(), entries=50)).message
    inner = zip_of(tmp_path / "inner.zip", [("h.xplane.pb", profile_bytes())]).read_bytes()
    nested = zip_of(tmp_path / "outer.zip", [("inner.zip", inner)])
    assert "is an archive itself" in refusal(nested).message
    twice = tmp_path / "twice.xplane.pb.gz"
    twice.write_bytes(gzip.compress(gzip.compress(profile_bytes())))
    assert "compressed twice" in refusal(twice).message


def test_broken_and_encrypted_archives(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "run.zip", [("host-0.xplane.pb", profile_bytes())])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "corrupt zip" in refusal(path).message
    at = whole.index(b"PK\x01\x02")
    path.write_bytes(whole[: at + 8] + b"\x01" + whole[at + 9 :])
    assert "encrypted" in refusal(path).message
    tar = tar_of(tmp_path / "run.tgz", [("host-0.xplane.pb", profile_bytes())])
    tar.write_bytes(tar.read_bytes()[:-200])
    assert refusal(tar).kind == "truncated"


def test_archive_without_a_profile(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "src.zip", [("train.py", b"print(1)\n"), ("README", b"hello\n")])
    assert "No profile was found in src.zip" in refusal(path).message


def test_json_exports_in_a_zip_are_read_and_give_way_to_a_profile(tmp_path: Path) -> None:
    exports = [("kpis.json", json.dumps({"step_time_ms": 12.5, "duty_cycle_percent": 90}).encode())]
    assert read_profile([zip_of(tmp_path / "e.zip", exports)]).step_time_s == pytest.approx(0.0125)
    both = zip_of(tmp_path / "both.zip", [*exports, ("h.xplane.pb", profile_bytes())])
    profile = read_profile([both])
    assert profile.source_kind == "xplane"
    assert any("kpis.json" in note.message for note in profile.notes)
