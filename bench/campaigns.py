"""Tuning campaigns: what a trial costs beside its run, and a long one through workers that are killed.

`python -m bench.campaigns [TRIALS [WORKERS]]`: a recorded landscape of as many configurations as trials (10,000), run
by worker processes (4) on a database of its own.  Twelve times on the way one of them is killed and replaced.  At the
end every trial has exactly one result.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import Any

# As the workers of the application have it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

#: Workers that are killed on the way.
KILLS = 12
CONFIG: dict[str, Any] = {
    "name": "llama3.1-70b on 512 h100",
    "hardware": {"chip": "h100", "topology": [8, 64], "slices": 1},
    "mesh": {"ici": {"pipeline": 4, "data": 32, "model": 4}},
    "model": {"name": "llama3.1-70b"},
    "training": {
        "global_batch": 1024, "seq_len": 4096, "micro_batch": 1, "grad_accum": 32, "remat": "full",
        "weight_sharding": "zero1",
    },
}  # fmt: skip


def overhead() -> None:
    """Time of an iteration by trials in the pool, on a space of the most candidates."""
    from campaigns.engine.loop import iterate
    from campaigns.engine.pool import Pool, Trial
    from campaigns.engine.space import searched
    from perfmodel.config_file import parse_config

    begun = time.perf_counter()
    space = searched(parse_config(CONFIG)[0])
    c = space.candidates
    print(f"space: {space.considered:,} priced, {len(c):,} kept in {time.perf_counter() - begun:.2f} s")
    draw = np.random.default_rng(0)
    for count in (1, 10, 100, 1000):
        rows = draw.choice(len(c), min(count, len(c) // 2), replace=False)
        pool = Pool(tuple(Trial(int(row), "done", float(c.time_s[row] * draw.normal(1.1, 0.05))) for row in rows))
        begun = time.perf_counter()
        iterate(c, pool, least_gain=0.0)
        print(f"iteration with {len(pool):>5,} trials: {1e3 * (time.perf_counter() - begun):7.1f} ms")


def landscape(count: int) -> list[dict[str, Any]]:
    """As many legal configurations with times of their own, some of which failed."""
    from campaigns.engine.space import settings_of
    from perfmodel import legality
    from perfmodel.config_file import parse_config
    from proposals.constraints import Constraints
    from proposals.proposer.changes import further_changes
    from proposals.proposer.space import all_with, enumerate_meshes

    config = parse_config(CONFIG)[0]
    changes = further_changes(config, Constraints(keep_batch=True), 4)
    candidates = all_with(enumerate_meshes(config, config), config, changes)
    draw, rows = random.Random(0), []
    for row in draw.sample(range(len(candidates)), len(candidates)):
        each = candidates.configured(row)
        if any(violation.rule != "memory" for violation in legality.check(each)):
            continue
        kept = ("micro_batch", "grad_accum", "remat", "weight_sharding", "virtual_stages")
        told = {k: v for k, v in settings_of(each).items() if v is not None and k in kept}
        run: dict[str, Any] = {"mesh": each.mesh.to_json(), "changes": told}
        if draw.random() < 0.1:
            run["log"] = "Mosaic failed to compile TPU kernel"
        else:
            run |= {"step_time_s": draw.lognormvariate(2.0, 0.5), "peak_memory_bytes": 5e10}
        rows.append(run)
        if len(rows) == count:
            break
    return rows


def long_one(trials: int, workers: int) -> None:
    """Prints how long it took and what became of every trial; raises AssertionError where one was lost or doubled."""
    from campaigns.models import Campaign, Trial

    campaign = begin(trials, workers)
    begun, killed = time.perf_counter(), 0
    ended = Trial.objects.filter(campaign=campaign, status__in=("done", "failed"))
    processes = [_worker(campaign, trials) for _ in range(workers)]
    draw = random.Random(1)
    try:
        while Campaign.objects.filter(pk=campaign, status="running").exists():
            time.sleep(0.2)
            if ended.count() < trials * (killed + 1) / (KILLS + 1):
                continue
            victim = draw.randrange(workers)
            processes[victim].send_signal(signal.SIGKILL)
            processes[victim].wait()
            processes[victim] = _worker(campaign, trials)
            killed += 1
    finally:
        for process in processes:
            process.kill()
            process.wait()
    took = time.perf_counter() - begun
    row = Campaign.objects.get(pk=campaign)
    rows = list(row.trials.values_list("number", "key", "status", "runs"))
    states = Counter(status for _, _, status, _ in rows)
    assert sorted(number for number, *_ in rows) == list(range(1, len(rows) + 1)), "a trial was lost"
    assert len({key for _, key, *_ in rows}) == len(rows), "a configuration was planned twice"
    assert all(runs == 1 for *_, runs in rows), "a trial has two results"
    assert not set(states) - {"done", "failed"}, "a trial has no result"
    print(
        f"{len(rows):,} trials through {workers} workers, {killed} killed: {took:.0f} s, "
        f"{1e3 * took / len(rows):.1f} ms a trial; {states['done']:,} ran, "
        f"{states['failed']:,} failed; none lost, none doubled ({row.reason})"
    )


def begin(trials: int, workers: int) -> int:
    """A campaign that goes through a whole landscape: failures forbid nothing else, and it does not stop early."""
    from accounts.models import Team
    from campaigns.models import Campaign
    from experiments.models import Experiment

    team = Team.objects.create(name="Bench")
    experiment = Experiment.objects.create(team=team, name="bench", config=CONFIG)
    made = Campaign.objects.create(
        team=team, experiment=experiment, backend="modelled", config=CONFIG,
        parallel=workers, most_trials=trials, to_budget=True,
    )  # fmt: skip
    return made.pk


def _worker(campaign: int, trials: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "bench.campaigns", "worker", str(campaign), str(trials)])


def work(pk: int, trials: int) -> None:
    """What a Celery worker does with the messages of a campaign, without the broker: take what nobody has."""
    from campaigns.engine.space import Space
    from campaigns.models import Campaign
    from campaigns.services import campaigns, planning, running, spaces
    from evaluation.campaigns.landscape import listed, read_landscape
    from jobs.workers import is_known_dead
    from perfmodel.config_file import parse_config

    config = parse_config(CONFIG)[0]
    runs = read_landscape(config, landscape(trials))
    field = Space(config, listed(runs.configs), 0, len(runs.configs), {})
    spaces.space_of = lambda _: field
    running.backend_of = lambda _: runs

    while Campaign.objects.filter(pk=pk, status="running").exists():
        rows = list(planning.TRIALS.model.objects.filter(campaign=pk, status__in=planning.TRIALS.open)[:200])
        free = [row.pk for row in rows if not row.worker or is_known_dead(row.worker)]
        for trial in random.sample(free, min(20, len(free))):
            running.run(trial)
        if not free:
            campaigns.plan(pk)
            time.sleep(0.05)


def main(arguments: list[str]) -> None:
    from bench.retrieval import database

    if arguments[:1] == ["worker"]:
        import django

        django.setup()
        work(int(arguments[1]), int(arguments[2]))
        return
    overhead()
    trials, workers = (int(arguments[n]) if len(arguments) > n else most for n, most in enumerate((10_000, 4)))
    with database():
        long_one(trials, workers)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "asapweb.settings")
    main(sys.argv[1:])
