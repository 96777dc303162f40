"""Write the keys of trials as `campaigns.engine.space.key_of` does: the order of axes counts, notation does not."""

from dataclasses import replace

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from campaigns.engine.space import key_of
from perfmodel.config import ConfigError, Mesh
from perfmodel.config_file import parse_config


def rewrite(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    for campaign in apps.get_model("campaigns", "Campaign").objects.iterator():
        try:
            config, _ = parse_config(campaign.config or {})
        except ConfigError:
            continue
        for trial in campaign.trials.order_by("number"):
            mesh = Mesh(
                tuple(trial.mesh["ici"].items()), tuple(trial.mesh.get("dcn", {}).items()), config.mesh.axis_roles
            )
            settings = {name: tuple(v) if isinstance(v, list) else v for name, v in trial.training.items()}
            key = key_of(replace(config, mesh=mesh, training=replace(config.training, **settings)))
            if not campaign.trials.filter(key=key).exists():  # one of two that are the same keeps its own
                trial.key = key
                trial.save(update_fields=["key"])


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0001_initial")]

    operations = [migrations.RunPython(rewrite, migrations.RunPython.noop, elidable=True)]
