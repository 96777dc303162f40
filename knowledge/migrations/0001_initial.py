import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.contrib.postgres.search
import django.db.models.deletion
import django.db.models.functions.comparison
import pgvector.django
import pgvector.django.halfvec
import pgvector.django.indexes
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    replaces = [("knowledge", "0002_questions_without_index")]
    dependencies = [
        ("accounts", "0001_initial"),
    ]

    operations = [
        pgvector.django.VectorExtension(),
        migrations.CreateModel(
            name="Document",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("shipped", "Shipped with ASAP Web"),
                            ("markdown", "Markdown"),
                            ("text", "Text"),
                            ("pdf", "PDF"),
                        ],
                        max_length=10,
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[("reading", "Being read"), ("ready", "Ready"), ("failed", "Failed")],
                        default="ready",
                        max_length=10,
                    ),
                ),
                ("error", models.CharField(blank=True, max_length=300)),
                ("title", models.CharField(max_length=300)),
                ("name", models.CharField(max_length=255)),
                ("source", models.CharField(blank=True, max_length=300)),
                ("url", models.URLField(blank=True, max_length=500)),
                ("chapter", models.CharField(blank=True, max_length=300)),
                ("path", models.CharField(blank=True, max_length=300)),
                ("size_bytes", models.BigIntegerField(default=0)),
                ("pages", models.PositiveIntegerField(blank=True, null=True)),
                ("sha256", models.CharField(max_length=64)),
                ("version", models.PositiveIntegerField(default=1)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "team",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="documents",
                        to="accounts.team",
                    ),
                ),
                (
                    "uploaded_by",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL
                    ),
                ),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("heartbeat_at", models.DateTimeField(blank=True, null=True)),
                ("worker", models.CharField(blank=True, max_length=100)),
            ],
            options={
                "ordering": ["title", "pk"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("team", None)), fields=("name",), name="one_shipped_document_per_name"
                    ),
                    models.UniqueConstraint(fields=("team", "sha256"), name="one_document_per_team_and_content"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Passage",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("embedding", pgvector.django.halfvec.HalfVectorField(editable=False, null=True)),
                ("embedding_model", models.CharField(blank=True, default="", editable=False, max_length=120)),
                ("embedding_dimension", models.PositiveSmallIntegerField(editable=False, null=True)),
                ("embedded_hash", models.CharField(blank=True, default="", editable=False, max_length=64)),
                ("content_hash", models.CharField(blank=True, default="", editable=False, max_length=64)),
                ("key", models.CharField(max_length=120)),
                ("position", models.PositiveIntegerField(default=0)),
                ("title", models.CharField(max_length=300)),
                ("text", models.TextField()),
                ("formula", models.TextField(blank=True)),
                ("applies_when", models.TextField(blank=True)),
                ("counter_indications", models.TextField(blank=True)),
                ("source", models.CharField(blank=True, max_length=300)),
                ("section", models.CharField(blank=True, max_length=300)),
                ("url", models.URLField(blank=True, max_length=500)),
                ("place", models.CharField(blank=True, max_length=300)),
                (
                    "tags",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=60), blank=True, default=list, size=None
                    ),
                ),
                (
                    "hardware",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=20), blank=True, default=list, size=None
                    ),
                ),
                (
                    "bottlenecks",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=20), blank=True, default=list, size=None
                    ),
                ),
                ("keywords", models.TextField(blank=True, editable=False)),
                ("version", models.PositiveIntegerField(default=1)),
                ("retired_at", models.DateTimeField(blank=True, null=True)),
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
                                                "text", config="english", weight="B"
                                            ),
                                            django.contrib.postgres.search.SearchConfig("english"),
                                        ),
                                        "||",
                                        django.contrib.postgres.search.SearchVector(
                                            "formula", config="english", weight="B"
                                        ),
                                        django.contrib.postgres.search.SearchConfig("english"),
                                    ),
                                    "||",
                                    django.contrib.postgres.search.SearchVector(
                                        "applies_when", config="english", weight="C"
                                    ),
                                    django.contrib.postgres.search.SearchConfig("english"),
                                ),
                                "||",
                                django.contrib.postgres.search.SearchVector("keywords", config="english", weight="C"),
                                django.contrib.postgres.search.SearchConfig("english"),
                            ),
                            "||",
                            django.contrib.postgres.search.SearchVector("section", config="english", weight="D"),
                            django.contrib.postgres.search.SearchConfig("english"),
                        ),
                        output_field=django.contrib.postgres.search.SearchVectorField(),
                    ),
                ),
                (
                    "document",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="passages", to="knowledge.document"
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="accounts.team",
                    ),
                ),
                (
                    "questions",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), blank=True, default=list, size=None
                    ),
                ),
            ],
            options={
                "ordering": ["document", "position", "pk"],
                "abstract": False,
                "indexes": [
                    django.contrib.postgres.indexes.GinIndex(fields=["bottlenecks"], name="passage_bottlenecks"),
                    django.contrib.postgres.indexes.GinIndex(fields=["search"], name="passage_words"),
                    pgvector.django.indexes.HnswIndex(
                        django.contrib.postgres.indexes.OpClass(
                            django.db.models.functions.comparison.Cast(
                                "embedding", pgvector.django.halfvec.HalfVectorField(dimensions=384)
                            ),
                            name="halfvec_cosine_ops",
                        ),
                        condition=models.Q(("embedding_model", "all-MiniLM-L6-v2")),
                        name="passage_hnsw_minilm",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("team", None)), fields=("key",), name="one_shipped_passage_per_key"
                    ),
                    models.UniqueConstraint(fields=("team", "key"), name="one_passage_per_team_and_key"),
                ],
            },
        ),
        migrations.CreateModel(
            name="EmbeddingJob",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("worker", models.CharField(blank=True, max_length=100)),
                ("heartbeat_at", models.DateTimeField(blank=True, null=True)),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("embedded", models.CharField(max_length=100, unique=True)),
                (
                    "status",
                    models.CharField(
                        choices=[("idle", "Idle"), ("queued", "Queued"), ("working", "Working")],
                        default="idle",
                        max_length=10,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="Question",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("embedding", pgvector.django.halfvec.HalfVectorField(editable=False, null=True)),
                ("embedding_model", models.CharField(blank=True, default="", editable=False, max_length=120)),
                ("embedding_dimension", models.PositiveSmallIntegerField(editable=False, null=True)),
                ("embedded_hash", models.CharField(blank=True, default="", editable=False, max_length=64)),
                ("content_hash", models.CharField(blank=True, default="", editable=False, max_length=64)),
                ("text", models.TextField()),
                (
                    "passage",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="asked", to="knowledge.passage"
                    ),
                ),
            ],
            options={
                "abstract": False,
            },
        ),
        # A ranking reads the stems of many rows; where they lie beside the row that takes half the time.
        migrations.RunSQL("alter table knowledge_passage alter column search set storage main", migrations.RunSQL.noop),
    ]
