"""`asap report`: `asap_report.py`, where ASAP Web is installed; a cluster takes the one file."""

from __future__ import annotations

import argparse

from launches import asap_report


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "report",
        help="report a run of a launch",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=asap_report.__doc__,
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="run, send or flush")


def run(args: argparse.Namespace) -> None:
    """Ends with the exit status of `asap_report.py`."""
    raise SystemExit(asap_report.main(args.arguments))
