from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("diagnosis", "0001_initial")]

    operations = [migrations.RemoveField("diagnosisrecord", "modules")]
