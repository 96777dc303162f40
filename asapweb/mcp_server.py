"""Runs, and the tools over them, for other agents, by the Model Context Protocol.

A client of the REST API with nothing of its own: each call has the rights of the token that comes with it.  Approving,
uploading and deleting are a person's, and not among the tools.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

INSTRUCTIONS = (
    "ASAP Web diagnoses profiles of LLM training steps and proposes sharding configurations. Begin with "
    "`list_experiments`; most tools take an experiment number. Quantities are in SI units. Values marked predicted "
    "come from a performance model and carry an 80 % interval. Only people approve proposals, in the web interface."
)
#: Longer results are cut, and say so.
MOST_CHARACTERS = 40_000
TIMEOUT_S = 60.0

_EXPERIMENT = {"experiment": {"type": "integer", "minimum": 1, "description": "Experiment number."}}


def _schema(properties: Mapping[str, Any], required: tuple[str, ...]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(required), "additionalProperties": False}


#: Tools that find an experiment; those over one are the tools of `/api/tools/`.
READERS = (
    types.Tool(
        name="list_experiments",
        description="Experiments of your teams, newest first: number, name, status, chip, step time, bottleneck.",
        input_schema=_schema(
            {"search": {"type": "string", "maxLength": 200}, "offset": {"type": "integer", "minimum": 0}}, ()
        ),
    ),
    types.Tool(
        name="read_diagnosis",
        description="The diagnosis of an experiment's latest run: KPIs, bottleneck, findings with evidence.",
        input_schema=_schema(_EXPERIMENT, ("experiment",)),
    ),
    types.Tool(
        name="read_proposals",
        description=(
            "The latest plan of an experiment: proposals, predictions with 80 % intervals, reasons and reviews."
        ),
        input_schema=_schema(_EXPERIMENT, ("experiment",)),
    ),
)


class CallRefusedError(Exception):
    """What the API answers where it does not do what was asked, as a sentence."""


@dataclass(frozen=True)
class Api:
    """The REST API of one installation, with one token's rights."""

    url: str
    token: str

    async def get(self, path: str, **query: Any) -> Any:
        return await self._ask("GET", path, params={k: v for k, v in query.items() if v not in (None, "")})

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        return await self._ask("POST", path, json=body)

    async def _ask(self, method: str, path: str, **more: Any) -> Any:
        headers = {"Authorization": f"Token {self.token}", "Accept": "application/json"}
        try:
            async with httpx.AsyncClient(base_url=self.url, headers=headers, timeout=TIMEOUT_S) as client:
                response = await client.request(method, path, **more)
        except httpx.HTTPError as error:
            raise CallRefusedError(
                f"{self.url} does not answer ({type(error).__name__}); is the application running?"
            ) from error
        if response.is_success:
            return response.json()
        raise CallRefusedError(_sentence(response))


def _sentence(response: httpx.Response) -> str:
    try:
        body = response.json()
    except ValueError:
        return f"The server responded with status {response.status_code}."
    detail = body.get("detail") if isinstance(body, dict) else None
    return str(detail or json.dumps(body, ensure_ascii=False))[:600]


def make_server(url: str, token: str = "") -> Server[Any]:
    """The server over the application at `url`.  token: where requests bring none of their own (stdio)."""

    def api(context: ServerRequestContext[Any]) -> Api:
        given = context.request.headers.get("authorization", "") if context.request is not None else ""
        own = given.partition(" ")[2].strip() or token
        if not own:
            raise CallRefusedError("No token: send `Authorization: Bearer …` with a token from Settings → API tokens.")
        return Api(url, own)

    async def list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        tools = await api(context).get("/api/tools/")
        return types.ListToolsResult(tools=[*READERS, *map(_tool, tools)])

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        try:
            result = await call(api(context), params.name, dict(params.arguments or {}))
        except CallRefusedError as error:
            return types.CallToolResult(content=[types.TextContent(type="text", text=str(error))], is_error=True)
        return types.CallToolResult(content=[types.TextContent(type="text", text=_text(result))])

    return Server("asap-web", instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool)


def _tool(described: Mapping[str, Any]) -> types.Tool:
    """A tool with the experiment that it is called for."""
    schema = dict(described["schema"])
    schema["properties"] = {**_EXPERIMENT, **schema.get("properties", {})}
    schema["required"] = ["experiment", *schema.get("required", ())]
    return types.Tool(name=described["name"], description=described["description"], input_schema=schema)


async def call(api: Api, name: str, given: dict[str, Any]) -> Any:
    """The result of one tool.  Raises CallRefusedError with the API's sentence."""
    match name:
        case "list_experiments":
            return await api.get("/api/experiments/", q=given.get("search"), offset=given.get("offset"))
        case "read_diagnosis":
            return await _newest(api, "/api/diagnoses/", given, "diagnosis")
        case "read_proposals":
            return await _newest(api, "/api/plans/", given, "plan")
    experiment = given.pop("experiment", None)
    return await api.post(f"/api/tools/{quote(name, safe='')}/", {"experiment": experiment, "arguments": given})


async def _newest(api: Api, path: str, given: Mapping[str, Any], what: str) -> Any:
    listed = await api.get(path, experiment=given.get("experiment"))
    rows = listed["results"] if isinstance(listed, dict) else listed
    if not rows:
        raise CallRefusedError(f"Experiment {given.get('experiment')} has no {what} yet, or belongs to another team.")
    return await api.get(f"{path}{max(row['id'] for row in rows)}/")


def _text(result: Any) -> str:
    """A result as JSON, cut where it is too long."""
    text = json.dumps(result, ensure_ascii=False)
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]}\n… {len(text) - MOST_CHARACTERS:,} characters omitted; narrow the request."


async def serve_stdio(server: Server[Any]) -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
