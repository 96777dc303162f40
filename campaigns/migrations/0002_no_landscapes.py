from django.db import migrations, models

_ENDED = """
    update campaigns_campaign set status = 'cancelled', finished_at = now(),
        reason = 'Recorded landscapes are no backend any more.'
    where backend = 'recorded' and status in ('running', 'paused')
"""


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0001_initial")]

    operations = [
        migrations.RunSQL(_ENDED, migrations.RunSQL.noop),
        migrations.RemoveField("campaign", "landscape"),
        migrations.AlterField(
            "campaign",
            "backend",
            models.CharField(
                choices=[
                    ("local", "Devices of this machine"),
                    ("cluster", "The team's cluster"),
                    ("compiled", "Compile check (predicted step time, compiled memory)"),
                    ("modelled", "Performance model (runs nothing)"),
                ],
                default="modelled",
                max_length=20,
                verbose_name="Run trials on",
            ),
        ),
    ]
