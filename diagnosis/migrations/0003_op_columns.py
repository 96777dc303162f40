"""What pages group, search and filter ops by, as columns: reading 20,000 JSON values for it takes a second."""

from django.db import migrations, models

import experiments.fields

FILL = """
UPDATE diagnosis_oprow SET source = coalesce(data->>'source', ''), path = coalesce(data->>'op_name', ''),
  collective = coalesce(data->>'collective', ''), phase = coalesce(data->>'phase', '')
"""


def fill_trees(apps, schema_editor):
    from diagnosis import module_tree

    record_model, row_model = (apps.get_model("diagnosis", name) for name in ("DiagnosisRecord", "OpRow"))
    for record in record_model.objects.defer("data").iterator():
        rows, shown = [], []
        for row in row_model.objects.filter(diagnosis=record).defer("data"):
            row.scope = module_tree.scope(row.path)
            shown.append(row)
            rows.append(module_tree.Row(row.scope, row.time_s, row.time_share, row.phase, row.resource))
        row_model.objects.bulk_update(shown, ["scope"], batch_size=500)
        record_model.objects.filter(pk=record.pk).update(modules=module_tree.build(rows))


class Migration(migrations.Migration):
    dependencies = [("diagnosis", "0002_ordered_json")]

    operations = [
        *(
            migrations.AddField("oprow", name, models.TextField(blank=True, default=""))
            for name in ("source", "path", "scope", "collective", "phase")
        ),
        migrations.AddField(
            "diagnosisrecord", "modules", experiments.fields.OrderedJSONField(blank=True, default=dict)
        ),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.RunPython(fill_trees, migrations.RunPython.noop),
    ]
