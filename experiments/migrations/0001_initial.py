import django.contrib.postgres.indexes
import django.contrib.postgres.search
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import experiments.fields


class Migration(migrations.Migration):
    initial = True
    replaces = [("experiments", "0002_saved_views")]
    dependencies = [
        ("accounts", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Experiment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=200)),
                (
                    "origin",
                    models.CharField(
                        choices=[
                            ("uploaded", "Uploaded"),
                            ("recorded", "Recorded by asap record"),
                            ("reconstructed", "Reconstructed from the paper"),
                            ("step_time", "Step time only"),
                        ],
                        default="uploaded",
                        max_length=20,
                    ),
                ),
                ("label", models.CharField(blank=True, max_length=200)),
                ("config", experiments.fields.OrderedJSONField(blank=True, null=True)),
                ("config_warnings", models.JSONField(blank=True, default=list)),
                ("config_draft", experiments.fields.OrderedJSONField(blank=True, null=True)),
                ("config_errors", models.JSONField(blank=True, default=dict)),
                ("sample", models.CharField(blank=True, max_length=60)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("uploaded", "Uploaded"),
                            ("ingesting", "Ingesting"),
                            ("configuring", "Needs configuration"),
                            ("diagnosing", "Diagnosing"),
                            ("proposing", "Proposing"),
                            ("checking", "Checking"),
                            ("ready", "Ready"),
                            ("failed", "Failed"),
                        ],
                        db_index=True,
                        default="uploaded",
                        max_length=20,
                    ),
                ),
                ("chip", models.CharField(blank=True, max_length=40)),
                ("chips", models.PositiveIntegerField(blank=True, null=True)),
                ("model_name", models.CharField(blank=True, max_length=100)),
                ("mesh", experiments.fields.OrderedJSONField(blank=True, null=True)),
                ("step_time_s", models.FloatField(blank=True, null=True)),
                ("bottleneck", models.CharField(blank=True, max_length=20)),
                ("best_speedup", models.FloatField(blank=True, null=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="experiments", to="accounts.team"
                    ),
                ),
                (
                    "review",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("", "No proposals"),
                            ("open", "Needs review"),
                            ("approved", "Approved"),
                            ("rejected", "Rejected"),
                        ],
                        default="",
                        max_length=20,
                    ),
                ),
                ("config_kept", models.JSONField(blank=True, default=list)),
            ],
            options={
                "ordering": ["-created_at", "-pk"],
                "indexes": [
                    models.Index(fields=["team", "-created_at"], name="experiment_by_team"),
                    models.Index(fields=["team", "-updated_at", "-id"], name="experiment_by_update"),
                    models.Index(
                        fields=["team", "chip", "bottleneck", "state", "review", "sample"], name="experiment_facets"
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("sample", ""), _negated=True),
                        fields=("team", "sample"),
                        name="one_sample_per_team",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Profile",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("data", models.CharField(blank=True, max_length=300)),
                ("summary", models.JSONField(blank=True, default=dict)),
                ("step_time_s", models.FloatField(blank=True, null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("ingested_at", models.DateTimeField(blank=True, null=True)),
                (
                    "experiment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="profiles",
                        to="experiments.experiment",
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.team"
                    ),
                ),
                ("excluded", models.JSONField(blank=True, default=list)),
                ("trace", models.CharField(blank=True, max_length=300, null=True)),
            ],
            options={
                "ordering": ["pk"],
            },
        ),
        migrations.CreateModel(
            name="ProfileFile",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=255)),
                ("path", models.CharField(max_length=300)),
                ("size_bytes", models.BigIntegerField()),
                ("sha256", models.CharField(max_length=64)),
                ("included", models.BooleanField(default=True)),
                (
                    "profile",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="files", to="experiments.profile"
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
            },
        ),
        migrations.CreateModel(
            name="Run",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("uploaded", "Uploaded"),
                            ("ingesting", "Ingesting"),
                            ("configuring", "Needs configuration"),
                            ("diagnosing", "Diagnosing"),
                            ("proposing", "Proposing"),
                            ("checking", "Checking"),
                            ("ready", "Ready"),
                            ("failed", "Failed"),
                        ],
                        default="uploaded",
                        max_length=20,
                    ),
                ),
                ("failed_at", models.CharField(blank=True, max_length=20)),
                ("reason", models.TextField(blank=True)),
                ("worker", models.CharField(blank=True, max_length=100)),
                ("heartbeat_at", models.DateTimeField(blank=True, null=True)),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                (
                    "experiment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="runs", to="experiments.experiment"
                    ),
                ),
                (
                    "profile",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="runs", to="experiments.profile"
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.team"
                    ),
                ),
                ("failure", models.JSONField(blank=True, default=dict)),
            ],
            options={
                "ordering": ["-pk"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("status__in", ["ready", "failed", "configuring"]), _negated=True),
                        fields=["heartbeat_at"],
                        name="run_unfinished",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Event",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=30)),
                ("actor", models.CharField(max_length=30)),
                ("data", experiments.fields.OrderedJSONField(blank=True, default=dict)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("duration_s", models.FloatField(blank=True, null=True)),
                ("tokens", models.PositiveIntegerField(blank=True, null=True)),
                ("cost_usd", models.FloatField(blank=True, null=True)),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.team"
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "experiment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="events", to="experiments.experiment"
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="events",
                        to="experiments.run",
                    ),
                ),
                ("brief", experiments.fields.OrderedJSONField(blank=True, null=True)),
                ("message", models.PositiveBigIntegerField(blank=True, null=True)),
                ("model", models.CharField(blank=True, max_length=120)),
                ("removed_at", models.DateTimeField(blank=True, null=True)),
                ("size_bytes", models.PositiveIntegerField(blank=True, null=True)),
                ("thread", models.PositiveBigIntegerField(blank=True, null=True)),
                ("words", django.contrib.postgres.search.SearchVectorField(null=True)),
            ],
            options={
                "ordering": ["pk"],
                "indexes": [
                    models.Index(fields=["experiment", "id"], name="event_stream"),
                    models.Index(fields=["experiment", "kind", "id"], name="event_by_kind"),
                    models.Index(
                        condition=models.Q(("thread__isnull", False)),
                        fields=["experiment", "thread", "id"],
                        name="event_by_thread",
                    ),
                    models.Index(
                        condition=models.Q(
                            ("kind__in", ("model_request", "model_response", "tool_call", "tool_result", "complaint")),
                            ("removed_at", None),
                        ),
                        fields=["team", "created_at"],
                        name="event_payloads",
                    ),
                    django.contrib.postgres.indexes.GinIndex(fields=["words"], name="event_words"),
                ],
            },
        ),
        migrations.CreateModel(
            name="ViewerLink",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("session_key", models.CharField(max_length=40)),
                ("token_sha256", models.CharField(max_length=64, unique=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "profile",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="viewer_links",
                        to="experiments.profile",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="SavedView",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=60)),
                ("query", models.TextField(blank=True)),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.team"
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
                "constraints": [models.UniqueConstraint(fields=("team", "name"), name="one_view_of_a_name")],
            },
        ),
    ]
