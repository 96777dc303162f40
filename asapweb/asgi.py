"""What the web server serves."""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "asapweb.settings")
os.environ.setdefault("ASAP_DATABASE_POOL", "1")

from django.conf import settings
from django.core.asgi import get_asgi_application

from asapweb.body_limit import BodyLimit

application = BodyLimit(get_asgi_application(), settings.MAX_REQUEST_BYTES)
