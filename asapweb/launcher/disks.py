"""The disks that the application writes to, looked at in every round of the launcher."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from asapweb.environment import embedded_services
from asapweb.launcher.folders import Home
from asapweb.launcher.postgres import place_cluster
from disk.reserve import Reserve


def watch_disks(home: Home, say: Callable[[str], None]) -> Callable[[], None]:
    """Keep a reserve on the disk of the data folder and, where it is another one, of the database.

    Returns what is to be called often: on a full disk PostgreSQL and Redis end with their next write, and they come
    back once the reserve is given up.
    """
    reserves = [Reserve(folder) for folder in _folders(home)]

    def look() -> None:
        for reserve in reserves:
            if notice := reserve.tend():
                say(f"{time.strftime('%H:%M:%S')}  {notice}")

    return look


def _folders(home: Home) -> list[Path]:
    if not embedded_services(home.path).get("database_url"):
        return [home.path]
    database = place_cluster(home.path, home.log("postgresql")).data.parent
    elsewhere = database.stat().st_dev != home.path.stat().st_dev
    return [home.path, database] if elsewhere else [home.path]
