"""The mesh of every proposal as one word, so that proposals of a mesh are found in an index."""

from typing import Any

from django.db import migrations, models

from proposals.constraints import mesh_key

AT_ONCE = 1000


def fill(apps: Any, schema_editor: Any) -> None:
    """Reads the mesh out of what each proposal holds."""
    model = apps.get_model("proposals", "Proposal")
    rows = []
    for pk, mesh in model.objects.values_list("pk", "data__mesh").order_by("pk").iterator(chunk_size=AT_ONCE):
        rows.append(model(pk=pk, mesh_key=mesh_key(mesh or {})))
        if len(rows) == AT_ONCE:
            model.objects.bulk_update(rows, ["mesh_key"])
            rows = []
    model.objects.bulk_update(rows, ["mesh_key"])


class Migration(migrations.Migration):
    dependencies = [("proposals", "0007_measurement_analysis")]

    operations = [
        migrations.AddField("proposal", "mesh_key", models.TextField(default=""), preserve_default=False),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
