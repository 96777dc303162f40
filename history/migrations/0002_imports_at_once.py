from django.db import migrations, models

_ENDED = """
    update history_recordimport set state = 'failed', finished_at = now(),
        reason = 'It was not imported before an upgrade; upload it again.'
    where state in ('checking', 'checked', 'importing')
"""


class Migration(migrations.Migration):
    dependencies = [("history", "0001_initial")]

    operations = [
        migrations.RunSQL(_ENDED, migrations.RunSQL.noop),
        *(
            migrations.RemoveField("recordimport", name)
            for name in ("attempts", "heartbeat_at", "path", "straight", "worker")
        ),
        migrations.AddField("recordimport", "checked", models.JSONField(blank=True, default=list)),
        migrations.AlterField(
            "recordimport",
            "state",
            models.CharField(
                choices=[("checked", "Checked"), ("imported", "Imported"), ("failed", "Failed")],
                default="checked",
                max_length=20,
            ),
        ),
    ]
