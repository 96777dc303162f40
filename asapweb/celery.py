"""The Celery application.  Its settings are the `CELERY_…` ones of asapweb/settings.py."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "asapweb.settings")

app = Celery("asapweb")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
