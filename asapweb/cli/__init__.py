"""The `asap` command.

Each subcommand is a module of this package with `add_parser(subparsers)` and `run(args)`, which returns what `--json`
prints, or None.  Only the module of the command at hand is imported, so that `asap predict` starts at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0, 2 for what the user can mend, 130 when interrupted."""
    from asapweb.cli.dispatch import dispatch

    return dispatch(sys.argv[1:] if arguments is None else list(arguments))
