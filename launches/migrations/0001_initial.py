import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import experiments.fields


class Migration(migrations.Migration):
    initial = True
    replaces = [("launches", "0003_launch_of_configuration")]
    dependencies = [
        ("accounts", "0001_initial"),
        ("experiments", "0001_initial"),
        ("proposals", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Launch",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("tool", models.CharField(max_length=20)),
                ("backend", models.CharField(max_length=60)),
                ("values", experiments.fields.OrderedJSONField(blank=True, default=dict)),
                ("server", models.CharField(max_length=300)),
                ("repeats", models.PositiveSmallIntegerField()),
                ("steps", models.PositiveIntegerField()),
                ("verdict", experiments.fields.OrderedJSONField(blank=True, null=True)),
                ("note", models.TextField(blank=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("closed_at", models.DateTimeField(blank=True, null=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "proposal",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="launches",
                        to="proposals.proposal",
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.team"
                    ),
                ),
                (
                    "experiment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="experiments.experiment"
                    ),
                ),
                ("config", experiments.fields.OrderedJSONField(blank=True, null=True)),
            ],
            options={
                "ordering": ["-pk"],
                "indexes": [models.Index(fields=["team", "-id"], name="launch_newest")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("closed_at", None)),
                        fields=("proposal",),
                        name="one_open_launch_per_proposal",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("config__isnull", False), ("proposal__isnull", True)),
                            models.Q(("config__isnull", True), ("proposal__isnull", False)),
                            _connector="OR",
                        ),
                        name="launch_of_proposal_or_configuration",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ArmRun",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("worker", models.CharField(blank=True, max_length=100)),
                ("heartbeat_at", models.DateTimeField(blank=True, null=True)),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                (
                    "arm",
                    models.CharField(
                        choices=[("proposal", "Proposal"), ("control", "Control"), ("trial", "Trial")], max_length=10
                    ),
                ),
                ("repeat", models.PositiveSmallIntegerField()),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("queued", "Queued"),
                            ("submitted", "Submitted"),
                            ("running", "Running"),
                            ("collecting", "Reading its report"),
                            ("reported", "Reported"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="queued",
                        max_length=12,
                    ),
                ),
                ("job", models.CharField(blank=True, max_length=200)),
                ("released", models.BooleanField(default=False)),
                ("reason", models.TextField(blank=True)),
                ("reports", experiments.fields.OrderedJSONField(blank=True, default=dict)),
                ("analysis", experiments.fields.OrderedJSONField(blank=True, default=dict)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("submitted_at", models.DateTimeField(blank=True, null=True)),
                ("reported_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "experiment",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="arm_runs",
                        to="experiments.experiment",
                    ),
                ),
                (
                    "launch",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="runs", to="launches.launch"
                    ),
                ),
                ("began_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "ordering": ["launch_id", "repeat", "-arm"],
                "indexes": [
                    models.Index(
                        condition=models.Q(
                            ("status__in", ["queued", "submitted", "running", "collecting"]),
                            ("released", False),
                            _connector="OR",
                        ),
                        fields=["status"],
                        name="arm_run_open",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("launch", "arm", "repeat"), name="one_run_per_arm_and_repeat")
                ],
            },
        ),
        migrations.CreateModel(
            name="LaunchSettings",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("backend", models.CharField(default="manual", max_length=60)),
                ("values", experiments.fields.OrderedJSONField(blank=True, default=dict)),
                (
                    "team",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="launch_settings", to="accounts.team"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="ReportFile",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(choices=[("log", "Log"), ("profile", "Profile")], max_length=10)),
                ("name", models.CharField(max_length=200)),
                ("size_bytes", models.PositiveBigIntegerField()),
                ("sha256", models.CharField(max_length=64)),
                ("received_bytes", models.PositiveBigIntegerField(default=0)),
                ("complete", models.BooleanField(default=False)),
                ("path", models.CharField(max_length=200)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="files", to="launches.armrun"
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
                "constraints": [models.UniqueConstraint(fields=("run", "sha256"), name="one_report_file_per_content")],
            },
        ),
    ]
