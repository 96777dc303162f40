"""`asap backup`: write database and files of an installation to a new folder, while it runs."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "backup", help="write database and files to a new folder, while the application runs"
    )
    parser.add_argument("folder", type=Path, help="a folder that does not exist yet")


def run(args: argparse.Namespace) -> dict[str, Any]:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "asapweb.settings")
    from asapweb.backup import back_up
    from asapweb.environment import home_folder

    target = args.folder.resolve()
    written = back_up(home_folder(), target)
    return {"backup": str(target), "postgresql": written.postgresql, **written.summary}
