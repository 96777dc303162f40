"""The browser of the tests: the installed Chromium, or the one that Playwright downloaded."""

from __future__ import annotations

import shutil
from typing import Any

#: The headless shell draws the same pages without the parts of a desktop browser, in two thirds of the processor time.
EXECUTABLES = ("chromium-headless-shell", "chromium", "chromium-browser")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


def installed() -> str | None:
    """Its path."""
    return next((path for name in EXECUTABLES if (path := shutil.which(name))), None)


def launch_arguments() -> dict[str, Any]:
    path = installed()
    return {"args": ARGUMENTS, **({"executable_path": path} if path else {})}
