from __future__ import annotations

from django.db import migrations

from history.migrations._counts import CREATE, DROP


class Migration(migrations.Migration):
    dependencies = [("history", "0001_initial")]
    operations = [migrations.RunSQL(DROP, CREATE), migrations.DeleteModel("FacetCount")]
