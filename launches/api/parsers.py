"""A piece of a file as it is sent: bytes, not read before the view asks for them."""

from __future__ import annotations

from typing import Any

from rest_framework.parsers import BaseParser


class Bytes(BaseParser):
    """The stream itself as `request.data["stream"]`."""

    media_type = "application/octet-stream"

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> dict[str, Any]:
        return {"stream": stream}
