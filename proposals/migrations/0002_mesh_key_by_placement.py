"""Write `mesh_key` as `perfmodel.config.placement_text` does: the order of axes counts, notation does not."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from perfmodel.config import placement_text


def rewrite(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    proposals = apps.get_model("proposals", "Proposal").objects.select_related("experiment")
    for row in proposals.only("data", "mesh_key", "experiment__config").iterator(chunk_size=200):
        roles = ((row.experiment.config or {}).get("mesh") or {}).get("axis_roles") or {}
        row.mesh_key = placement_text(row.data.get("mesh") or {}, roles)
        row.save(update_fields=["mesh_key"])


class Migration(migrations.Migration):
    dependencies = [("proposals", "0001_initial")]

    operations = [migrations.RunPython(rewrite, migrations.RunPython.noop, elidable=True)]
