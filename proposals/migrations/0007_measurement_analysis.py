from django.db import migrations

import experiments.fields


class Migration(migrations.Migration):
    dependencies = [("proposals", "0006_proposal_list_indexes")]

    operations = [
        migrations.AddField(
            model_name="measurement",
            name="analysis",
            field=experiments.fields.OrderedJSONField(blank=True, default=dict),
        ),
    ]
