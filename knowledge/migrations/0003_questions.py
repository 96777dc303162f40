"""Questions that shipped passages answer: in words beside their tags, and each with a vector of its own."""

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
import django.db.models.functions.comparison
import pgvector.django.halfvec
import pgvector.django.indexes
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("knowledge", "0002_held_by_workers")]

    operations = [
        migrations.AddField(
            model_name="passage",
            name="questions",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.TextField(), blank=True, default=list, size=None
            ),
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
            options={"abstract": False},
        ),
        migrations.AddIndex(
            model_name="question",
            index=pgvector.django.indexes.HnswIndex(
                django.contrib.postgres.indexes.OpClass(
                    django.db.models.functions.comparison.Cast(
                        "embedding", pgvector.django.halfvec.HalfVectorField(dimensions=384)
                    ),
                    name="halfvec_cosine_ops",
                ),
                condition=models.Q(("embedding_model", "all-MiniLM-L6-v2")),
                name="question_hnsw_minilm",
            ),
        ),
    ]
