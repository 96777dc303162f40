"""The whole way in the real application: starts, and from an upload to three proposals, with peak memory.

`python -m bench.upload`.  Starts `asap run` on an empty folder of its own, stops it, starts it again, and uploads over
the REST API: the shipped CPU recording (about 4 MB), and the same recording repeated to about 36 MB, many steps long.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from experiments.xplane import XSpace

AIM_UPLOAD_S = 10.0
AIM_SECOND_START_S = 5.0
LARGE_BYTES = 36 * 10**6
SAMPLE = "cpu-data8"


@contextmanager
def application(home: Path) -> Iterator[tuple[str, float, subprocess.Popen[str]]]:
    """A running application: its address, and the seconds until it said so."""
    kept = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "CELERY_BROKER_URL")}
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; from asapweb.cli import main; sys.exit(main(['run']))"],
        env={**kept, "ASAP_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "Ctrl-C" in line:
            break
    else:
        raise SystemExit("".join(lines))
    ready_s = time.perf_counter() - began
    address = re.search(r"^Open\s+(\S+)", "".join(lines), re.MULTILINE)
    assert address is not None
    # Whatever it says later must not fill the pipe.
    threading.Thread(target=process.stdout.read, daemon=True).start()
    try:
        yield address[1], ready_s, process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def token(home: Path) -> str:
    """An API token of the first administrator, made in a process that reads the same data folder."""
    program = (
        "import django; django.setup();"
        "from knox.models import AuthToken; from accounts.services import first_administrator;"
        "print(AuthToken.objects.create(first_administrator())[1])"
    )
    environment = {**os.environ, "ASAP_HOME": str(home), "DJANGO_SETTINGS_MODULE": "asapweb.settings"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def repeated(profile: bytes, size: int) -> bytes:
    """The recording played again and again until it has about `size` bytes: more steps of the same program."""
    space = XSpace.FromString(profile)
    times = max(1, round(size / len(profile)))
    starts = [
        line.timestamp_ns * 1000 + event.offset_ps for p in space.planes for line in p.lines for event in line.events
    ]
    ends = [
        line.timestamp_ns * 1000 + event.offset_ps + event.duration_ps
        for p in space.planes
        for line in p.lines
        for event in line.events
    ]
    period_ps = max(ends) - min(starts) + 10**9
    for plane in space.planes:
        numbers = {
            key for key, entry in plane.stat_metadata.items() if entry.name in ("step_num", "group_id", "run_id")
        }
        for line in plane.lines:
            events = list(line.events)
            for repeat in range(1, times):
                for event in events:
                    added = line.events.add()
                    added.CopyFrom(event)
                    added.offset_ps += repeat * period_ps
                    for stat in added.stats:
                        if stat.metadata_id in numbers:
                            field = stat.WhichOneof("value")
                            if field in ("int64_value", "uint64_value"):
                                setattr(stat, field, getattr(stat, field) + repeat * 1000)
    return space.SerializeToString()


class Memory:
    """The most resident memory that one process below another had while this was entered, in bytes."""

    def __init__(self, root: int) -> None:
        self.root = root
        self.peak_bytes = 0
        self._done = threading.Event()

    def __enter__(self) -> Memory:
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.05):
            for pid in _below(self.root):
                self.peak_bytes = max(self.peak_bytes, _high_water_mark(pid))


def _below(pid: int) -> list[int]:
    try:
        own = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return own + [deeper for child in own for deeper in _below(child)]


def _high_water_mark(pid: int) -> int:
    try:
        match = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(match[1]) * 1024 if match else 0


def upload(client: httpx.Client, name: str, profile: bytes, config: bytes) -> tuple[float, dict[str, Any]]:
    """Seconds from the first byte sent until proposals are there."""
    began = time.perf_counter()
    answer = client.post("/api/experiments/", files={"files": (name, profile), "config": ("config.json", config)})
    answer.raise_for_status()
    place = f"/api/experiments/{answer.json()['id']}/"
    while True:
        experiment: dict[str, Any] = client.get(place).json()
        if experiment["state"] in ("ready", "failed", "configuring"):
            return time.perf_counter() - began, experiment
        time.sleep(0.05)


def samples_are_read(client: httpx.Client) -> None:
    while True:
        listed = client.get("/api/experiments/").json()["results"]
        if listed and all(item["state"] in ("ready", "failed", "configuring") for item in listed):
            return
        time.sleep(0.5)


def main() -> None:
    from experiments.samples.samples import FOLDER

    folder = Path(tempfile.mkdtemp(prefix="asap-bench-", dir="/tmp"))
    folder.chmod(0o755)
    home = folder / "data"
    try:
        with (
            application(home) as (address, first_s, _),
            httpx.Client(base_url=address, headers={"Authorization": f"Token {token(home)}"}, timeout=120) as client,
        ):
            samples_are_read(client)
        print(f"first start, empty folder        {first_s:6.1f} s")
        with application(home) as (address, second_s, process):
            print(f"second start                     {second_s:6.1f} s   (aim {AIM_SECOND_START_S:.0f} s)")
            packed = next((FOLDER / SAMPLE).glob("*.xplane.pb.gz"))
            small = gzip.decompress(packed.read_bytes())
            config = (FOLDER / SAMPLE / "config.json").read_bytes()
            with httpx.Client(
                base_url=address, headers={"Authorization": f"Token {token(home)}"}, timeout=600
            ) as client:
                for name, profile, aim in (
                    ("recording", small, f"   (aim {AIM_UPLOAD_S:.0f} s)"),
                    ("many steps", repeated(small, LARGE_BYTES), ""),
                ):
                    with Memory(process.pid) as memory:
                        took_s, experiment = upload(client, f"{name}.xplane.pb", profile, config)
                    print(
                        f"{name}, {len(profile) / 1e6:.1f} MB: upload to {experiment['state']:<8} {took_s:6.1f} s"
                        f"   largest process {memory.peak_bytes / 1e9:.2f} GB{aim}"
                    )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
