import django.db.models.deletion
from django.db import migrations, models

import experiments.fields


class Migration(migrations.Migration):
    initial = True
    replaces = [("diagnosis", "0004_diagnosis_newest")]
    dependencies = [
        ("accounts", "0001_initial"),
        ("experiments", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="DiagnosisRecord",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("bottleneck", models.CharField(max_length=20)),
                ("confidence", models.FloatField()),
                ("data", experiments.fields.OrderedJSONField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "run",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="diagnosis", to="experiments.run"
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.team"
                    ),
                ),
                ("modules", experiments.fields.OrderedJSONField(blank=True, default=dict)),
            ],
            options={
                "indexes": [models.Index(fields=["team", "-run"], include=("id",), name="diagnosis_newest")],
            },
        ),
        migrations.CreateModel(
            name="OpRow",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("rank", models.PositiveIntegerField()),
                ("name", models.TextField()),
                ("key", models.TextField()),
                ("category", models.TextField()),
                ("mesh_axis", models.CharField(blank=True, max_length=200)),
                ("resource", models.CharField(blank=True, max_length=20)),
                ("bound_by", models.CharField(blank=True, max_length=40)),
                ("module", models.CharField(blank=True, max_length=100)),
                ("time_share", models.FloatField()),
                ("time_s", models.FloatField(null=True)),
                ("occurrences", models.PositiveBigIntegerField()),
                ("roofline_efficiency", models.FloatField(null=True)),
                ("data", models.JSONField()),
                (
                    "diagnosis",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="ops", to="diagnosis.diagnosisrecord"
                    ),
                ),
                ("source", models.TextField(blank=True, default="")),
                ("path", models.TextField(blank=True, default="")),
                ("scope", models.TextField(blank=True, default="")),
                ("collective", models.TextField(blank=True, default="")),
                ("phase", models.TextField(blank=True, default="")),
            ],
            options={
                "ordering": ["rank"],
                "indexes": [
                    models.Index(fields=["diagnosis", "rank"], name="op_by_rank"),
                    models.Index(fields=["diagnosis", "category"], name="op_by_category"),
                ],
            },
        ),
    ]
