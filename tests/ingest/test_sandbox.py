"""The converter's process: its limits, its end, and what is left behind."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.ingest import IngestError, Limits, read_profile
from experiments.ingest.sandbox import FOLDER_PREFIX
from tests.ingest.conftest import Save
from tests.ingest.xspaces import OpSpec, tpu_xspace

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh_processes")]

PROJECT = Path(__file__).resolve().parents[2]


def children() -> list[int]:
    """Converting processes that this one has started and that still run; the session's database is also its child."""
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        found += [int(pid) for pid in (task / "children").read_text().split()]
    return [pid for pid in found if b"ingest" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def private_folders() -> list[str]:
    return [name for name in os.listdir(os.environ["ASAP_INGEST_FOLDER"]) if name.startswith(FOLDER_PREFIX)]


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile that takes the converter seconds: half a million ops."""
    ops = tuple(OpSpec(f"fusion.{n}", "loop fusion", 1 + n, 0.9) for n in range(120))
    path = tmp_path_factory.mktemp("slow") / "slow.xplane.pb"
    space = tpu_xspace(ops, steps=1000, step_us=125)
    for core in (1, 2, 3):
        plane = space.planes.add()
        plane.CopyFrom(space.planes[0])
        plane.id, plane.name = core + 10, f"/device:TPU:{core}"
    path.write_bytes(space.SerializeToString())
    return path


def at_stage(stage: str, act: Callable[[], None]) -> Callable[[str, float | None, str], None]:
    def on_progress(now: str, fraction: float | None, text: str) -> None:
        if now == stage:
            act()

    return on_progress


def kill_children(number: signal.Signals) -> Callable[[], None]:
    def kill() -> None:
        for pid in children():
            os.kill(pid, number)

    return kill


def test_the_process_is_confined(slow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "hunter2")
    monkeypatch.setenv("DATABASE_URL", "postgres://secret")
    seen: dict[str, str] = {}

    def look() -> None:
        (pid,) = children()
        process = Path(f"/proc/{pid}")
        seen.update({name: (process / name).read_text() for name in ("limits", "status", "environ")})
        seen["group"] = str(os.getpgid(pid))

    read_profile([slow], on_progress=at_stage("check", look))
    limits = {line[:26].strip(): line[26:].split()[0] for line in seen["limits"].splitlines()}
    assert limits["Max address space"] == str(Limits().memory_bytes)
    assert limits["Max cpu time"] == str(Limits().cpu_s)
    assert limits["Max core file size"] == "0"
    assert limits["Max file size"] == str(Limits().unpacked_bytes)
    assert "NoNewPrivs:\t1" in seen["status"]
    assert "hunter2" not in seen["environ"]
    assert "postgres" not in seen["environ"]
    assert seen["group"] != str(os.getpgid(0))


def test_nothing_is_left_behind(save: Save, tmp_path: Path) -> None:
    path = save()
    before = sorted(tmp_path.rglob("*"))
    during: list[list[str]] = []
    read_profile([path], on_progress=lambda *_: during.append(private_folders()))
    assert all(len(folders) == 1 for folders in during)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(IngestError):
        read_profile([path])
    assert private_folders() == []
    assert children() == []
    assert sorted(tmp_path.rglob("*")) == before  # XProf's cache did not land beside the upload


def test_time_by_the_clock(slow: Path) -> None:
    with pytest.raises(IngestError) as caught:
        read_profile([slow], limits=replace(Limits(), wall_s=1))
    assert caught.value.kind == "time"
    assert "slow.xplane.pb exceeded 1 s" in caught.value.message
    assert children() == []
    assert private_folders() == []


def test_processor_time(slow: Path) -> None:
    with pytest.raises(IngestError) as caught:
        read_profile([slow], limits=replace(Limits(), cpu_s=1))
    assert caught.value.kind == "time"
    assert "processor time" in caught.value.message


def test_memory(slow: Path, tmp_path: Path) -> None:
    with pytest.raises(IngestError) as caught:
        read_profile([slow], limits=replace(Limits(), memory_bytes=150_000_000))
    assert caught.value.kind == "memory"
    # The checks pass, and the converter runs out of what it may use: long HLO texts, of which it keeps several copies.
    ops = tuple(OpSpec(f"f.{n}", "loop fusion", 1 + n, 0.9, hlo=f"%f.{n} = " + "x" * 400_000) for n in range(100))
    wordy = tmp_path / "wordy.xplane.pb"
    wordy.write_bytes(tpu_xspace(ops, step_us=125).SerializeToString())
    stages: list[str] = []
    with pytest.raises(IngestError) as caught:
        read_profile(
            [wordy],
            limits=replace(Limits(), memory_bytes=450_000_000),
            on_progress=lambda stage, *_: stages.append(stage),
        )
    assert caught.value.kind == "memory"
    assert stages[-1] == "convert"
    assert "memory limit of 450 MB" in caught.value.message


def test_file_size(tmp_path: Path) -> None:
    """The ops of a CPU recording are written again, for the converter."""
    packed = next((PROJECT / "experiments" / "samples" / "cpu-data8").glob("*.xplane.pb.gz"))
    path = tmp_path / "cpu.xplane.pb"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    with pytest.raises(IngestError) as caught:
        read_profile([path], limits=replace(Limits(), unpacked_bytes=100_000))
    assert caught.value.kind == "too_large"
    assert "larger than 100 kB" in caught.value.message


def test_a_crash_is_a_sentence(slow: Path) -> None:
    with pytest.raises(IngestError) as caught:
        read_profile([slow], on_progress=at_stage("convert", kill_children(signal.SIGSEGV)))
    assert caught.value.kind == "crash"
    assert "crashed on slow.xplane.pb (SIGSEGV)" in caught.value.message


def test_a_killed_converter_is_a_sentence(slow: Path) -> None:
    with pytest.raises(IngestError) as caught:
        read_profile([slow], on_progress=at_stage("convert", kill_children(signal.SIGKILL)))
    assert caught.value.kind == "time"
    assert "ran out of memory" in caught.value.message


def test_result_that_is_too_large(save: Save) -> None:
    with pytest.raises(IngestError) as caught:
        read_profile([save()], limits=replace(Limits(), result_bytes=100))
    assert caught.value.kind == "too_large"


def test_cancelling_from_the_progress_call(slow: Path) -> None:
    class Cancelled(Exception):
        pass

    def cancel() -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        read_profile([slow], on_progress=at_stage("convert", cancel))
    assert children() == []
    assert private_folders() == []


def test_the_converter_dies_with_its_worker(slow: Path) -> None:
    program = textwrap.dedent(f"""
        import os, sys
        sys.path.insert(0, {str(PROJECT)!r})
        from pathlib import Path
        from experiments.ingest import read_profile
        def report(stage, fraction, text):
            if stage == "convert":
                print(*Path(f"/proc/self/task/{{os.getpid()}}/children").read_text().split(), flush=True)
        read_profile([{str(slow)!r}], on_progress=report)
    """)
    worker = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    converter = int(worker.stdout.readline())
    worker.kill()
    worker.wait()
    deadline = time.monotonic() + 20
    while _runs(converter) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(converter)
    # What it left is removed by the next ingestion, once nobody holds it.
    (folder,) = private_folders()
    path = Path(os.environ["ASAP_INGEST_FOLDER"]) / folder
    os.utime(path, (time.time() - 3600,) * 2)
    with pytest.raises(IngestError):
        read_profile([PROJECT / "LICENSE"])
    assert private_folders() == []


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_limits_from_the_environment() -> None:
    limits = Limits.from_environment({"ASAP_INGEST_MEMORY_BYTES": "5000000000", "ASAP_INGEST_WALL_S": "9"})
    assert (limits.memory_bytes, limits.wall_s, limits.cpu_s) == (5_000_000_000, 9, Limits().cpu_s)
    for text in ("4GB", "-1", "0"):
        with pytest.raises(ValueError, match="ASAP_INGEST_CPU_S"):
            Limits.from_environment({"ASAP_INGEST_CPU_S": text})
