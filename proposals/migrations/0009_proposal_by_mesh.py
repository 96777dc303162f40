from django.db import migrations, models


class Migration(migrations.Migration):
    # Apart from the filling of the column: PostgreSQL makes no index in a transaction that changed the rows.
    dependencies = [("proposals", "0008_mesh_key")]

    operations = [
        migrations.AddIndex("proposal", models.Index(fields=["team", "status", "mesh_key"], name="proposal_by_mesh")),
    ]
