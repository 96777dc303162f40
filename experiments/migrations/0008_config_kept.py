from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("experiments", "0007_step_time_origin")]

    operations = [
        migrations.AddField(
            model_name="experiment",
            name="config_kept",
            field=models.JSONField(blank=True, default=list),
        ),
    ]
