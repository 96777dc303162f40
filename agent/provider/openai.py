"""Any OpenAI-compatible endpoint, by chat completions of the `openai` SDK.

The SDK's own retries are off: each attempt is one request of ours, so that the loop can show it and count it.  What an
endpoint does not know (usage in streams, names of parameters) is found out by its 400 and remembered.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import closing
from copy import copy
from dataclasses import replace
from typing import Any

import httpx2
import openai
from openai.types.chat import ChatCompletionChunk

from agent.control import Cancel
from agent.events import Fault
from agent.limits import CHARS_PER_TOKEN, Price
from agent.messages import ToolCall, Usage, size_chars
from agent.provider import faults
from agent.provider.base import Completion, ProviderError, Request
from agent.provider.bounded_client import bounded_client
from agent.provider.line import Line
from agent.provider.settings import Settings
from agent.provider.wire import Assembly, wire_message, wire_tool
from agent.strict_json import loads
from formatting.text import clean

#: A response longer than this many characters per permitted token is a server that ignores the limit; it is cut.
_RUNAWAY = 4 * CHARS_PER_TOKEN

#: A chunk of a stream, with everything around its one token, has 200 to 400 bytes.
_BYTES_PER_TOKEN = 1_000
_LONGEST_BYTES = 16_000_000

#: Characters in which a secret may be spelt.
_LOOKED_BACK = 4_000

#: What a server can bring about by what it sends.
FAILURES = (
    openai.OpenAIError, httpx2.HTTPError, ValueError, TypeError, AttributeError, LookupError, RecursionError,
    OverflowError,
)  # fmt: skip


#: Parameters that an endpoint may not know.
OPTIONAL = ("stream_options", "max_completion_tokens", "max_tokens", "tool_choice")


class OpenAIProvider:
    """A model behind an OpenAI-compatible endpoint.  Thread-safe; make one per process and `for_agent` from it."""

    name = "openai"

    def __init__(self, settings: Settings, agent: str | None = None) -> None:
        self.settings = settings
        self.model = settings.model_for(agent)
        self.price: Price | None = settings.prices.get(self.model)
        self._unknown: dict[str, set[str]] = defaultdict(set)  # parameters by model, shared by all agents
        self._current = threading.local()
        self._longest_bytes = max(_LONGEST_BYTES, _BYTES_PER_TOKEN * settings.limits.answer_tokens)
        http_client = bounded_client(self._longest_bytes, lambda: getattr(self._current, "line", None))
        self._client = openai.OpenAI(
            api_key=settings.api_key or "none",  # local servers ask for none, the SDK does
            base_url=settings.base_url,
            max_retries=0,
            http_client=http_client,
        )

    def for_agent(self, agent: str) -> OpenAIProvider:
        """The same endpoint with this agent's model; connections and what was learnt are shared."""
        other = copy(self)
        other.model = self.settings.model_for(agent)
        other.price = self.settings.prices.get(other.model)
        return other

    def models(self) -> list[str]:
        """Names that the endpoint lists, sorted.  Raises what the SDK raises."""
        listed = self._client.models.list(timeout=self._timeout(self.settings.connect_timeout_s))
        return sorted(str(each.id) for each in listed.data)

    def complete(self, request: Request, *, timeout_s: float, cancel: Cancel) -> Iterator[str | Completion]:
        """Yields text as it comes, last the whole response.  Raises ProviderError; closing it ends the request."""
        timeout_s = min(timeout_s, self.settings.request_timeout_s)
        line = Line()
        assembly = Assembly(size_chars(request.messages), len(request.messages))
        sent, hiding = self._parameters(request), self.settings.hiding
        held, shown = "", ""  # the beginning of a secret, perhaps, as it may come in pieces; and what came before
        with line.guarded(timeout_s, cancel):
            if line.cut_by:  # cancelled before anything was sent
                raise ProviderError(faults.cut_fault(self.settings, line.cut_by, timeout_s))
            try:
                with closing(self._chunks(sent, line, timeout_s)) as chunks:
                    for chunk in chunks:
                        held += assembly.feed(chunk)
                        cut = len(held) - hiding.open_chars(held)
                        text, held = hiding.hide(held[:cut]), held[cut:]
                        shown = (shown + text)[-_LOOKED_BACK:]
                        if text and not hiding.spells(shown):
                            yield text
                        if assembly.chars > request.max_tokens * _RUNAWAY:
                            assembly.finish = "length"
                            break
            except FAILURES as error:
                raise self._error(error, sent, assembly, line, timeout_s) from None
            if line.cut_by:
                raise self._spent(faults.cut_fault(self.settings, line.cut_by, timeout_s), assembly)
        if assembly.refusal or assembly.finish == "content_filter":
            said = faults.quotation(self.settings, assembly.refusal)
            raise self._spent(faults.fault("refusal", self.settings, said), assembly)
        if assembly.finish is None:
            raise self._spent(faults.fault("truncated", self.settings), assembly)
        if held:
            yield hiding.hide(held)
        yield self._without_secrets(assembly.completion())

    def _chunks(self, sent: dict[str, Any], line: Line, timeout_s: float) -> Generator[dict[str, Any], None, None]:
        self._current.line = line
        try:
            stream: openai.Stream[ChatCompletionChunk] = self._client.chat.completions.create(
                **sent, timeout=self._timeout(timeout_s)
            )
        finally:
            self._current.line = None
        with closing(stream):
            content_type = stream.response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if content_type == "application/json":  # a server that does not stream
                stream.response.read()
                body = loads(stream.response.text, surrogates=True)
                if isinstance(body, dict) and body.get("error"):
                    raise openai.APIError(str(body["error"]), stream.response.request, body=body["error"])
                if not isinstance(body, dict) or not body.get("choices"):
                    raise self._no_completion("other JSON")
                yield body
                return
            if content_type not in ("text/event-stream", ""):
                raise self._no_completion(content_type)
            for chunk in stream:
                yield chunk.to_dict(mode="json", warnings=False)

    def _parameters(self, request: Request) -> dict[str, Any]:
        unknown = self._unknown[self.model]
        sent: dict[str, Any] = {"model": self.model, "messages": [*map(wire_message, request.messages)], "stream": True}
        limit = "max_tokens" if "max_completion_tokens" in unknown else "max_completion_tokens"
        sent |= {"stream_options": {"include_usage": True}, limit: request.max_tokens}
        if request.tools and (request.tool_choice == "auto" or "tool_choice" not in unknown):
            sent |= {"tools": [wire_tool(tool) for tool in request.tools], "tool_choice": request.tool_choice}
        return {name: value for name, value in sent.items() if name not in unknown}

    def _timeout(self, timeout_s: float) -> openai.Timeout:
        read_s = min(self.settings.read_timeout_s, max(timeout_s, 0.001))
        return openai.Timeout(read_s, connect=min(self.settings.connect_timeout_s, read_s))

    def _error(
        self, error: Exception, sent: dict[str, Any], assembly: Assembly, line: Line, timeout_s: float
    ) -> ProviderError:
        if line.cut_by:
            return self._spent(faults.cut_fault(self.settings, line.cut_by, timeout_s), assembly)
        fault = faults.api_fault(error, self.settings, self.model)
        if fault.kind == "bad_request" and isinstance(error, openai.APIStatusError):
            words = f"{faults.words_of(error)} {error.param or ''}".replace("include_usage", "stream_options")
            if learnt := next((name for name in OPTIONAL if name in sent and name in words), None):
                self._unknown[self.model].add(learnt)
                return ProviderError(faults.fault("unsupported", self.settings, learnt, wait_s=0.0))
        return self._spent(fault, assembly)

    def _no_completion(self, given: str) -> ProviderError:
        said = self.settings.redact(clean(given))[:60] or "nothing"
        return ProviderError(faults.fault("content_type", self.settings, said))

    def _spent(self, fault: Fault, assembly: Assembly) -> ProviderError:
        """The fault with what was spent on it, where an answer had begun."""
        usage: Usage | None = assembly.usage() if assembly.chars else None
        return ProviderError(replace(fault, usage=usage))

    def _without_secrets(self, completion: Completion) -> Completion:
        """A server may echo what it was sent; the key must not enter the record of a run."""
        hide, message = self.settings.hiding.hide, completion.message
        calls = tuple(ToolCall(hide(call.id), hide(call.name), hide(call.arguments)) for call in message.tool_calls)
        message = replace(message, text=hide(message.text), tool_calls=calls)
        return replace(completion, message=message, model=hide(completion.model))
