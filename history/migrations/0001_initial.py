import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.contrib.postgres.search
import django.db.models.deletion
import django.db.models.functions.comparison
import django.utils.timezone
import pgvector.django.halfvec
import pgvector.django.indexes
from django.conf import settings
from django.db import migrations, models

import experiments.fields


class Migration(migrations.Migration):
    initial = True
    replaces = [("history", "0002_no_counts")]
    dependencies = [
        ("accounts", "0001_initial"),
        ("experiments", "0001_initial"),
        ("knowledge", "0001_initial"),  # which makes the vector type
    ]

    operations = [
        migrations.CreateModel(
            name="RecordImport",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("checking", "Being checked"),
                            ("checked", "Checked"),
                            ("importing", "Being imported"),
                            ("imported", "Imported"),
                            ("failed", "Failed"),
                        ],
                        default="checking",
                        max_length=20,
                    ),
                ),
                ("straight", models.BooleanField(default=False)),
                ("name", models.CharField(max_length=255)),
                ("format", models.CharField(max_length=10)),
                ("path", models.CharField(blank=True, max_length=300)),
                ("size_bytes", models.BigIntegerField()),
                ("report", models.JSONField(blank=True, default=dict)),
                ("reason", models.TextField(blank=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.team"
                    ),
                ),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("heartbeat_at", models.DateTimeField(blank=True, null=True)),
                ("worker", models.CharField(blank=True, max_length=100)),
            ],
            options={
                "ordering": ["-pk"],
            },
        ),
        migrations.CreateModel(
            name="HistoryRecord",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("embedding", pgvector.django.halfvec.HalfVectorField(editable=False, null=True)),
                ("embedding_model", models.CharField(blank=True, default="", editable=False, max_length=120)),
                ("embedding_dimension", models.PositiveSmallIntegerField(editable=False, null=True)),
                ("embedded_hash", models.CharField(blank=True, default="", editable=False, max_length=64)),
                ("content_hash", models.CharField(blank=True, default="", editable=False, max_length=64)),
                ("hardware", models.CharField(blank=True, max_length=10)),
                ("chip", models.CharField(blank=True, max_length=40)),
                ("chips", models.PositiveIntegerField(blank=True, null=True)),
                ("model_name", models.CharField(blank=True, max_length=100)),
                ("model_family", models.CharField(blank=True, max_length=60)),
                ("bottleneck", models.CharField(blank=True, max_length=20)),
                (
                    "changes",
                    django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=30), size=None),
                ),
                ("outcome", models.CharField(max_length=20)),
                ("provenance", models.CharField(max_length=20)),
                ("key", models.CharField(max_length=120)),
                ("title", models.CharField(max_length=300)),
                ("change", models.TextField(blank=True)),
                (
                    "moves",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=30), blank=True, default=list, size=None
                    ),
                ),
                (
                    "topology",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.PositiveIntegerField(), blank=True, default=list, size=None
                    ),
                ),
                ("slices", models.PositiveIntegerField(default=1)),
                ("parameters", models.FloatField(blank=True, null=True)),
                ("speedup", models.FloatField(blank=True, null=True)),
                ("order", models.FloatField()),
                ("measure", models.CharField(blank=True, max_length=100)),
                ("effect", models.TextField(blank=True)),
                ("failure", models.CharField(blank=True, max_length=20)),
                ("source", models.CharField(max_length=500)),
                ("url", models.CharField(blank=True, max_length=500)),
                ("before", experiments.fields.OrderedJSONField(default=dict)),
                ("after", experiments.fields.OrderedJSONField(default=dict)),
                ("extra", experiments.fields.OrderedJSONField(blank=True, default=dict)),
                ("keywords", models.TextField(blank=True)),
                ("remarks", models.TextField(blank=True)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("seed_hash", models.CharField(blank=True, max_length=64)),
                ("version", models.PositiveSmallIntegerField(default=1)),
                (
                    "search",
                    models.GeneratedField(
                        db_persist=True,
                        expression=django.contrib.postgres.search.CombinedSearchVector(
                            django.contrib.postgres.search.CombinedSearchVector(
                                django.contrib.postgres.search.CombinedSearchVector(
                                    django.contrib.postgres.search.CombinedSearchVector(
                                        django.contrib.postgres.search.CombinedSearchVector(
                                            django.contrib.postgres.search.SearchVector(
                                                "title", config="english", weight="A"
                                            ),
                                            "||",
                                            django.contrib.postgres.search.SearchVector(
                                                "keywords", config="english", weight="B"
                                            ),
                                            django.contrib.postgres.search.SearchConfig("english"),
                                        ),
                                        "||",
                                        django.contrib.postgres.search.SearchVector(
                                            "change", config="english", weight="C"
                                        ),
                                        django.contrib.postgres.search.SearchConfig("english"),
                                    ),
                                    "||",
                                    django.contrib.postgres.search.SearchVector("effect", config="english", weight="C"),
                                    django.contrib.postgres.search.SearchConfig("english"),
                                ),
                                "||",
                                django.contrib.postgres.search.SearchVector("remarks", config="english", weight="D"),
                                django.contrib.postgres.search.SearchConfig("english"),
                            ),
                            "||",
                            django.contrib.postgres.search.SearchVector("source", config="english", weight="D"),
                            django.contrib.postgres.search.SearchConfig("english"),
                        ),
                        output_field=django.contrib.postgres.search.SearchVectorField(),
                    ),
                ),
                (
                    "added_by",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "experiment_after",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="experiments.experiment",
                    ),
                ),
                (
                    "experiment_before",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="experiments.experiment",
                    ),
                ),
                (
                    "profile_after",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="experiments.profile",
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="accounts.team",
                    ),
                ),
                (
                    "imported",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="records",
                        to="history.recordimport",
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
                "abstract": False,
                "indexes": [
                    django.contrib.postgres.indexes.GinIndex(fields=["search"], name="historyrecord_words"),
                    pgvector.django.indexes.HnswIndex(
                        django.contrib.postgres.indexes.OpClass(
                            django.db.models.functions.comparison.Cast(
                                "embedding", pgvector.django.halfvec.HalfVectorField(dimensions=384)
                            ),
                            name="halfvec_cosine_ops",
                        ),
                        condition=models.Q(("embedding_model", "all-MiniLM-L6-v2")),
                        name="historyrecord_hnsw_minilm",
                    ),
                    models.Index(fields=["team", "-id"], name="history_newest"),
                    models.Index(fields=["team", "-order", "-id"], name="history_by_effect"),
                    models.Index(fields=["team", "chip", "bottleneck"], name="history_by_chip"),
                    models.Index(fields=["team", "model_name", "bottleneck"], name="history_by_model"),
                    models.Index(
                        fields=[
                            "team",
                            "provenance",
                            "outcome",
                            "hardware",
                            "bottleneck",
                            "chip",
                            "model_family",
                            "model_name",
                            "chips",
                        ],
                        include=("changes", "order", "id"),
                        name="history_facets",
                    ),
                    django.contrib.postgres.indexes.GinIndex(fields=["moves"], name="history_by_move"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("team", "key"), name="one_record_per_team_and_key", nulls_distinct=False
                    )
                ],
            },
        ),
    ]
