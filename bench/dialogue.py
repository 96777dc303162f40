"""The dialogue in the real application: how soon an answer begins, and a hundred of its streams open at once.

`python -m bench.dialogue`.  Starts `asap run` on an empty folder of its own and waits for the shipped samples.  The
first text is timed from the POST of a question to the first `text` event of the answer's stream, over HTTP, with the
built-in reasoner: *cold*, the first question of a run in the worker's life; *warm*, any later one.  Timelines of 10,000
events and events written per second are in `bench.memory`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from bench.upload import application, token
from formatting.numbers import whole_number

AIM_FIRST_TEXT_S = 0.300
STREAMS, WRITES = 100, 40
QUESTIONS = (
    "Which of the three do you recommend first?",
    "Are you sure? How confident are you?",
    "I find the other two more promising.",
    "Without further input from me, do you still hold to it?",
    "What if remat none?",
    "Why not model=1?",
    "What would change your mind?",
    "What should I measure next?",
    "What is the top op?",
    "Which past runs are like this?",
    "Why is it slow?",
    "Does what runs fit in memory?",
    "The batch must stay as it is.",
    "What is arithmetic intensity?",
)


def samples(client: httpx.Client) -> list[int]:
    """The shipped experiments, once all of them are analysed."""
    for _ in range(600):
        listed = client.get("/api/experiments/", params={"limit": 50}).raise_for_status().json()["results"]
        if listed and all(item["state"] in ("ready", "failed") for item in listed):
            return [item["id"] for item in listed if item["state"] == "ready"]
        time.sleep(0.5)
    raise SystemExit("the samples did not become ready in five minutes")


def first_text(client: httpx.Client, thread: int, question: str) -> tuple[float, float, float]:
    """Seconds from the POST to the first text, and to the end; and what the worker itself took to the first text."""
    began = time.perf_counter()
    answer = client.post(f"/api/threads/{thread}/messages/", json={"text": question}).raise_for_status().json()
    first = 0.0
    with client.stream("GET", answer["stream"]) as stream:
        for line in stream.iter_lines():
            if line == "event: text" and not first:
                first = time.perf_counter() - began
            elif line == "event: end":
                break
    ended = time.perf_counter() - began
    stored = client.get(f"/api/answers/{answer['id']}/").raise_for_status().json()
    if stored["status"] != "done" or not first:
        raise SystemExit(f"“{question}” was not answered: {stored['status']}, {stored['note']}")
    return first, ended, stored["first_text_s"]


def quantiles(times: list[float]) -> str:
    ordered = sorted(times)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return "".join(f"{value * 1e3:9.0f} ms" for value in (statistics.median(times), p95, ordered[-1]))


def first_texts(client: httpx.Client) -> None:
    cold, warm, ended, worker = [], [], [], []
    slowest = (0.0, "")
    for experiment in samples(client):
        thread = client.post("/api/threads/", json={"experiment": experiment}).raise_for_status().json()["id"]
        for number, question in enumerate(QUESTIONS):
            first, end, own = first_text(client, thread, question)
            (warm if number else cold).append(first)
            if number:
                ended.append(end)
                slowest = max(slowest, (end, question))
                worker.append(own)
    print(f"first text of a built-in answer, aim {AIM_FIRST_TEXT_S * 1e3:.0f} ms")
    print(f"  {'':34}{'median':>12}{'p95':>12}{'most':>12}")
    print(f"  {f'warm ({len(warm)} answers)':34}{quantiles(warm)}")
    print(f"  {'of it, in the worker':34}{quantiles(worker)}")
    print(f"  {'whole answer, warm':34}{quantiles(ended)}")
    print(f"  {f'cold ({len(cold)} runs)':34}{quantiles(cold)}")
    print(f"  longest: “{slowest[1]}”; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors", flush=True)


async def read(address: str, path: str, key: str, name: str, seen: dict[int, list[float]], opened: list[int]) -> None:
    """Follow a stream over a connection of its own; notes when each piece came, by the number that it carries."""
    place = urlsplit(address)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Token {key}\r\n\r\n".encode())
    try:
        status = await reader.readline()
        if b" 200 " not in status:
            raise SystemExit(f"{path} answered {status.decode().strip()}")
        opened.append(1)
        while line := await reader.readline():
            if line.startswith(b"data: ") and (match := re.search(rb"mark (\d+)", line)):
                seen.setdefault(int(match[1]), []).append(time.perf_counter())
            elif line == f"event: {name}\n".encode():
                return
    finally:
        writer.close()


async def follow(
    address: str, path: str, key: str, write: Callable[[int], None], end: Callable[[], None]
) -> list[float]:
    """Seconds from each write to its arrival, at every one of the streams."""
    seen: dict[int, list[float]] = {}
    opened: list[int] = []
    streams = [asyncio.create_task(read(address, path, key, "end", seen, opened)) for _ in range(STREAMS)]
    await asyncio.sleep(3.0)
    wrote = {}
    for number in range(WRITES):
        await asyncio.to_thread(write, number)
        wrote[number] = time.perf_counter()
        await asyncio.sleep(0.2)
    held = await asyncio.to_thread(usage)
    await asyncio.to_thread(end)
    _, late = await asyncio.wait(streams, timeout=10)
    for task in late:
        task.cancel()
    # What came together with a later piece was not missed: it came with that.
    times = [came - wrote[number] for number, all_ in seen.items() for came in all_]
    missed = STREAMS * WRITES - sum(map(len, seen.values()))
    print(f"  {len(opened)} streams: {held}; {missed} of {STREAMS * WRITES} pieces came together with the next")
    return times


def usage() -> str:
    """Memory of the server process, its sockets to browsers, and connections that it holds to the database."""
    from django.db import connection

    pid = server()
    status = Path(f"/proc/{pid}/status").read_text()
    size = int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from pg_stat_activity where datname = current_database()")
        held = cursor.fetchone()[0]
    connection.close()
    return f"server process {size:.0f} MB, {held} database connections of all processes"


def server() -> int:
    """The process that serves requests: the largest of granian's own."""
    home = os.environ["ASAP_HOME"].encode()
    pids = []
    for entry in Path("/proc").iterdir():
        try:
            ours = whole_number(entry.name) is not None and home in (entry / "environ").read_bytes()
            if ours and b"granian" in (entry / "cmdline").read_bytes():
                pids.append(int(entry.name))
        except OSError:
            continue
    return max(pids, key=lambda pid: int(Path(f"/proc/{pid}/statm").read_text().split()[1]))


def streams(address: str, key: str, experiment: int) -> None:
    import django

    django.setup()
    from django.utils import timezone

    from accounts.services import first_administrator
    from dialogue.models import Message
    from dialogue.services import asking
    from experiments.models import Experiment, RunStatus
    from experiments.services import events
    from jobs import workers

    stored = Experiment.objects.get(pk=experiment)
    user = first_administrator()
    thread = asking.open_thread(stored, user)
    question = Message.objects.create(thread=thread, role=Message.Role.USER, author=user, text="What then?")
    # Written by this process, which lives, so that no worker takes it.
    answer = Message.objects.create(
        thread=thread, role=Message.Role.ASSISTANT, question=question, status=Message.Status.ANSWERING,
        worker=f"{workers.this_process()}/1", heartbeat_at=timezone.now(),
    )  # fmt: skip
    row = Message.objects.filter(pk=answer.pk)
    text: list[str] = []

    def write(number: int) -> None:
        text.append(f"mark {number} ")
        row.update(text="".join(text), heartbeat_at=timezone.now())

    def end() -> None:
        row.update(status=Message.Status.DONE, finished_at=timezone.now())

    print(f"{STREAMS} open streams; at rest: {usage()}")
    print(f"  {'delay from the write':34}{'median':>12}{'p95':>12}{'most':>12}")
    times = asyncio.run(follow(address, f"/answers/{answer.pk}/stream/", key, write, end))
    print(f"  {'text of an answer':34}{quantiles(times)}", flush=True)
    waiting = Experiment.objects.create(team=stored.team, name="waits", state=RunStatus.UPLOADED)

    def append(number: int) -> None:
        events.append(waiting, "progress", "coordinator", data={"text": f"mark {number}"})

    def close() -> None:
        Experiment.objects.filter(pk=waiting.pk).update(state=RunStatus.FAILED)
        events.append(waiting, "progress", "coordinator", data={"text": "over"})

    times = asyncio.run(follow(address, f"/experiments/{waiting.pk}/events/", key, append, close))
    print(f"  {'events of an experiment':34}{quantiles(times)}", flush=True)


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="asap-bench-", dir="/tmp", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--after", type=float, default=40.0, help="seconds to wait first, while models load")
    options = parser.parse_args(arguments)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ASAP_LLM_MODEL", "DATABASE_URL", "CELERY_BROKER_URL"):
        os.environ.pop(name, None)
    with folder() as home:
        os.environ |= {"ASAP_HOME": str(home), "DJANGO_SETTINGS_MODULE": "asapweb.settings"}
        with application(home) as (address, _, _):
            key = token(home)
            headers: dict[str, Any] = {"Authorization": f"Token {key}"}
            with httpx.Client(base_url=address, headers=headers, timeout=60) as client:
                samples(client)
                time.sleep(options.after)
                first_texts(client)
                streams(address, key, samples(client)[0])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
