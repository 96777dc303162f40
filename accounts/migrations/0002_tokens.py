import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    replaces = [("accounts", "0003_confinement")]
    dependencies = [
        ("accounts", "0001_initial"),
        migrations.swappable_dependency(settings.KNOX_TOKEN_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="TokenConfinement",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "membership",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="accounts.membership",
                    ),
                ),
                (
                    "token",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="confinement",
                        to=settings.KNOX_TOKEN_MODEL,
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="TokenScope",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("scope", models.CharField(db_index=True, max_length=60)),
                ("label", models.CharField(max_length=100)),
                (
                    "token",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="scoped", to=settings.KNOX_TOKEN_MODEL
                    ),
                ),
            ],
        ),
    ]
