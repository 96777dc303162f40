"""Every launch names its experiment: one of a configuration has no proposal that could."""

import django.db.models.deletion
from django.db import migrations, models


def fill(apps, schema_editor):
    launches, proposals = (apps.get_model(*name) for name in (("launches", "Launch"), ("proposals", "Proposal")))
    own = proposals.objects.filter(pk=models.OuterRef("proposal_id")).values("experiment_id")
    launches.objects.update(experiment_id=models.Subquery(own))


class Migration(migrations.Migration):
    dependencies = [("launches", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="launch",
            name="experiment",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="experiments.experiment"
            ),
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
