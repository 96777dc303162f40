"""A campaign whose trials run on a real Slurm, as Debian ships it."""

from __future__ import annotations

import sys

import pytest

from campaigns.models import Campaign, CampaignStatus
from campaigns.services import campaigns
from launches.services import choices
from tests.campaigns.cluster import settle
from tests.launches.slurm_cluster import Cluster, missing

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing() or "Slurm is here"), pytest.mark.slow,
    pytest.mark.django_db(transaction=True), pytest.mark.timeout(400),
]  # fmt: skip

#: In the place of `asap trial`, which compiles for long: what it would print of a step of two seconds.
ASAP = """#!{python}
import json
print(json.dumps({{"step_times_s": [9.0] + [2.0] * 11, "warm_up": 1, "peak_memory_bytes": 4000000000}}))
"""


def test_trials_run_as_slurm_jobs_and_report(people, ready, live_server, settings, tmp_path, monkeypatch):
    monkeypatch.setattr("celery.app.base.Celery.send_task", lambda self, name, args, **more: None)
    (tmp_path / "slurm").mkdir()
    cluster = Cluster(tmp_path / "slurm")
    try:
        monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
        tools = tmp_path / "tools"
        tools.mkdir()
        (tools / "asap").write_text(ASAP.format(python=sys.executable))
        (tools / "asap").chmod(0o755)
        operator = tmp_path / "launch.toml"
        operator.write_text(
            f'[slurm]\nfolder = "{tmp_path}/shared"\nshared = true\nallow = {{partition = ["train"]}}\n'
        )
        settings.LAUNCH_CONFIG = str(operator)
        setup = f"export PATH={tools}:$PATH ASAP_SPOOL={tmp_path}/spool"
        choices.save(people.team, people.administrator, "slurm", {"setup": setup, "partition": "train"})
        asked = Campaign(backend="cluster", tool="trial", steps=12, most_trials=2, server=live_server.url)
        campaign = settle(campaigns.begin(ready.experiment, people.engineer, asked))
    finally:
        cluster.stop()
    assert campaign.status == CampaignStatus.DONE
    trials = list(campaign.trials.all())
    assert [(trial.status, trial.step_time_s, trial.peak_bytes) for trial in trials] == [("done", 2.0, 4e9)] * 3
    assert all(trial.mfu is None for trial in trials)  # on whatever devices the node has
    assert len({trial.cluster_run.job for trial in trials}) == 3
