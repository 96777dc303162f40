"""How fluid the timeline is: 64 cores × 20,000 events, on the server and in a browser.

`python -m bench.timeline [--cores 64] [--events 20000] [--browser]`.  The server's part: bytes of the event store, time
and bytes of the tiles of a first view and of zoomed ones, of sums, of the Perfetto export.  With --browser: time to the
first paint of all tiles and frames per second while panning and zooming, in headless Chromium, which draws without a
GPU.
"""

from __future__ import annotations

import argparse
import gzip
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.pages import installation
from experiments.trace import OPS, Trace, TraceBuilder, perfetto, sums, tiles

KINDS = ("compute", "compute", "compute", "collective", "copy")


def build(path: Path, cores: int, events: int, steps: int = 5) -> float:
    """Write a store of `cores` × `events` ops of 300 names; the seconds it took."""
    random = np.random.default_rng(0)
    began = time.perf_counter()
    builder = TraceBuilder(path.parent)
    names = [builder.name(f"fusion.{i}", KINDS[i % len(KINDS)], program="jit_step") for i in range(300)]
    pattern = random.integers(1_000_000, 60_000_000, events)
    ids = np.asarray(names, np.uint32)[random.integers(0, len(names), events)]
    for index in range(cores):
        core = builder.add_core(f"TPU:{index % 4}", f"host-{index // 4}")
        durations = pattern + random.integers(0, 500_000, events)
        ends = np.cumsum(durations + random.integers(0, 300_000, events))
        builder.add_events(core, OPS, ends - durations, durations, ids)
        edges = np.linspace(0, int(ends[-1]), steps + 1).astype(np.int64)
        builder.add_steps(core, range(steps), edges[:-1], edges[1:])
    builder.write(path)
    builder.close()
    return time.perf_counter() - began


def server(path: Path) -> None:
    """Times of what the server computes, without Django."""
    trace = Trace(path)
    tracks = trace.tracks_of([OPS])
    print(f"event store: {trace.event_count:,} events, {trace.size_bytes / 1e6:.1f} MB")
    _, starts, ends = trace.steps(0)
    t0, t1 = int(starts[2]), int(ends[2])
    views = (("whole profile", trace.span[1]), ("one step", t1 - t0), ("1/100 of a step", (t1 - t0) // 100))
    for words, length in views:
        level = max(9, int(np.log2(length / 1160)) + 9)
        first, last = t0 >> level, (t0 + length) >> level
        took, sizes, packed = [], [], []
        for index in range(first, last + 1):
            began = time.perf_counter()
            data = tiles.tile(trace, tracks, level, index, trace.kinds)
            took.append(time.perf_counter() - began)
            sizes.append(len(data))
            packed.append(len(gzip.compress(data, 1)))
        print(
            f"tiles of {words}: {len(took)}, {statistics.median(took) * 1e3:.0f} ms each (median), "
            f"{sum(sizes) / 1e3:.0f} kB in all, {sum(packed) / 1e3:.0f} kB packed"
        )
    began = time.perf_counter()
    total = sums.sums(trace, t0, t1, trace.kinds, 8)
    print(f"sums of one step ({total.events:,} events): {(time.perf_counter() - began) * 1e3:.0f} ms")
    began = time.perf_counter()
    size = sum(len(piece) for piece in perfetto.gzipped(perfetto.events(trace)))
    print(f"Perfetto export: {time.perf_counter() - began:.1f} s, {size / 1e6:.1f} MB")
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB")


def browser(path: Path) -> None:
    """First paint and frames per second of the page itself."""
    with installation():
        from django.conf import settings
        from django.test import Client

        from accounts.services import first_administrator
        from experiments.models import Profile
        from experiments.services import runs, traces
        from experiments.services.shipped import load_into

        user = first_administrator()
        made = load_into(user.memberships.get().team)[0]
        run = runs.newest(made)
        assert run is not None
        from experiments.services import storage

        target = storage.absolute(traces.path_of(run))
        target.write_bytes(path.read_bytes())
        Profile.objects.filter(pk=run.profile_id).update(trace=traces.path_of(run), summary={"source_kind": "xplane"})
        client = Client()
        client.force_login(user)
        cookie = client.cookies[settings.SESSION_COOKIE_NAME]
        port = 18973
        process = subprocess.Popen(
            [sys.executable, "-m", "granian", "--interface", "asginl", "--host", "127.0.0.1", "--port", str(port),
             "--no-access-log", "--log-level", "warning", "asapweb.asgi:application"], env=dict(os.environ),
        )  # fmt: skip
        try:
            _in_browser(f"http://127.0.0.1:{port}", f"/experiments/{made.pk}/timeline/", cookie.key, cookie.value)
        finally:
            process.terminate()
            process.wait(timeout=20)


_FRAMES = """async does => {
  const group = [...asapTimelines.values()][0], times = [];
  let before = performance.now();
  const began = before;
  for (let frame = 0; performance.now() - began < 4000; frame++) {
    const by = (group.t1 - group.t0) * .006;
    if (does === "pan") group.see(group.t0 + by, group.t1 + by, true);
    else group.zoom(frame % 120 < 60 ? .97 : 1 / .97);
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    times.push(now - before); before = now;
  }
  times.sort((a, b) => a - b);
  const at = part => times[Math.floor(times.length * part)];
  const rate = times.length / ((before - began) / 1000);
  return { frames: rate, median: at(.5), p95: at(.95), worst: times[times.length - 1] };
}"""


def _in_browser(address: str, path: str, name: str, value: str) -> None:
    import shutil
    import urllib.request

    from playwright.sync_api import sync_playwright

    for _ in range(200):
        try:
            urllib.request.urlopen(address + "/sign-in/", timeout=5).close()
            break
        except OSError:
            time.sleep(0.2)
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        options: dict[str, Any] = {"args": ["--no-sandbox"], **({"executable_path": chromium} if chromium else {})}
        page = playwright.chromium.launch(**options).new_page(viewport={"width": 1280, "height": 900})
        page.context.add_cookies([{"name": name, "value": value, "url": address}])
        page.set_default_timeout(120_000)
        for words in ("first", "second"):
            began = time.perf_counter()
            page.goto(address + path, wait_until="commit")
            page.locator(".tln[data-state=ready]").wait_for()
            print(f"{words} visit: {time.perf_counter() - began:.2f} s from the request until every tile is drawn")
        for does in ("pan", "zoom"):
            page.evaluate("asapTimelines.values().next().value.zoom(.4)")
            page.wait_for_timeout(1500)
            timing = page.evaluate(_FRAMES, does)
            print(
                f"{does}: {timing['frames']:.0f} frames per second; a frame takes {timing['median']:.1f} ms (median), "
                f"{timing['p95']:.1f} ms (p95), {timing['worst']:.0f} ms (worst)"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cores", type=int, default=64)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--browser", action="store_true", help="also in headless Chromium")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="asap-timeline-", dir="/tmp") as folder:
        path = Path(folder) / "events.trace"
        print(f"written in {build(path, args.cores, args.events):.1f} s")
        server(path)
        if args.browser:
            browser(path)


if __name__ == "__main__":
    main()
