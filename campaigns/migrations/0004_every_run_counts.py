from __future__ import annotations

from typing import Any

from django.db import migrations, models


def of_the_only_run(apps: Any, schema_editor: Any) -> None:
    """What is known of trials that have ended: their newest run."""
    trials = apps.get_model("campaigns", "Trial").objects
    ended = trials.filter(started_at__isnull=False, finished_at__isnull=False).only("started_at", "finished_at")
    known = []
    for trial in ended.iterator():
        trial.ran_s = max(0.0, (trial.finished_at - trial.started_at).total_seconds())
        known.append(trial)
    trials.bulk_update(known, ["ran_s"], batch_size=500)


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0003_cluster")]

    operations = [
        migrations.AddField("trial", "ran_s", models.FloatField(default=0.0)),
        migrations.RunPython(of_the_only_run, migrations.RunPython.noop, elidable=True),
    ]
