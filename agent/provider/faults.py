"""What the SDK raises, as faults: a kind for the program, one sentence for the user, how often to try in all."""

from __future__ import annotations

import email.utils
import json
import math
import re
import socket
import ssl
import time
from typing import Any

import httpx2
import openai

from agent.events import Fault, FaultKind
from agent.messages import clean
from agent.provider.bounded_client import ResponseTooLong
from agent.provider.settings import Settings
from formatting import limit, plain

#: How often a request with this fault may be sent in all; the run's own limit of retries binds too.
ATTEMPTS: dict[FaultKind, int] = {
    "rate_limit": 6, "server": 4, "truncated": 3, "malformed": 2, "connect": 3, "dns": 2, "timeout": 2,
    "context": 2, "unsupported": 6,
}  # fmt: skip

#: Of an error, which may be a page of many megabytes; what matters stands at its beginning.
_LONGEST_WORDS = 4_000
_CONTEXT = re.compile(
    r"context[ _-]?(length|window|size)|maximum context|max(imum)? input length|too many (input )?tokens"
    r"|(prompt|input) is too long|context the overflows|reduce the length",
    re.IGNORECASE,
)
_CONTENT_FILTER = re.compile(r"content[ _]?(filter|management|policy)|safety|moderation", re.IGNORECASE)


def fault(kind: FaultKind, sentence: str, **more: Any) -> Fault:
    return Fault(kind, sentence, attempts=ATTEMPTS.get(kind, 1), **more)


def cut_fault(cut_by: str, timeout_s: float) -> Fault:
    if cut_by == "cancel":
        return fault("cancelled", "The request to the language model was stopped.")
    return fault("timeout", f"The language model did not finish its answer within {plain(timeout_s, 's')}.")


def truncated_fault(settings: Settings) -> Fault:
    return fault("truncated", f"The answer of the language model at {settings.base_url} was cut off.")


def malformed_fault(settings: Settings) -> Fault:
    return fault("malformed", f"The answer of {settings.base_url} is not a stream of chat completion chunks.")


def content_type_fault(settings: Settings, content_type: str) -> Fault:
    shown = settings.redact(clean(content_type))[:60] or "nothing"
    return fault(
        "content_type",
        f"{settings.base_url} answered with {shown} and not with a chat completion; "
        "OPENAI_BASE_URL usually ends in /v1.",
    )


def refusal_fault(settings: Settings, words: str) -> Fault:
    said = f": “{_short(settings, words[:_LONGEST_WORDS])}”" if words.strip() else "."
    return fault("refusal", f"The language model declined to answer{said}")


def api_fault(error: Exception, settings: Settings, model: str) -> Fault:
    """The fault behind an exception of the SDK or of its HTTP client."""
    if any(isinstance(cause, ResponseTooLong) for cause in _causes(error)):
        return fault(
            "too_long", f"{settings.base_url} sent a response that is too large or compressed; it was not read."
        )
    if isinstance(error, openai.APIStatusError):
        return _status_fault(error, settings, model)
    if isinstance(error, openai.APITimeoutError | httpx2.TimeoutException):
        return _timeout_fault(error, settings)
    if isinstance(error, openai.APIConnectionError | httpx2.HTTPError):
        return _connection_fault(error, settings)
    if isinstance(error, openai.APIError):  # an error inside a stream
        return _spoken_fault(error, settings)
    return malformed_fault(settings)


def _timeout_fault(error: Exception, settings: Settings) -> Fault:
    if any(isinstance(cause, httpx2.ConnectTimeout) for cause in _causes(error)):
        sentence = f"No connection to {settings.base_url} within {limit(settings.connect_timeout_s, 's')}"
        return fault("connect", f"{sentence}; check OPENAI_BASE_URL and the network.")
    return fault("timeout", f"The language model at {settings.base_url} gave no data within the time limit.")


def _connection_fault(error: Exception, settings: Settings) -> Fault:
    where = settings.base_url
    causes = _causes(error)
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return fault("dns", f"The host of {where} cannot be resolved; check OPENAI_BASE_URL.")
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return fault("tls", f"No secure connection to {where}: its certificate or protocol is not accepted.")
    if any(isinstance(cause, httpx2.ConnectError | httpx2.ProxyError | ConnectionRefusedError) for cause in causes):
        return fault("connect", f"No server answers at {where}; check OPENAI_BASE_URL and that the server is running.")
    return truncated_fault(settings)


def _causes(error: BaseException) -> list[BaseException]:
    causes: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in causes:
        causes.append(each)
        each = each.__cause__ or each.__context__
    return causes


def _status_fault(error: openai.APIStatusError, settings: Settings, model: str) -> Fault:
    status, where, said = error.status_code, settings.base_url, _error_quotation(error, settings)
    code = f"{error.code or ''} {error.type or ''}"
    if status == 401:
        return fault("auth", f"{where} does not accept the key; check OPENAI_API_KEY.", status=status)
    if status == 403:
        return fault("forbidden", f"{where} does not permit this key to use {model}{said}", status=status)
    if status == 404:
        sentence = f"{where} has no model {model} or no chat completions{said}"
        return fault("not_found", sentence, status=status)
    if 300 <= status < 400:
        sentence = (
            f"{where} redirects to another address, where the conversation is not sent; set OPENAI_BASE_URL to it."
        )
        return fault("redirect", sentence, status=status)
    if status == 429 and "insufficient_quota" in code:
        return fault("quota", f"The quota of this key at {where} is exhausted.", status=status)
    if status == 429:
        wait_s = retry_after_s(error.response.headers)
        return fault("rate_limit", f"{where} is receiving too many requests{said}", status=status, wait_s=wait_s)
    if status >= 500 or status in (408, 409):
        wait_s = retry_after_s(error.response.headers)
        return fault("server", f"{where} failed with status {status}{said}", status=status, wait_s=wait_s)
    if "context_length_exceeded" in code or status == 413 or _CONTEXT.search(words_of(error)):
        return fault("context", f"The conversation is longer than {model} can read{said}", status=status)
    if "content_filter" in code:
        return fault("refusal", f"The endpoint's content filter declined the request{said}", status=status)
    return fault("bad_request", f"{where} refused the request with status {status}{said}", status=status)


def _spoken_fault(error: openai.APIError, settings: Settings) -> Fault:
    """An error object where a chunk should be; LM Studio reports an overflow so, with status 200."""
    words = words_of(error)
    if _CONTEXT.search(words):
        return fault(
            "context", f"The conversation is longer than the model can read{_error_quotation(error, settings)}"
        )
    if _CONTENT_FILTER.search(f"{error.code or ''} {error.type or ''}"):
        return fault("refusal", f"The endpoint's content filter stopped the answer{_error_quotation(error, settings)}")
    return fault("server", f"{settings.base_url} failed within its answer{_error_quotation(error, settings)}")


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
    words = _short(settings, words_of(error))
    return f": “{words}”" if words and not words.lstrip().startswith("<") else "."


def _short(settings: Settings, words: str) -> str:
    words = settings.redact(clean(words))
    words = " ".join("".join(sign if sign.isprintable() else " " for sign in words).split())
    return words if len(words) <= 200 else words[:199] + "…"


def retry_after_s(headers: Any) -> float | None:
    """Seconds that `Retry-After-Ms` or `Retry-After` (seconds or a date) asks for; None where there is none."""
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        text = str(headers.get(name) or "")
        try:
            seconds_s = float(text) * scale
        except ValueError:
            seconds_s = math.nan
        if math.isfinite(seconds_s) and seconds_s >= 0:
            return seconds_s
    try:
        date = email.utils.parsedate_tz(str(headers.get("retry-after") or "")[:100])
        return None if date is None else max(email.utils.mktime_tz(date) - time.time(), 0.0)
    except (ValueError, OverflowError, TypeError, IndexError):  # a day or a year that no calendar has
        return None
