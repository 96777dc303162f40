"""What the web server serves."""

from __future__ import annotations

import gc
import os
import threading

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "asapweb.settings")
os.environ.setdefault("ASAP_DATABASE_POOL", "1")

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.urls import get_resolver

from asapweb.body_limit import BodyLimit

application = BodyLimit(get_asgi_application(), settings.MAX_REQUEST_BYTES)


def load_pages() -> None:
    """The pages' modules load while the server already answers, not during the first visitor's request.

    What is loaded then stays: the collector need not look at it again, in the 0.2 s of somebody's request.
    """
    _ = get_resolver().url_patterns
    gc.collect()
    gc.freeze()


threading.Thread(target=load_pages, name="load pages", daemon=True).start()
