"""What a hostile endpoint does below the words: connections, headers, encodings, bytes, and the shape of its JSON."""

# ruff: noqa: E501  a row of a table is a line
from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from tests.agent.server import CUT, Plain, Raw, Stream, Wait, chunk, error, text, usage
from tests.hostile.attack import KEY, Attack, Behaviour, Body, spellings

DEEP = 100_000
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
UNREAD = "too large or compressed"
NO_STREAM = "not a stream of chat completion chunks"
BROKE_OFF = "was cut off"
IN_TIME = "within"


@cache
def bomb(wbits: int = 31) -> bytes:
    """3 GB of a stream that ends nowhere, in 3 MB; wbits as of zlib."""
    packer = zlib.compressobj(9, zlib.DEFLATED, wbits)
    head = packer.compress(b"data: " + json.dumps(chunk({"reasoning_content": "x"})).encode() + b"\n\n")
    head += packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(b" " * 1_000_000) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + block * 3000


def line(value: Any) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def said(*lines: bytes) -> Stream:
    return Stream(lines)


def raw(head: bytes, parts: Iterable[bytes | Wait] = ()) -> Raw:
    again = tuple(parts) if isinstance(parts, tuple | list) else None
    return Raw(lambda: itertools.chain([head], again if again is not None else parts))


def endless(head: bytes, part: bytes, every_s: float = 0.0) -> Raw:
    def parts() -> Iterator[bytes | Wait]:
        yield head
        while True:
            yield part
            if every_s:
                yield Wait(for_s=every_s)

    return Raw(parts)


def drip(data: bytes) -> Raw:
    """One byte a second, told four times as fast."""
    return Raw(lambda: itertools.chain.from_iterable((bytes([byte]), Wait(for_s=0.25)) for byte in data))


def packed(encoding: str, wbits: int = 31) -> Plain:
    return Plain(200, bomb(wbits), (("Content-Encoding", encoding),), "text/event-stream")


def moved(status: int) -> Any:
    def reply(body: Body, attack: Attack) -> Plain:
        return Plain(status, b"", (("Location", f"{attack.elsewhere}/chat/completions"),))

    return reply


def shaped(value: Any) -> Stream:
    """A chunk of this shape, then the end of an answer that says nothing."""
    return said(line(value), line(chunk({}, "stop")))


def choice(value: Any) -> Stream:
    return shaped(chunk({}) | {"choices": value})


def delta(value: Any) -> Stream:
    return choice([{"index": 0, "delta": value, "finish_reason": None}])


def counted(tokens_in: Any, tokens_out: Any = 7, **more: Any) -> Stream:
    spent = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out} | more
    return text("I claim no number here.", counted=usage() | {"usage": spent})


HTML = b"<html><script>alert(1)</script><h1>Welcome to nginx!</h1></html>"
WHOLE = OK + b"\r\n" + line(chunk({"content": "Slow."})) + line(chunk({}, "stop")) + b"data: [DONE]\n\n"
HELD = tuple(chunk({"content": piece}) for piece in ("The step ", "is bound ", "by "))

CONNECTIONS = (
    Behaviour("gzip bomb of 3 GB", packed("gzip"), says=UNREAD),
    Behaviour("bomb, packed twice", packed("gzip, gzip"), says=UNREAD),
    Behaviour("bomb, as deflate", packed("deflate", 15), says=UNREAD),
    Behaviour("bomb, as an encoding that nobody knows", packed("snow"), says=UNREAD),
    Behaviour("bomb, as a character set", Plain(200, bomb(15), (), "application/json; charset=zlib"), says=NO_STREAM),
    Behaviour("error page that is a bomb", Plain(500, bomb(15), (), "text/html; charset=zlib"), says="status 500"),
    Behaviour("endless words", endless(OK + b"\r\n", line(chunk({"content": "and " * 200}))), says="cut off|within"),
    Behaviour("endless thoughts", endless(OK + b"\r\n", line(chunk({"reasoning_content": "x" * 9999}))), says=UNREAD),
    Behaviour("endless comments", endless(OK + b"\r\n", b": ping\n\n" * 999), says=UNREAD),
    Behaviour("endless line", endless(OK + b"\r\n", b"data: " + b"x" * 9999), says=UNREAD),
    Behaviour("endless JSON", endless(OK.replace(b"text/event-stream", b"application/json") + b"\r\n", b" " * 9999), says=UNREAD),
    Behaviour("endless error", endless(b"HTTP/1.1 500 Oh\r\n\r\n", b"x" * 9999), says=UNREAD),
    Behaviour("endless header", endless(OK + b"X-Long: ", b"x" * 9999), says=BROKE_OFF),
    Behaviour("endless headers", endless(OK, b"X-Many: 1\r\n" * 999), says=BROKE_OFF),
    Behaviour("endless early hints", endless(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n", 0.01), says=IN_TIME, time_s=1.5),
    Behaviour("one byte a second", drip(WHOLE), says=IN_TIME, time_s=1.5),
    Behaviour("one byte of a header a second", drip(OK + b"X-Long: " + b"x" * 999), says=IN_TIME, time_s=1.5),
    Behaviour("one word a second", endless(OK + b"\r\n", line(chunk({"content": "and "})), 0.25), says=IN_TIME, time_s=1.5),
    Behaviour("says nothing", Plain(before=Wait()), says=IN_TIME, time_s=1.5),
    Behaviour("stops midway", Stream((*HELD, CUT)), says=BROKE_OFF),
    Behaviour("ends without an end", text("The step is bound by", finish=None), says=BROKE_OFF),
    Behaviour("announces more than it sends", raw(OK + b"Content-Length: 10000\r\n\r\n", (line(HELD[0]),)), says=BROKE_OFF),
    Behaviour("announces less than nothing", raw(OK + b"Content-Length: -5\r\n\r\n"), says=BROKE_OFF),
    Behaviour("chunks of no size", raw(OK + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n"), says=BROKE_OFF),
    Behaviour("speaks another protocol", raw(b"220 mail.example ESMTP\r\n"), says=BROKE_OFF),
    Behaviour("hangs up", raw(b""), says=BROKE_OFF),
    *(Behaviour(f"redirect {status}", moved(status), says="redirects to another address") for status in (301, 308)),
    Behaviour("HTML with status 200", Plain(200, HTML, (), "text/html"), says="answered with text/html"),
    Behaviour("HTML as a stream", said(HTML), says=BROKE_OFF),
    Behaviour("HTML with status 500", Plain(500, HTML * 100_000, (), "text/html"), says="status 500"),
    Behaviour("content type with markup", Plain(200, HTML, (), "<script>alert(1)</script>"), says="answered with"),
    Behaviour("nothing at all", Plain(200, b"", (), "application/json"), says="."),
    Behaviour("status 204", Plain(204), says="."),
    Behaviour("status 999", raw(b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n"), says="."),
    Behaviour("deep error", Plain(400, b'{"error": {"message": ' + b"[" * 3000 + b"]" * 3000 + b"}}"), says="status 400"),
    Behaviour("error of 10 MB", error(400, "x" * 10_000_000), says="status 400"),
    Behaviour("error that is not one", Plain(400, {"error": {"message": {"a": [None]}, "code": [], "param": {}}}), says="status 400"),
    *(
        Behaviour(f"retry after {when!r}", error(429, "Wait", headers={"Retry-After": when}), says="too many requests", time_s=1.5)
        for when in ("Fri, 31 Dec 9999 23:59:59 +9999", "1e308", "nan")
    ),
    *(
        Behaviour(f"key in an error, {how}", error(400, f"Incorrect API key: {key} is none"), says=".")
        for how, key in list(spellings().items())[::2]
    ),
    Behaviour("key in a refusal", Stream((chunk({"refusal": f"I will not say {' '.join(KEY)}"}), chunk({}, "stop"))), says="declined"),
)  # fmt: skip

SHAPES = (
    Behaviour("invalid UTF-8", said(line(b'{"choices": [{"delta": {"content": "\xff\xfe"}}]}')), says="."),
    Behaviour("invalid UTF-8, whole", Plain(200, b'{"choices": [{"message": {"content": "\xff"}}]}'), says=BROKE_OFF),
    Behaviour("no choices", shaped(chunk({}) | {"choices": []}), says="answer is empty"),
    Behaviour("choices are an object", choice({"0": 1}), says="."),
    Behaviour("choices are numbers", choice([1, 2]), says="."),
    Behaviour("no content", delta({"content": None}), says="answer is empty"),
    Behaviour("content is a number", delta({"content": 17}), says="."),
    Behaviour("content is a list", delta({"content": [{"type": "image_url", "image_url": "http://evil.example/"}]}), says="."),
    Behaviour("the delta is a list", delta([1]), says="."),
    Behaviour("tool calls are a number", delta({"tool_calls": 5}), says="."),
    Behaviour("a call is a text", delta({"tool_calls": ["kpis"]}), says="."),
    Behaviour("a function is a text", delta({"tool_calls": [{"index": 0, "function": "kpis"}]}), says="."),
    Behaviour("a chunk is null", said(line(None)), says="."),
    Behaviour("a chunk is a text", said(line("HBM.")), says="."),
    Behaviour("a finish that is none", choice([{"index": 0, "delta": {}, "finish_reason": {"a": 1}}]), says="."),
    Behaviour("nested 100,000 deep", said(line(b"[" * DEEP)), says="."),
    Behaviour("content nested 100,000 deep", said(line(b'{"choices": [{"delta": {"content": ' + b"[" * DEEP + b"]" * DEEP + b"}}]}")), says="."),
    Behaviour("whole body nested 100,000 deep", Plain(200, b'{"choices": ' + b"[" * DEEP + b"]" * DEEP + b"}"), says=NO_STREAM),
    Behaviour("an error as deep", said(line(b'{"error": {"message": ' + b"[" * 900 + b"]" * 900 + b"}}")), says="."),
    Behaviour("Infinity and NaN", said(line(b'{"choices": [{"index": NaN, "delta": {"content": "I claim no number."}, "finish_reason": "stop"}], "created": Infinity}')), stands="either"),
    Behaviour("integer of 5,000 digits", said(line(b'{"choices": [{"index": ' + b"9" * 5000 + b"}]}")), says="."),
    Behaviour("an error within the stream", said(line(HELD[0]), line({"error": {"message": f"key {KEY}"}})), says="failed within its answer"),
    Behaviour("a model's name of 1 MB", said(line(chunk({"content": "I claim no number."}) | {"model": "m" * 1_000_000}), line(chunk({}, "stop"))), stands="model"),
    Behaviour("the key as a model's name", said(line(chunk({"content": "I claim no number."}) | {"model": KEY}), line(chunk({}, "stop") | {"model": KEY})), stands="model"),
    Behaviour("several choices at once", said(*(line(chunk({}) | {"choices": [{"index": n, "delta": {"content": word}, "finish_reason": None}]}) for word in ("I claim ", "no number.") for n in (0, 1)), line(chunk({}, "stop"))), stands="model", absent=("I claim I claim",)),
    Behaviour("finish tool_calls without a call", text("I claim no number here.", finish="tool_calls"), stands="model"),
    Behaviour("finish stop, then length", said(line(chunk({"content": "I claim no number."}, "stop")), line(chunk({}, "length"))), stands="either"),
    Behaviour("finish content_filter after an answer", text("I claim no number here.", finish="content_filter"), says="declined"),
    *(
        Behaviour(f"counts {count!r} tokens", counted(count), stands="either")
        for count in (10**12, -5, "many", float("nan"), {"a": 1}, 1e300)
    ),
    Behaviour("counts less than it cached", counted(0, 7, prompt_tokens_details={"cached_tokens": 9_000_000}), stands="model",
              more={"ASAP_LLM_PRICES": '{"scripted": {"input": 1, "output": 2}}'}),
)  # fmt: skip
