from django.db import migrations

_ENDED = """
    update history_recordimport set finished_at = now(),
        reason = 'It was not imported before an upgrade; upload it again.'
    where state = 'checked'
"""


class Migration(migrations.Migration):
    dependencies = [("history", "0002_imports_at_once")]

    operations = [
        migrations.RunSQL(_ENDED, migrations.RunSQL.noop),
        migrations.RemoveField("recordimport", "checked"),
        migrations.RemoveField("recordimport", "state"),
    ]
