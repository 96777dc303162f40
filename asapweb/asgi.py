"""What the web server serves."""

from __future__ import annotations

import gc
import os
import tempfile
import threading
from contextlib import suppress

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "asapweb.settings")
os.environ.setdefault("ASAP_DATABASE_POOL", "1")

import django
from django.core.handlers.asgi import ASGIHandler

from asapweb.body_limit import BodyLimit
from asapweb.environment import home_folder

#: Bodies and the files in them lie on the disk of the uploads, where there is room for them.
UPLOADING = home_folder() / "uploading"
with suppress(OSError):
    UPLOADING.mkdir(mode=0o700, parents=True, exist_ok=True)
    tempfile.tempdir = str(UPLOADING)


def _application() -> BodyLimit:
    django.setup(set_prefix=False)
    from django.conf import settings

    from asapweb.receiving import is_known  # its models want Django to be set up

    return BodyLimit(ASGIHandler(), settings.MAX_REQUEST_BYTES, UPLOADING, is_known)


def _load_pages() -> None:
    """What is loaded stays: the collector need not look at it again, in the 0.2 s of somebody's request."""
    from django.urls import get_resolver

    _ = get_resolver().url_patterns
    gc.collect()
    gc.freeze()


application = _application()

# The pages' modules load while the server already answers, not during the first visitor's request.
threading.Thread(target=_load_pages, name="load pages", daemon=True).start()
