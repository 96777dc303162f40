import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import experiments.fields
from campaigns.models import between, positive
from launches.services.choices import TOOLS


class Migration(migrations.Migration):
    initial = True
    replaces = [("campaigns", "0002_trial_keys_by_identity")]
    dependencies = [
        ("accounts", "0001_initial"),
        ("experiments", "0001_initial"),
        ("launches", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Campaign",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("worker", models.CharField(blank=True, max_length=100)),
                ("heartbeat_at", models.DateTimeField(blank=True, null=True)),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("running", "Running"),
                            ("paused", "Paused"),
                            ("done", "Done"),
                            ("cancelled", "Cancelled"),
                            ("failed", "Failed"),
                        ],
                        default="running",
                        max_length=20,
                    ),
                ),
                ("reason", models.TextField(blank=True)),
                (
                    "backend",
                    models.CharField(
                        choices=[
                            ("local", "Devices of this machine"),
                            ("cluster", "The team's cluster"),
                            ("compiled", "Compile check (predicted step time, compiled memory)"),
                            ("modelled", "Performance model (runs nothing)"),
                            ("recorded", "Recorded landscape"),
                        ],
                        default="modelled",
                        max_length=20,
                        verbose_name="Run trials on",
                    ),
                ),
                ("config", experiments.fields.OrderedJSONField()),
                ("constraints", experiments.fields.OrderedJSONField(blank=True, default=dict)),
                ("landscape", models.JSONField(blank=True, null=True)),
                (
                    "parallel",
                    models.PositiveSmallIntegerField("Trials in parallel", default=1, validators=between(1, 64)),
                ),
                ("to_budget", models.BooleanField("Use the whole budget, even after convergence", default=False)),
                (
                    "most_trials",
                    models.PositiveIntegerField("Maximum trials", default=20, validators=between(1, 20_000)),
                ),
                ("most_s", models.FloatField("Time limit (s)", blank=True, null=True, validators=[positive])),
                ("most_dollars", models.FloatField("Cost limit ($)", blank=True, null=True, validators=[positive])),
                (
                    "dollars_per_chip_hour",
                    models.FloatField("Price per chip-hour ($)", blank=True, null=True, validators=[positive]),
                ),
                (
                    "expert_step_time_s",
                    models.FloatField(
                        "Best hand-tuned step time (s)",
                        blank=True,
                        null=True,
                        validators=[positive],
                        help_text="Shown in the plot as a reference line.",
                    ),
                ),
                ("considered", models.PositiveIntegerField(default=0)),
                ("held_back", experiments.fields.OrderedJSONField(blank=True, default=dict)),
                ("analysis", experiments.fields.OrderedJSONField(blank=True, default=dict)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "experiment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="campaigns",
                        to="experiments.experiment",
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.team"
                    ),
                ),
                ("advice", models.JSONField(blank=True, null=True)),
                ("cost_usd", models.FloatField(blank=True, null=True)),
                (
                    "most_tokens",
                    models.PositiveIntegerField(
                        "Token limit",
                        default=500_000,
                        validators=between(1, 100_000_000),
                        help_text="Of the language model, input plus output, where it chooses trials.",
                    ),
                ),
                ("tokens", models.PositiveBigIntegerField(default=0)),
                ("use_language_model", models.BooleanField("Let the language model choose trials", default=False)),
                ("server", models.CharField(blank=True, max_length=300)),
                (
                    "steps",
                    models.PositiveIntegerField(
                        "Steps per trial",
                        blank=True,
                        null=True,
                        default=30,
                        validators=between(10, 10_000),
                        help_text="Used only on the team's cluster.",
                    ),
                ),
                (
                    "tool",
                    models.CharField(
                        "Training program",
                        blank=True,
                        max_length=20,
                        choices=TOOLS,
                        default="maxtext",
                        help_text="Used only on the team's cluster, set under Settings, Launching.",
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
                "indexes": [
                    models.Index(condition=models.Q(("status", "running")), fields=["status"], name="campaign_open"),
                    models.Index(fields=["team", "-id"], name="campaign_newest"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Trial",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("worker", models.CharField(blank=True, max_length=100)),
                ("heartbeat_at", models.DateTimeField(blank=True, null=True)),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("number", models.PositiveIntegerField()),
                ("key", models.CharField(max_length=32)),
                ("mesh", experiments.fields.OrderedJSONField()),
                ("training", experiments.fields.OrderedJSONField()),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("waiting", "Waiting"),
                            ("running", "Running"),
                            ("launched", "On the cluster"),
                            ("paused", "Paused"),
                            ("done", "Ran"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="waiting",
                        max_length=20,
                    ),
                ),
                ("why", models.JSONField(blank=True, default=str)),
                ("predicted_step_time_s", models.FloatField(null=True)),
                ("predicted_low_s", models.FloatField(null=True)),
                ("predicted_high_s", models.FloatField(null=True)),
                ("gain", models.FloatField(null=True)),
                ("faster", models.FloatField(null=True)),
                ("runs_probability", models.FloatField(null=True)),
                ("step_time_s", models.FloatField(null=True)),
                ("step_times_s", models.JSONField(blank=True, default=list)),
                ("peak_bytes", models.FloatField(null=True)),
                ("mfu", models.FloatField(null=True)),
                ("duty_cycle", models.FloatField(null=True)),
                ("modelled", models.BooleanField(default=False)),
                ("failure", experiments.fields.OrderedJSONField(blank=True, null=True)),
                ("runs", models.PositiveSmallIntegerField(default=0)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                (
                    "campaign",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="trials", to="campaigns.campaign"
                    ),
                ),
                (
                    "chosen_by",
                    models.CharField(
                        choices=[("built-in", "Built-in acquisition"), ("model", "Language model")],
                        default="built-in",
                        max_length=20,
                    ),
                ),
                (
                    "launch",
                    models.OneToOneField(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="trial",
                        to="launches.launch",
                    ),
                ),
                ("ran_s", models.FloatField(default=0.0)),
            ],
            options={
                "ordering": ["number"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("status__in", ["waiting", "running", "launched"])),
                        fields=["status"],
                        name="trial_open",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("campaign", "key"), name="one_trial_per_configuration"),
                    models.UniqueConstraint(fields=("campaign", "number"), name="one_trial_per_number"),
                ],
            },
        ),
    ]
