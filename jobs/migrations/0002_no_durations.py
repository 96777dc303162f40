from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("jobs", "0001_turns")]

    operations = [migrations.RemoveField("turn", "mean_s")]
