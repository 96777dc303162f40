import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import experiments.fields


class Migration(migrations.Migration):
    initial = True
    replaces = [("dialogue", "0002_answers_with_values")]
    dependencies = [
        ("accounts", "0001_initial"),
        ("experiments", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Thread",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("title", models.CharField(blank=True, max_length=120)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "experiment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="threads", to="experiments.experiment"
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
                "ordering": ["-updated_at", "-pk"],
                "indexes": [models.Index(fields=["experiment", "-updated_at"], name="thread_by_experiment")],
            },
        ),
        migrations.CreateModel(
            name="Message",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("role", models.CharField(choices=[("user", "User"), ("assistant", "Assistant")], max_length=10)),
                ("text", models.TextField(blank=True)),
                ("revision", models.PositiveSmallIntegerField(default=0)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("queued", "Waiting"),
                            ("answering", "Answering"),
                            ("done", "Answered"),
                            ("stopped", "Stopped"),
                            ("failed", "Failed"),
                        ],
                        default="done",
                        max_length=10,
                    ),
                ),
                ("stop_asked", models.BooleanField(default=False)),
                ("provider", models.CharField(blank=True, max_length=120)),
                ("note", models.TextField(blank=True)),
                ("content", experiments.fields.OrderedJSONField(blank=True, null=True)),
                ("steps", experiments.fields.OrderedJSONField(blank=True, default=list)),
                ("effects", experiments.fields.OrderedJSONField(blank=True, default=list)),
                ("supports", experiments.fields.OrderedJSONField(blank=True, default=list)),
                ("worker", models.CharField(blank=True, max_length=100)),
                ("heartbeat_at", models.DateTimeField(blank=True, null=True)),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("tokens", models.PositiveIntegerField(blank=True, null=True)),
                ("cost_usd", models.FloatField(blank=True, null=True)),
                ("first_text_s", models.FloatField(blank=True, null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                (
                    "author",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "question",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="answers",
                        to="dialogue.message",
                    ),
                ),
                (
                    "thread",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="messages", to="dialogue.thread"
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("status__in", ["queued", "answering"])),
                        fields=("question",),
                        name="one_open_answer_per_question",
                    )
                ],
                "indexes": [models.Index(fields=["thread", "id"], name="message_by_thread")],
            },
        ),
        migrations.CreateModel(
            name="Held",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(choices=[("constraint", "Constraint"), ("fact", "Fact")], max_length=10)),
                ("key", models.CharField(max_length=100)),
                ("value", experiments.fields.OrderedJSONField(null=True)),
                ("sentence", models.CharField(max_length=300)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("removed_at", models.DateTimeField(blank=True, null=True)),
                (
                    "held_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "removed_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "message",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to="dialogue.message"
                    ),
                ),
                (
                    "thread",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="held", to="dialogue.thread"
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
            },
        ),
    ]
