"""How the API reads JSON.  A module of its own: REST framework imports it while it makes its own views."""

from __future__ import annotations

from typing import Any

from rest_framework import exceptions, parsers

from agent.strict_json import loads


class JSONParser(parsers.JSONParser):
    """REST framework's, without what only our recursion would notice, and without numbers that JSON does not have.

    Every body of this API is an object; views read their keys without asking.
    """

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        try:
            body = loads(stream.read())
        except ValueError as error:
            raise exceptions.ParseError(f"The body is not valid JSON: {error}.") from error
        if not isinstance(body, dict):
            raise exceptions.ParseError("The body must be a JSON object.")
        return body
