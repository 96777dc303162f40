"""`asap run`: start the whole application."""

from __future__ import annotations

import argparse
import os

from asapweb.user_error import UserError
from formatting.numbers import whole_number


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("run", help="start the web application with its database, broker and worker")
    parser.add_argument("--host", help="address to listen on (default ASAP_HOST or 127.0.0.1)")
    parser.add_argument("--port", help="port (default PORT, or the first free port from 8000)")
    parser.add_argument("--workers", help="worker processes (default ASAP_WORKERS or 2)")


def run(args: argparse.Namespace) -> None:
    from asapweb.launcher.run import Options
    from asapweb.launcher.run import run as run_launcher

    port = args.port or os.environ.get("PORT", "")
    run_launcher(
        Options(
            host=args.host or os.environ.get("ASAP_HOST") or "127.0.0.1",
            port=_whole("PORT", port) if port else None,
            workers=_whole("ASAP_WORKERS", args.workers or os.environ.get("ASAP_WORKERS") or "2"),
            web_workers=_whole("ASAP_WEB_WORKERS", os.environ.get("ASAP_WEB_WORKERS") or str(_web_workers())),
        )
    )


def _web_workers() -> int:
    """A second core serves pages too, since Python runs on one core per process; each process holds some 250 MB."""
    return min(2, os.cpu_count() or 1)


def _whole(name: str, text: str) -> int:
    if not (number := whole_number(text)):
        raise UserError(f"{name} must be a whole number of at least 1, not {text!r}.")
    return number
