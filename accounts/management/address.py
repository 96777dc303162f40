"""Addresses at which people open the application."""

from __future__ import annotations

import json

from django.conf import settings


def site_address() -> str:
    """Return the address of the deployment, else that of the running application as the launcher noted it; else ""."""
    return str(settings.PUBLIC_ADDRESS or _running_address())


def _running_address() -> str:
    try:
        address = json.loads((settings.ASAP_HOME / "run" / "launcher.json").read_text()).get("address")
    except (OSError, ValueError, AttributeError):
        return ""
    return str(address or "")
