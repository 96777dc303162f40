from django.db import migrations


class Migration(migrations.Migration):
    # No search read it, as each compares all questions; to fill it was most of the work of a first start's vectors.
    dependencies = [("knowledge", "0001_initial")]

    operations = [migrations.RemoveIndex("question", "question_hnsw_minilm")]
