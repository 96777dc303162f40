"""Server time of Explore: `.venv/bin/python bench/explore.py [--requests 30]`.

Each case is asked as the page asks: `space new` moves the global batch, so every mesh is priced again; `space kept`
moves a slider inside one space; `list` turns a page of the table.  Uses a PostgreSQL of its own in a temporary folder;
the browser's share of the time is not in it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).resolve().parent))

from pages import installation

#: The aim of issue 3 for an answer of the server.
AIM_MS = 150.0
CASES: dict[str, dict[str, Any]] = {
    "v5e 16x16, llama3.1-8b": {
        "chip": "v5e", "topology": "16x16", "model": "llama3.1-8b", "batch": 256,
        "meshes": [{"data": 256, "seq": 1, "model": 1}, {"data": 16, "seq": 2, "model": 8}],
    },
    "v5p pod 16x20x28, llama3.1-70b": {
        "chip": "v5p", "topology": "16x20x28", "model": "llama3.1-70b", "batch": 8960,
        "meshes": [{"data": 8960, "seq": 1, "model": 1}, {"data": 1120, "seq": 1, "model": 8}],
    },
    "v5p pod, mixtral-8x7b, five axes": {
        "chip": "v5p", "topology": "16x20x28", "model": "mixtral-8x7b", "batch": 8960,
        "meshes": [
            {"replica": 1, "data": 8960, "seq": 1, "expert": 1, "model": 1},
            {"replica": 16, "data": 560, "seq": 1, "expert": 1, "model": 1},
            {"replica": 1, "data": 1120, "seq": 1, "expert": 8, "model": 1},
        ],
    },
}  # fmt: skip


def address(case: dict[str, Any], mesh: dict[str, int], batch: int, **more: str) -> str:
    pairs = [("chip", case["chip"]), ("topology", case["topology"]), ("model", case["model"])]
    pairs += [("global_batch", str(batch)), ("seq_len", "8192")]
    for axis, size in mesh.items():
        pairs += [("ici_name", axis), ("ici_size", str(size))]
    return "/explore/?" + urlencode([*pairs, *more.items()])


def timed(client: Any, where: str, part: str) -> float:
    headers = {"HX-Request": "true", "HX-Target": part} if part else {}
    began = time.perf_counter()
    response = client.get(where, headers=headers)
    took = (time.perf_counter() - began) * 1e3
    if response.status_code != 200 or (part and b"Meshes" not in response.content):
        raise SystemExit(f"{where} answered {response.status_code}")
    return took


def measure(client: Any, case: dict[str, Any], requests: int) -> dict[str, list[float]]:
    meshes, batch = case["meshes"], case["batch"]
    timed(client, address(case, meshes[0], batch), "")  # templates compile, tables load
    fresh = [timed(client, address(case, meshes[0], batch * (2 + n)), "answer") for n in range(requests)]
    kept = [
        timed(client, address(case, meshes[n % len(meshes)], batch, moved="data"), "answer") for n in range(requests)
    ]
    listed = [
        timed(client, address(case, meshes[0], batch, show="all", page=str(1 + n % 3)), "meshes")
        for n in range(requests)
    ]
    return {"space new": fresh, "space kept": kept, "list": listed}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Server time of the page Explore.")
    parser.add_argument("--requests", type=int, default=30)
    options = parser.parse_args(arguments)
    with installation():
        from django.test import Client

        from accounts.services import first_administrator

        client = Client(SERVER_NAME="localhost")
        client.force_login(first_administrator())
        worst = 0.0
        print(f"server time in ms over {options.requests} requests of each kind")
        for name, case in CASES.items():
            for kind, times in measure(client, case, options.requests).items():
                p50, p95 = statistics.median(times), statistics.quantiles(times, n=20)[-1]
                worst = max(worst, p95)
                print(f"  {name:34} {kind:11} p50 {p50:6.1f}   p95 {p95:6.1f}")
        print(f"  slowest p95 {worst:.1f} ms; aim {AIM_MS:.0f} ms")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
