"""Where the events of a profile are kept; null for those that were read before events were."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("experiments", "0008_config_kept")]

    operations = [
        migrations.AddField(
            model_name="profile",
            name="trace",
            field=models.CharField(blank=True, max_length=300, null=True),
        ),
    ]
