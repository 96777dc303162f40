"""The whole loop on forced CPU devices, nothing faked: profile, proposals, both arms run, verdict, record.

Both arms are real training steps in processes of their own, started by the command backend and reported by
`asap_report.py` over HTTP.  Which of them is faster is the machine's affair: what is asserted is that the verdict is
what their times say, and that measurement and history use it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.services import runs, uploads
from experiments.trial import runner
from history.models import HistoryRecord
from launches.models import ArmRun
from launches.services import choices, launching
from perfmodel.config_file import parse_config
from proposals.models import Measurement
from proposals.services import coordinator, plans, regenerating, reviews
from tests.backend.factories import upload
from tests.xla import COMPILED_QUICKLY

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]

#: Tensor parallelism over all four devices: an all-reduce after every matmul pair.
CONFIG: dict[str, Any] = {
    "name": "a small decoder, tensor parallel",
    "hardware": {"chip": "v5e", "topology": [2, 2], "slices": 1},
    "mesh": {"ici": {"data": 1, "seq": 1, "model": 4}, "dcn": {}},
    "model": {"layers": 1, "d_model": 256, "d_ff": 512, "heads": 8, "kv_heads": 8, "head_dim": 32, "vocab": 1024},
    "training": {"global_batch": 16, "seq_len": 32, "precision": "bf16", "weight_sharding": "fsdp", "remat": "minimal"},
    "notes": "Recorded on forced CPU devices; chip and topology are placeholders.",
}
ROOT = Path(__file__).resolve().parents[2]


def analysed(experiment: Any) -> Any:
    run = runs.newest(experiment)
    coordinator.advance(run.pk)
    run.refresh_from_db()
    assert run.status == "ready", (run.status, run.failure, list(run.events.values_list("data", flat=True))[-3:])
    return run


def settle(launch: Any, within_s: float = 600.0) -> None:
    """What the workers and the clock do until every run has ended."""
    end = time.monotonic() + within_s
    while launch.closed_at is None:
        assert time.monotonic() < end, [(run.name, run.status, run.reason) for run in launch.runs.all()]
        waiting = [ArmRun.Status.QUEUED, ArmRun.Status.COLLECTING]
        for pk in launch.runs.filter(status__in=waiting).values_list("pk", flat=True):
            launching.advance(pk)
        launching.follow()
        launch.refresh_from_db()
        time.sleep(0.5)


def test_baseline_profile_proposal_both_arms_verdict_record(people, live_server, tmp_path, settings, monkeypatch):
    # Repeats run what the first of them compiled.
    variables = {
        "JAX_COMPILATION_CACHE_DIR": f"{tmp_path}/compiled",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "XLA_FLAGS": COMPILED_QUICKLY,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    config, _ = parse_config(CONFIG)
    baseline = runner.run(config, steps=3, folder=tmp_path / "baseline")
    assert baseline.failure is None
    (xplane,) = (tmp_path / "baseline").glob("plugins/profile/*/*.xplane.pb")
    files = [upload("baseline.xplane.pb", xplane.read_bytes())]
    experiment = uploads.receive(people.team, people.engineer, files, json.dumps(CONFIG), "baseline")
    assert analysed(experiment)
    # The reference step recomputes attention under every policy, so that a profile contradicts `none`.
    regenerating.make(regenerating.request(experiment, people.engineer, {"keep_remat": True}).pk)
    plan = plans.newest(experiment)
    assert plan is not None
    comparable = (item for item in plan.proposals.order_by("rank") if item.kind != "keep" and item.per == "per token")
    proposal = next(comparable)
    reviews.decide(proposal, people.reviewer, "approved")

    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "asap").write_text(f'#!/bin/sh\nexec {sys.executable} -c "from asapweb.cli import main; main()" "$@"\n')
    (tools / "asap").chmod(0o755)
    operator = tmp_path / "launch.toml"
    operator.write_text(
        f"[command.here]\nshared = true\nteam_lines = true\n"
        f'submit = "flock {tmp_path}/device bash {{script}}"\nbackground = true\n'
    )
    settings.LAUNCH_CONFIG = str(operator)
    setup = f"export PATH={tools}:$PATH PYTHONPATH={ROOT} ASAP_SPOOL={tmp_path}/spool "
    setup += " ".join(f"{name}='{value}'" for name, value in variables.items())
    choices.save(people.team, people.administrator, "command.here", {"setup": setup})
    launch = launching.launch(proposal, people.engineer, tool="trial", repeats=2, steps=10, server=live_server.url)
    settle(launch)

    ran = {arm: list(launch.runs.filter(arm=arm)) for arm in ("proposal", "control")}
    assert {run.status for arm in ran.values() for run in arm} == {"reported"}, [
        r.reason for a in ran.values() for r in a
    ]
    verdict = launch.judged
    by_hand = {arm: np.mean([np.log(run.median_step_s) for run in of]) for arm, of in ran.items()}
    assert all(
        len(run.report["step_times_s"]) == 12 and run.report["warm_up"] == 2 for of in ran.values() for run in of
    )
    work = launch_work(proposal)
    assert verdict.speedup == pytest.approx(float(np.exp(by_hand["control"] - by_hand["proposal"])) * work, rel=0.05)
    assert verdict.low < verdict.speedup < verdict.high
    said = {
        "adopt": verdict.low > 1,
        "reject": verdict.high < 1,
        "no_difference": verdict.low <= 1.01 and verdict.high >= 1,
    }
    assert said[verdict.outcome]

    first = next(run for run in ran["proposal"] if run.repeat == 1)
    assert first.peak_memory_bytes and first.experiment is not None
    analysed(first.experiment)
    made = Measurement.objects.get(proposal=proposal)
    assert made.status == "measured", made.reason
    assert made.speedup == pytest.approx(verdict.speedup)
    assert made.outcome == {"adopt": "faster", "reject": "slower", "no_difference": "no_change"}[verdict.outcome]
    record = HistoryRecord.objects.get(key=made.record)
    assert record.provenance == "measured" and record.outcome == made.outcome and verdict.sentence in record.effect
    page = people.client("viewer").get(f"/proposals/{proposal.pk}/launches/").content.decode()
    assert verdict.words in page


def launch_work(proposal: Any) -> float:
    """Tokens per step of the proposal over those of the baseline."""
    training = CONFIG["training"] | proposal.value.changes
    tokens = [given["global_batch"] * given["seq_len"] for given in (training, CONFIG["training"])]
    return float(tokens[0] / tokens[1])
