"""`asap mcp`: serve runs, tools, history and knowledge to other agents."""

from __future__ import annotations

import argparse
import asyncio
import os

from asapweb.user_error import UserError
from formatting.numbers import whole_number


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "mcp",
        help="serve runs, tools, history and knowledge to other agents (Model Context Protocol)",
        description=(
            "Serves the Model Context Protocol over standard input and output, with the permissions of the token in "
            "ASAP_TOKEN (Settings → API tokens). With --listen it serves streamable HTTP at /mcp instead, and each "
            "request carries its own token as `Authorization: Bearer …`. No tool approves proposals."
        ),
    )
    parser.add_argument(
        "--url", default="http://127.0.0.1:8000", help="address of the running application (default %(default)s)"
    )
    parser.add_argument("--listen", metavar="HOST:PORT", help="serve streamable HTTP on this address")


def run(args: argparse.Namespace) -> None:
    from asapweb.mcp_server import make_server, serve_stdio

    if not args.url.startswith(("http://", "https://")):
        raise UserError(f"--url must begin with http:// or https://, not {args.url[:60]!r}.")
    if args.listen is None:
        token = os.environ.get("ASAP_TOKEN", "")
        if not token:
            raise UserError("Set ASAP_TOKEN to a token from Settings → API tokens.")
        asyncio.run(serve_stdio(make_server(args.url, token)))
        return
    import uvicorn

    host, port = _address(args.listen)
    uvicorn.run(make_server(args.url).streamable_http_app(host=host, stateless_http=True), host=host, port=port)


def _address(text: str) -> tuple[str, int]:
    host, _, given = text.rpartition(":")
    port = whole_number(given)
    if not host or port is None or not 0 < port < 2**16:
        raise UserError(f"--listen takes HOST:PORT, such as 127.0.0.1:8100, not {text[:60]!r}.")
    return host.strip("[]"), port
