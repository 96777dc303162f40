"""Lines of the log, without what opens a door: sign-in links, invitations and links to XProf's pages are in the
addresses of requests."""

from __future__ import annotations

import logging
import re

_TOKEN = re.compile(r"(/(?:sign-in|join|xprof/pages)/)[\w-]{8,}")


class LineFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return _TOKEN.sub(r"\1[hidden]", super().format(record))
