"""How fast the server answers with 1,000 experiments stored: p50 and p95 of every page and list, in milliseconds.

The pages of a diagnosis are measured again on one of 20,000 distinct ops, and so is a comparison of two such.
`python -m bench.pages [--experiments 1000] [--requests 40]`.  Uses a PostgreSQL of its own in a temporary folder, one
shipped profile taken the whole way, and copies of its rows; the browser's share of the time is not in it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from bench.retrieval import database

#: The aim of the design for a page with 1,000 experiments stored.
AIM_P95_MS = 100.0
#: The same for the pages of a diagnosis with 20,000 ops.
AIM_LARGE_P95_MS = 150.0
SAMPLE = "asap-experiment-3"


def fill(count: int) -> Any:
    """One shipped profile diagnosed and proposed for, and `count` − 1 copies of all its rows; the experiment."""
    from django.db import connection

    from accounts.services import first_administrator
    from diagnosis.models import DiagnosisRecord, OpRow
    from experiments.models import Event, Experiment, Profile, Run
    from experiments.services import runs
    from experiments.services.shipped import load_into
    from proposals.models import PlanRecord, Proposal
    from proposals.services import coordinator

    team = first_administrator().memberships.get().team
    load_into(team)
    experiment = Experiment.objects.get(sample=SAMPLE)
    run = runs.newest(experiment)
    assert run is not None
    coordinator.advance(run.pk)
    Experiment.objects.exclude(pk=experiment.pk).delete()
    run.refresh_from_db()
    if run.status != "ready":
        raise SystemExit(f"the sample did not become ready: {run.reason}")

    def copies(model: Any, rows: list[Any], **changes: Callable[[Any, int], Any]) -> list[Any]:
        made = []
        for number in range(1, count):
            for row in rows:
                values = {f.attname: getattr(row, f.attname) for f in model._meta.concrete_fields if f.name != "id"}
                values |= {name: change(row, number) for name, change in changes.items()}
                made.append(model(**values))
        return model.objects.bulk_create(made, batch_size=1000)

    experiment.refresh_from_db()
    experiments = copies(
        Experiment, [experiment], name=lambda row, n: f"{row.name} {n}", sample=lambda row, n: "", created_at=_at
    )
    profiles = copies(Profile, [run.profile], experiment_id=lambda row, n: experiments[n - 1].pk)
    copied_runs = copies(
        Run,
        [run],
        experiment_id=lambda row, n: experiments[n - 1].pk,
        profile_id=lambda row, n: profiles[n - 1].pk,
    )
    diagnosed = DiagnosisRecord.objects.get(run=run)
    diagnoses = copies(DiagnosisRecord, [diagnosed], run_id=lambda row, n: copied_runs[n - 1].pk)
    copies(OpRow, list(diagnosed.ops.all()), diagnosis_id=lambda row, n: diagnoses[n - 1].pk)
    record = PlanRecord.objects.get(run=run)
    records = copies(PlanRecord, [record], run_id=lambda row, n: copied_runs[n - 1].pk)
    copies(
        Proposal,
        list(record.proposals.all()),
        plan_id=lambda row, n: records[n - 1].pk,
        experiment_id=lambda row, n: experiments[n - 1].pk,
    )
    copies(
        Event,
        list(Event.objects.filter(experiment=experiment)),
        experiment_id=lambda row, n: experiments[n - 1].pk,
        run_id=lambda row, n: copied_runs[n - 1].pk,
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    return experiment


def _at(row: Any, number: int) -> Any:
    from datetime import timedelta

    return row.created_at - timedelta(minutes=number)


def addresses(experiment: Any) -> dict[str, str]:
    pk = experiment.pk
    return {
        "home": "/",
        "experiments": "/experiments/",
        "experiments, searched": "/experiments/?q=communication&sort=-updated",
        "experiments, page 30": "/experiments/?page=30",
        "diagnosis": f"/experiments/{pk}/",
        "proposals": f"/experiments/{pk}/proposals/",
        "memory": f"/experiments/{pk}/memory/",
        "history": "/history/",
        "API: experiments": "/api/experiments/?limit=50",
        "API: diagnosis": f"/api/diagnoses/?experiment={pk}",
        "API: ops": f"/api/diagnoses/{experiment.runs.first().diagnosis.pk}/ops/?sort=-time_share&q=fusion",
    }


def large(like: Any, number: int) -> Any:
    """An experiment with a diagnosis of 20,000 distinct ops, in the team of `like`; its run."""
    import dataclasses

    from bench import diagnose as case
    from diagnosis import services
    from diagnosis.analyzer import diagnose
    from experiments.models import Experiment, Profile, Run, RunStatus
    from experiments.services.profiles import summary
    from experiments.step_profile import Timeline

    cores, steps = 64, 15  # as many cells as a timeline keeps
    value = dataclasses.replace(
        case.profile(),
        timeline=Timeline(
            tuple(f"TPU:{core}" for core in range(cores)),
            tuple(f"host-{core // 8}" for core in range(cores)),
            tuple(range(steps)),
            ((1.0,) * steps,) * cores,
            {part: ((share,) * steps,) * cores for part, share in (("compute", 0.8), ("collective", 0.2))},
            256,
            steps,
        ),
    )
    if number:
        # Another compilation: other fusion numbers, and a third of the ops a little slower.
        ops = tuple(
            dataclasses.replace(op, name=f"{op.name}7", time_share=op.time_share * (1.3 if n % 3 else 1.0))
            for n, op in enumerate(value.ops)
        )
        value = dataclasses.replace(value, ops=ops)
    experiment = Experiment.objects.create(
        team=like.team, name=f"20,000 ops, {number}", state=RunStatus.READY, config=like.config, mesh=like.mesh
    )
    profile = Profile.objects.create(team=like.team, experiment=experiment, summary=summary(value))
    run = Run.objects.create(team=like.team, experiment=experiment, profile=profile, status=RunStatus.READY)
    services.store(run, diagnose(value, case.config()))
    return run


def large_addresses(one: Any, two: Any) -> dict[str, str]:
    base, pair = f"/experiments/{one.experiment_id}", f"a={one.profile_id}&b={two.profile_id}"
    return {
        "diagnosis": f"{base}/",
        "report": f"{base}/report/",
        "report.md": f"{base}/report.md",
        "ops, page 400": f"{base}/ops/?sort=name&page=400",
        "ops, searched": f"{base}/ops/?q=layer_7/attention",
        "ops, of a module path": f"{base}/ops/?scope=step/layer_%23/mlp",
        "ops by source line": f"{base}/ops/?group=source&page=3",
        "ops by framework path": f"{base}/ops/?group=scope",
        "op": f"{base}/ops/17/",
        "evidence": f"{base}/evidence/kpi-communication/",
        "compare": f"/compare/?{pair}",
        "compare, ops (kept)": f"/compare/ops/?{pair}&page=4",
    }


def report(client: Any, addresses_: dict[str, str], requests: int, aim_ms: float) -> None:
    worst = 0.0
    for name, address in addresses_.items():
        times = measure(client, address, requests)
        p50, p95 = statistics.median(times), statistics.quantiles(times, n=20)[-1]
        worst = max(worst, p95)
        print(f"  {name:24} p50 {p50:7.1f}   p95 {p95:7.1f}")
    print(f"  slowest p95 {worst:.1f} ms; aim {aim_ms:.0f} ms")


def measure(client: Any, address: str, requests: int) -> list[float]:
    """Milliseconds of each request, the first two (templates compile, caches fill) left out."""
    times = []
    for number in range(requests + 2):
        began = time.perf_counter()
        response = client.get(address)
        took = (time.perf_counter() - began) * 1e3
        if response.status_code != 200:
            raise SystemExit(f"{address} answered {response.status_code}")
        if number >= 2:
            times.append(took)
    return times


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Server time of pages with many experiments stored.")
    parser.add_argument("--experiments", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=40)
    options = parser.parse_args(arguments)
    with database():
        from django.test import Client

        from accounts.services import first_administrator

        experiment = fill(options.experiments)
        client = Client(SERVER_NAME="localhost")
        client.force_login(first_administrator())
        print(f"{options.experiments:,} experiments; server time in ms over {options.requests} requests")
        report(client, addresses(experiment), options.requests, AIM_P95_MS)
        one, two = large(experiment, 0), large(experiment, 1)
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
        began = time.perf_counter()
        client.get(f"/compare/ops/?a={one.profile_id}&b={two.profile_id}")
        print(f"20,000 ops; two such compared for the first time in {time.perf_counter() - began:.1f} s")
        report(client, large_addresses(one, two), options.requests, AIM_LARGE_P95_MS)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
