import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import experiments.fields


class Migration(migrations.Migration):
    initial = True
    replaces = [("proposals", "0002_mesh_key_by_placement")]
    dependencies = [
        ("accounts", "0001_initial"),
        ("experiments", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="PlanRecord",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("data", experiments.fields.OrderedJSONField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="plans", to="experiments.run"
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.team"
                    ),
                ),
                ("config", experiments.fields.OrderedJSONField(blank=True, null=True)),
                ("constraints", experiments.fields.OrderedJSONField(blank=True, default=dict)),
                (
                    "created_by",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL
                    ),
                ),
                ("precedents", models.JSONField(blank=True, default=list)),
            ],
            options={
                "ordering": ["-pk"],
                "indexes": [models.Index(fields=["team", "-id"], name="plan_newest")],
            },
        ),
        migrations.CreateModel(
            name="Proposal",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("rank", models.PositiveSmallIntegerField()),
                ("kind", models.CharField(max_length=20)),
                ("title", models.CharField(max_length=200)),
                (
                    "status",
                    models.CharField(
                        choices=[("proposed", "Needs review"), ("approved", "Approved"), ("rejected", "Rejected")],
                        default="proposed",
                        max_length=20,
                    ),
                ),
                ("predicted_step_time_s", models.FloatField(null=True)),
                ("predicted_speedup", models.FloatField(null=True)),
                ("confidence", models.FloatField()),
                ("data", experiments.fields.OrderedJSONField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "experiment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="proposals",
                        to="experiments.experiment",
                    ),
                ),
                (
                    "plan",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="proposals", to="proposals.planrecord"
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.team"
                    ),
                ),
                (
                    "added_by",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL
                    ),
                ),
                ("mesh_key", models.TextField()),
            ],
            options={
                "ordering": ["-plan_id", "rank"],
                "constraints": [
                    models.UniqueConstraint(fields=("plan", "rank"), name="one_proposal_per_plan_and_rank")
                ],
                "indexes": [
                    models.Index(fields=["team", "status", "-id"], name="proposal_by_status"),
                    models.Index(fields=["team", "-plan", "rank"], include=("id",), name="proposal_newest"),
                    models.Index(fields=["team", "status", "mesh_key"], name="proposal_by_mesh"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Review",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "decision",
                    models.CharField(choices=[("approved", "Approved"), ("rejected", "Rejected")], max_length=20),
                ),
                ("comment", models.TextField(blank=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "author",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "proposal",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="review", to="proposals.proposal"
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
            },
        ),
        migrations.CreateModel(
            name="Measurement",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("linked", "Being analysed"),
                            ("measured", "Measured"),
                            ("refused", "Not comparable"),
                            ("failed", "Failed"),
                        ],
                        default="linked",
                        max_length=20,
                    ),
                ),
                ("outcome", models.CharField(blank=True, max_length=20)),
                ("failure", models.CharField(blank=True, max_length=30)),
                ("comment", models.TextField(blank=True)),
                ("reason", models.TextField(blank=True)),
                ("predicted_log_gain", models.FloatField(null=True)),
                ("predicted_sigma", models.FloatField(null=True)),
                ("predicted_confidence", models.FloatField(null=True)),
                ("before_step_time_s", models.FloatField(null=True)),
                ("after_step_time_s", models.FloatField(null=True)),
                ("speedup", models.FloatField(null=True)),
                ("within_range", models.BooleanField(null=True)),
                ("caveats", models.JSONField(blank=True, default=list)),
                ("record", models.CharField(blank=True, max_length=100)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("measured_at", models.DateTimeField(blank=True, null=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "experiment",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="measures",
                        to="experiments.experiment",
                    ),
                ),
                (
                    "proposal",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="measurement", to="proposals.proposal"
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="experiments.run",
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.team"
                    ),
                ),
                ("analysis", experiments.fields.OrderedJSONField(blank=True, default=dict)),
                ("control", experiments.fields.OrderedJSONField(blank=True, default=dict)),
            ],
            options={
                "ordering": ["-pk"],
                "indexes": [models.Index(fields=["team", "status"], name="measurement_by_status")],
            },
        ),
        migrations.CreateModel(
            name="PlanRequest",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("constraints", experiments.fields.OrderedJSONField(blank=True, default=dict)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("queued", "Queued"),
                            ("working", "Proposing"),
                            ("done", "Done"),
                            ("failed", "Failed"),
                        ],
                        default="queued",
                        max_length=20,
                    ),
                ),
                ("reason", models.TextField(blank=True)),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "plan",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="requests",
                        to="proposals.planrecord",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="plan_requests", to="experiments.run"
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.team"
                    ),
                ),
                ("heartbeat_at", models.DateTimeField(blank=True, null=True)),
                ("worker", models.CharField(blank=True, max_length=100)),
            ],
            options={
                "ordering": ["-pk"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("status__in", ["queued", "working"])),
                        fields=["status"],
                        name="plan_request_open",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Consultation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("queued", "Waiting"),
                            ("working", "Reading"),
                            ("done", "Done"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="queued",
                        max_length=20,
                    ),
                ),
                ("model", models.CharField(blank=True, max_length=120)),
                ("report", experiments.fields.OrderedJSONField(blank=True, default=dict)),
                ("proposals", experiments.fields.OrderedJSONField(blank=True, default=dict)),
                ("note", models.TextField(blank=True)),
                ("worker", models.CharField(blank=True, max_length=100)),
                ("heartbeat_at", models.DateTimeField(blank=True, null=True)),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("tokens", models.PositiveIntegerField(blank=True, null=True)),
                ("cost_usd", models.FloatField(blank=True, null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "plan",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="consultations",
                        to="proposals.planrecord",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="consultations", to="experiments.run"
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.team"
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("status__in", ["queued", "working"])),
                        fields=["status"],
                        name="consultation_open",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("status__in", ["queued", "working"])),
                        fields=("run",),
                        name="one_open_consultation_per_run",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Compilation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("worker", models.CharField(blank=True, max_length=100)),
                ("heartbeat_at", models.DateTimeField(blank=True, null=True)),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("queued", "Waiting"),
                            ("working", "Compiling"),
                            ("done", "Done"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="queued",
                        max_length=20,
                    ),
                ),
                ("stage", models.CharField(blank=True, max_length=40)),
                ("result", experiments.fields.OrderedJSONField(blank=True, default=dict)),
                ("note", models.TextField(blank=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "plan",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="compilations",
                        to="proposals.planrecord",
                    ),
                ),
                (
                    "proposal",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="compilations",
                        to="proposals.proposal",
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.team"
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("status__in", ["queued", "working"])),
                        fields=["status"],
                        name="compilation_open",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("status__in", ["queued", "working"])),
                        fields=("plan", "proposal"),
                        name="one_open_compilation_per_proposal",
                        nulls_distinct=False,
                    )
                ],
            },
        ),
    ]
