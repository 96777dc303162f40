"""`asap restore`: read a backup into an empty installation and verify it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("restore", help="restore a backup into an empty data folder and database")
    parser.add_argument("folder", type=Path, help="what `asap backup` wrote")


def run(args: argparse.Namespace) -> dict[str, Any]:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "asapweb.settings")
    from asapweb.backup import restore
    from asapweb.environment import home_folder

    home = home_folder()
    given = restore(args.folder.resolve(), home)
    return {"restored": str(home), "of": given.created_at, **given.summary}
