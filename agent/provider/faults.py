"""What the SDK raises, as faults: a kind for the program, one sentence for the user, how often to try in all."""

from __future__ import annotations

import json
import math
import re
import socket
import ssl
from typing import Any

import httpx2
import openai

from agent.events import Fault, FaultKind
from agent.provider.bounded_client import ResponseTooLong
from agent.provider.settings import Settings
from formatting import limit, plain
from formatting.text import clean

#: How often a request with this fault may be sent in all; the run's own limit of retries binds too.
ATTEMPTS: dict[FaultKind, int] = {
    "rate_limit": 6, "server": 4, "truncated": 3, "malformed": 2, "connect": 3, "dns": 2, "timeout": 2,
    "unsupported": 6,
}  # fmt: skip

#: Of an error, which may be a page of many megabytes; what matters stands at its beginning.
_LONGEST_WORDS = 4_000
_CONTEXT = re.compile(
    r"context[ _-]?(length|window|size)|maximum context|max(imum)? input length|too many (input )?tokens"
    r"|(prompt|input) is too long|context the overflows|reduce the length",
    re.IGNORECASE,
)
_CONTENT_FILTER = re.compile(r"content[ _]?(filter|management|policy)|safety|moderation", re.IGNORECASE)


#: What a fault says.  said: the server's words, or a full stop.
_SAYS: dict[FaultKind, str] = {
    "cancelled": "The request to the language model was stopped.",
    "timeout": "The language model at {where} did not answer {said}.",
    "connect": "No server answers at {where}{said}; check OPENAI_BASE_URL, the network and that the server is running.",
    "dns": "The host of {where} cannot be resolved; check OPENAI_BASE_URL.",
    "tls": "No secure connection to {where}: its certificate or protocol is not accepted.",
    "truncated": "The answer of the language model at {where} was cut off.",
    "malformed": "The answer of {where} is not a stream of chat completion chunks.",
    "too_long": "{where} sent a response that is too large or compressed; it was not read.",
    "content_type": "{where} answered with {said} and not with a chat completion; OPENAI_BASE_URL usually ends in /v1.",
    "redirect": "{where} redirects to another address, where the conversation is not sent; set OPENAI_BASE_URL to it.",
    "auth": "{where} does not accept the key; check OPENAI_API_KEY.",
    "forbidden": "{where} does not permit this key to use {model}{said}",
    "not_found": "{where} has no model {model} or no chat completions{said}",
    "quota": "The quota of this key at {where} is exhausted.",
    "rate_limit": "{where} is receiving too many requests{said}",
    "server": "{where} failed{code}{said}",
    "context": "The conversation is longer than {model} can read{said}",
    "refusal": "The language model, or the endpoint's content filter, declined to answer{said}",
    "unsupported": "Sent again, as the endpoint does not support {said}.",
    "bad_request": "{where} refused the request{code}{said}",
}  # fmt: skip


def fault(kind: FaultKind, settings: Settings, said: str = "", model: str = "the model", **more: Any) -> Fault:
    """Return a fault with its sentence."""
    code = f" with status {more['status']}" if more.get("status") else " within its answer"
    sentence = _SAYS[kind].format(where=settings.base_url, said=said, model=model, code=code)
    return Fault(kind, sentence, attempts=ATTEMPTS.get(kind, 1), **more)


def cut_fault(settings: Settings, cut_by: str, timeout_s: float) -> Fault:
    """Return the fault of a request that we cut: a stop button, or a deadline."""
    kind: FaultKind = "cancelled" if cut_by == "cancel" else "timeout"
    return fault(kind, settings, f"within {plain(timeout_s, 's')}")


def api_fault(error: Exception, settings: Settings, model: str) -> Fault:
    """The fault behind an exception of the SDK or of its HTTP client."""
    causes = _causes(error)

    def has(*kinds: type[BaseException]) -> bool:
        return any(isinstance(cause, kinds) for cause in causes)

    if has(ResponseTooLong):
        return fault("too_long", settings)
    if isinstance(error, openai.APIStatusError):
        return _status_fault(error, settings, model)
    if has(httpx2.ConnectTimeout):
        return fault("connect", settings, f" within {limit(settings.connect_timeout_s, 's')}")
    if isinstance(error, openai.APITimeoutError | httpx2.TimeoutException):
        return fault("timeout", settings, "within the time limit")
    if isinstance(error, openai.APIConnectionError | httpx2.HTTPError):
        if has(socket.gaierror):
            return fault("dns", settings)
        if has(ssl.SSLError):
            return fault("tls", settings)
        refused = has(httpx2.ConnectError, httpx2.ProxyError, ConnectionRefusedError)
        return fault("connect" if refused else "truncated", settings)
    if isinstance(error, openai.APIError):  # inside a stream; LM Studio reports an overflow so, with status 200
        code, said = f"{error.code or ''} {error.type or ''}", _error_quotation(error, settings)
        filtered: FaultKind = "refusal" if _CONTENT_FILTER.search(code) else "server"
        return fault("context" if _CONTEXT.search(words_of(error)) else filtered, settings, said)
    return fault("malformed", settings)


def _causes(error: BaseException) -> list[BaseException]:
    causes: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in causes:
        causes.append(each)
        each = each.__cause__ or each.__context__
    return causes


#: Faults of a status, whatever the server says.
_BY_STATUS: dict[int, FaultKind] = {
    401: "auth", 403: "forbidden", 404: "not_found", 408: "server", 409: "server", 413: "context", 429: "rate_limit",
}  # fmt: skip


def _status_fault(error: openai.APIStatusError, settings: Settings, model: str) -> Fault:
    status, code = error.status_code, f"{error.code or ''} {error.type or ''}"
    kind = _BY_STATUS.get(status, "server" if status >= 500 else "redirect" if 300 <= status < 400 else "bad_request")
    if kind == "rate_limit" and "insufficient_quota" in code:
        kind = "quota"
    if kind == "bad_request" and ("context_length_exceeded" in code or _CONTEXT.search(words_of(error))):
        kind = "context"
    elif kind == "bad_request" and "content_filter" in code:
        kind = "refusal"
    wait_s = retry_after_s(error.response.headers) if kind in ("rate_limit", "server") else None
    return fault(kind, settings, _error_quotation(error, settings), model, status=status, wait_s=wait_s)


def words_of(error: openai.APIError) -> str:
    """The beginning of what the server says, "" where it says nothing."""
    body = error.body  # servers put it in several places
    if isinstance(body, dict):
        words = body.get("message") or body.get("detail")
        if isinstance(words, str):
            return words[:_LONGEST_WORDS]
        try:
            return json.dumps(body, ensure_ascii=False, default=str)[:_LONGEST_WORDS]
        except RecursionError:  # nested too deep to be read
            return ""
    words = body if isinstance(body, str) else "" if error.message.startswith("Error code:") else error.message
    return words[:_LONGEST_WORDS]


def _error_quotation(error: openai.APIError, settings: Settings) -> str:
    words = words_of(error)
    return quotation(settings, "" if words.lstrip().startswith("<") else words)


def quotation(settings: Settings, words: str) -> str:
    """Return what a server says, as the end of a sentence."""
    words = settings.redact(clean(words[:_LONGEST_WORDS]))
    said = " ".join("".join(sign if sign.isprintable() else " " for sign in words).split())
    return f": “{said if len(said) <= 200 else said[:199] + '…'}”" if said else "."


def retry_after_s(headers: Any) -> float | None:
    """Return the seconds that `Retry-After-Ms` or `Retry-After` asks for; None where there are none."""
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        text = str(headers.get(name) or "")
        try:
            seconds_s = float(text) * scale
        except ValueError:
            seconds_s = math.nan
        if math.isfinite(seconds_s) and seconds_s >= 0:
            return seconds_s
    return None
