"""Where the application answers that runs on this data folder."""

from __future__ import annotations

import json

from django.conf import settings


def running_address() -> str:
    """`http://127.0.0.1:8000` as the launcher noted it; empty where none runs."""
    try:
        address = json.loads((settings.ASAP_HOME / "run" / "launcher.json").read_text()).get("address")
    except (OSError, ValueError, AttributeError):
        return ""
    return str(address or "")
