from django.db import migrations

import experiments.fields


class Migration(migrations.Migration):
    dependencies = [("experiments", "0004_review_state")]

    operations = [
        migrations.AlterField(
            model_name="event",
            name="data",
            field=experiments.fields.OrderedJSONField(blank=True, default=dict),
        ),
    ]
