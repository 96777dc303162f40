"""A large site alone and under load: every page and list by itself, then many people at once, and the memory held.

`python -m bench.load` is short: a site of one hundredth, 10 people for 20 seconds.  `--full`: 20,000 experiments with
all that hangs on them, 50 people who hardly pause, then 200 people for 5 minutes; half an hour with the
making of the site, which `--home FOLDER` keeps for another time.  `--write FILE` puts the figures between the marks of
that page.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.population.build import PASSWORD, Sizes, build, database
from bench.population.processes import Held, held

AIM_ALONE_S, AIM_TOGETHER_S = 0.150, 0.400
BEGIN, END = "<!-- bench.load -->", "<!-- /bench.load -->"
USERS_FILE = Path(__file__).with_name("population") / "users.py"


def alone(home: Path, scale: float, requests: int) -> list[str]:
    """Fill the folder where it is empty and open every page; lines of a table, the slowest first."""
    from accounts.models import Team
    from bench.population.alone import measure

    if not Team.objects.filter(name="Team 1").exists():
        began = time.perf_counter()
        build(Sizes().scaled(scale), lambda line: print(f"{time.perf_counter() - began:6.0f} s  {line}", flush=True))
    load = os.getloadavg()[0]
    opened = measure(Team.objects.get(name="Team 1"), requests)
    opened.sort(key=lambda item: -item.processor_p95_s)
    late = sum(item.p95_s > AIM_ALONE_S for item in opened)
    print(f"{len(opened)} URLs; {late} over {AIM_ALONE_S * 1e3:.0f} ms by the clock at a load of {load:.1f}")
    rows = [
        f"| `{item.address}` | {item.queries} | {item.p50_s * 1e3:.0f} | {item.p95_s * 1e3:.0f} "
        f"| {item.processor_p95_s * 1e3:.0f} |"
        for item in opened[:12]
    ]
    head = f"{len(opened)} URLs requested individually, load average {load:.1f}; the slowest by CPU time:"
    table = ["| URL | queries | p50, ms | p95, ms | CPU p95, ms |", "|---|---|---|---|---|", *rows]
    return [head, "", *table]


def together(home: Path, users: int, time_s: int, think_s: float) -> tuple[list[str], int]:
    """So many people on the running application; lines of tables, and how many of their requests failed."""
    from bench.upload import application

    for name in ("DATABASE_URL", "CELERY_BROKER_URL", "ASAP_HASHED_STATIC"):
        os.environ.pop(name, None)
    with application(home) as (link, _, _), tempfile.TemporaryDirectory() as folder:
        host = link.partition("/sign-in/")[0]
        time.sleep(5.0)
        before, load = held(home), os.getloadavg()[0]
        command = [
            sys.executable, "-m", "locust", "-f", str(USERS_FILE), "--headless", "--host", host, "-u", str(users),
            "-r", str(max(2.5, users / 40)), "-t", f"{time_s}s", "--csv", f"{folder}/found", "--only-summary",
            "--stop-timeout", "60", "--reset-stats",  # measured once all have signed in
        ]  # fmt: skip
        known = {"ASAP_LOAD_PASSWORD": PASSWORD, "ASAP_LOAD_USERS": str(users), "ASAP_LOAD_THINK_S": str(think_s)}
        done = subprocess.run(command, env={**os.environ, **known}, capture_output=True, text=True)
        after = held(home)
        with open(f"{folder}/found_stats.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        failures = sum(int(row["Failure Count"]) for row in rows if row["Name"] != "Aggregated")
        if failures:
            print(Path(f"{folder}/found_failures.csv").read_text())
    if not rows:
        raise SystemExit(done.stderr[-2000:])
    head = f"{users} users for {time_s} s, {think_s:.0f} s between pages, load average before {load:.1f}:"
    return [head, "", *_times(rows), "", *_memory(before, after)], failures


def _times(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["| page | requests | failed | p50, ms | p95, ms | p99, ms |", "|---|---|---|---|---|---|"]
    for row in rows:
        values = (row["Request Count"], row["Failure Count"], row["50%"], row["95%"], row["99%"])
        lines.append(f"| {row['Name']} | {' | '.join(str(value) for value in values)} |")
    return lines


def _memory(before: dict[str, Held], after: dict[str, Held]) -> list[str]:
    lines = [
        "| service | processes | largest before, MB | after, MB | total PSS: before, MB | after, MB |",
        "|---|---|---|---|---|---|",
    ]
    for piece, now in after.items():
        then = before.get(piece, Held(0, 0, 0))
        sizes = (then.resident_bytes, now.resident_bytes, then.share_bytes, now.share_bytes)
        lines.append(f"| {piece} | {now.processes} | {' | '.join(f'{size / 1e6:.0f}' for size in sizes)} |")
    return lines


def write(path: Path, lines: list[str]) -> None:
    """Put the lines between the marks of the page."""
    text = path.read_text()
    head, _, rest = text.partition(BEGIN)
    _, mark, tail = rest.partition(END)
    if not mark:
        raise SystemExit(f"{path} has no {BEGIN} … {END}")
    path.write_text(f"{head}{BEGIN}\n" + "\n".join(lines).rstrip() + f"\n{END}{tail}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="A large site, alone and with many people at once.")
    parser.add_argument("--home", type=Path, help="data folder to keep and use again")
    parser.add_argument("--full", action="store_true", help="20,000 experiments, 200 people, 5 minutes")
    parser.add_argument("--scale", type=float, help="share of 20,000 experiments and all that hangs on them")
    parser.add_argument("--users", type=int)
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--think", type=float, default=12.0, help="mean seconds between two pages of one person")
    parser.add_argument("--requests", type=int, default=20, help="of each page alone; 0: none")
    parser.add_argument("--write", type=Path, help="page whose figures are replaced")
    options = parser.parse_args(arguments)
    if find_spec("locust") is None:
        raise SystemExit(
            "bench.load needs Locust, which `make run` does not install: run bin/bootstrap dev, then again."
        )
    scale = options.scale or (1.0 if options.full else 0.01)
    users, time_s = options.users or (200 if options.full else 10), options.seconds or (300 if options.full else 20)
    crowds = [(users, time_s, options.think)]
    if options.full and not options.users:
        crowds.insert(0, (50, 90, 2.0))
    with tempfile.TemporaryDirectory(prefix="asap-bench-", dir="/tmp") as folder:
        home = options.home or Path(folder)
        lines: list[str] = []
        if options.requests:
            with database(home):
                lines = [*alone(home, scale, options.requests), ""]
        failures = 0
        for crowd in crowds:
            measured, failed = together(home, *crowd)
            lines += [*measured, ""]
            failures += failed
    print("\n".join(lines))
    if options.write is not None:
        write(options.write, lines)
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
