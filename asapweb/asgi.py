"""What the web server serves."""

from __future__ import annotations

import gc
import os
import threading
from contextlib import suppress

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "asapweb.settings")
os.environ.setdefault("ASAP_DATABASE_POOL", "1")

import django

from asapweb.body_limit import BodyLimit
from asapweb.environment import home_folder

# Before the settings look for it: bodies are received there.
with suppress(OSError):
    (home_folder() / "uploading").mkdir(mode=0o700, parents=True, exist_ok=True)


def _application() -> BodyLimit:
    django.setup(set_prefix=False)
    from django.conf import settings

    from asapweb.receiving import Handler, is_known  # its models want Django to be set up

    return BodyLimit(Handler(), settings.MAX_REQUEST_BYTES, settings.UPLOADING, is_known)


def _load_pages() -> None:
    """What is loaded stays: the collector need not look at it again, in the 0.2 s of somebody's request."""
    from django.urls import get_resolver

    _ = get_resolver().url_patterns
    gc.collect()
    gc.freeze()


application = _application()

# The pages' modules load while the server already answers, not during the first visitor's request.
threading.Thread(target=_load_pages, name="load pages", daemon=True).start()
