"""A scripted OpenAI-compatible server over real HTTP, for tests of everything that talks to a language model.

    with ScriptedServer([calls(("kpis", {})), text("The step is bound by HBM.")]) as server:
        settings = Settings.from_env({"OPENAI_BASE_URL": server.url, "ASAP_LLM_MODEL": "scripted"})

The script is a list of replies, taken in order, or a function from the request's JSON to a reply (a model that obeys
what it reads).  `server.requests` holds what was asked.  A request past the script's end is answered with status 400.
"""

from __future__ import annotations

import json
import math
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: In a stream: the connection breaks here.
CUT = object()


@dataclass(frozen=True)
class Wait:
    """In a stream, or before a reply: nothing more is sent until the event is set or the client hangs up.

    for_s: at most so long (slow tokens).
    """

    until: threading.Event = field(default_factory=threading.Event)
    for_s: float = math.inf


@dataclass(frozen=True)
class Stream:
    """Server-sent events: chunks as JSON, bytes as they are, `Wait`, `CUT`."""

    parts: tuple[Any, ...]
    done: bool = True


@dataclass(frozen=True)
class Plain:
    """Any other reply.  before: holds back the status line."""

    status: int = 200
    body: Any = b""
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = "application/json"
    before: Wait | None = None


@dataclass(frozen=True)
class Raw:
    """The bytes of the connection, status line included, as long as the iterator has some, then its end; `Wait`."""

    parts: Callable[[], Iterable[bytes | Wait]]


Reply = Stream | Plain | Raw
Script = Sequence[Reply] | Callable[[dict[str, Any]], Reply]


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted-2026"}
    return head | {"choices": choices} | more


def usage(tokens_in: int = 100, tokens_out: int = 20) -> dict[str, Any]:
    counted = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}
    return chunk({}) | {"choices": [], "usage": counted}


def pieces(words: str, size: int = 7) -> list[str]:
    return [words[i : i + size] for i in range(0, len(words), size)]


def text(
    words: str, *, finish: str | None = "stop", counted: dict[str, Any] | None = None, done: bool = True
) -> Stream:
    """A text, in pieces of seven characters; finish None: the stream ends without saying so."""
    parts = [chunk({"role": "assistant", "content": ""}), *(chunk({"content": piece}) for piece in pieces(words))]
    if finish is not None:
        parts += [chunk({}, finish), counted or usage()]
    return Stream(tuple(parts), done)


def answer(value: Any) -> Stream:
    """An answer in a schema."""
    return calls(("answer", value))


def calls(*wanted: tuple[str, Any], said: str = "", counted: dict[str, Any] | None = None) -> Stream:
    """Parallel tool calls, their arguments split over deltas that alternate between the calls; text arguments as is."""
    parts = [chunk({"role": "assistant", "content": said or None})]
    arguments = [each if isinstance(each, str) else json.dumps(each) for _, each in wanted]
    for index, (name, _) in enumerate(wanted):
        call = {"index": index, "id": f"call_{name}_{index}", "type": "function"}
        parts.append(chunk({"tool_calls": [call | {"function": {"name": name, "arguments": ""}}]}))
    split = [pieces(each, 5) for each in arguments]
    for turn in range(max(map(len, split), default=0)):
        for index, each in enumerate(split):
            if turn < len(each):
                parts.append(chunk({"tool_calls": [{"index": index, "function": {"arguments": each[turn]}}]}))
    return Stream((*parts, chunk({}, "tool_calls"), counted or usage()))


def refusal(words: str) -> Stream:
    return Stream((chunk({"role": "assistant", "refusal": words}), chunk({}, "stop"), usage()))


def filtered(words: str) -> Stream:
    return Stream((chunk({"content": words}), chunk({}, "content_filter"), usage()))


def cut(words: str) -> Stream:
    """A text whose connection breaks."""
    return Stream((*(chunk({"content": piece}) for piece in pieces(words)), CUT))


def error(
    status: int, message: str, code: str | None = None, *, headers: dict[str, str] | None = None, **more: Any
) -> Plain:
    body = {"error": {"message": message, "type": "error", "code": code, "param": None} | more}
    return Plain(status, body, tuple((headers or {}).items()))


def overflow() -> Plain:
    said = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
    return error(400, said, "context_length_exceeded")


@dataclass(frozen=True)
class Received:
    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    body: dict[str, Any]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return list(self.body["messages"])

    @property
    def tool_names(self) -> list[str]:
        return [each["function"]["name"] for each in self.body.get("tools", ())]


class ScriptedServer:
    """Listens on a free port of the loopback between `__enter__` and `__exit__`."""

    def __init__(self, script: Script = (), models: Iterable[str] = ("scripted",)) -> None:
        self.requests: list[Received] = []
        self.hung_up = threading.Event()  # a client went away in the middle of a reply
        self._respond = script if callable(script) else None
        self._script = [] if callable(script) else list(script)
        self._models = list(models)
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.script = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def left(self) -> int:
        """Replies that nobody asked for."""
        return len(self._script)

    def add(self, *replies: Reply) -> None:
        with self._lock:
            self._script.extend(replies)

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def reply(self, received: Received) -> Reply:
        with self._lock:
            self.requests.append(received)
            if received.path.endswith("/models"):
                return Plain(
                    body={"object": "list", "data": [{"id": each, "object": "model"} for each in self._models]}
                )
            if self._respond is not None:
                return self._respond(received.body)
            return self._script.pop(0) if self._script else error(400, "The script is over.")

    def wait(self, pause: Wait, client: socket.socket) -> bool:
        """Whether the reply may go on; False once the client, or the test, has gone."""
        end_s = time.monotonic() + pause.for_s
        while not pause.until.wait(min(0.01, pause.for_s)) and time.monotonic() < end_s:
            if self._closing.is_set():
                return False
            if select.select([client], [], [], 0)[0] and not client.recv(1, socket.MSG_PEEK):
                self.hung_up.set()
                return False
        return True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    script: ScriptedServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: dict[str, Any]) -> None:
        script = self.server.script
        reply = script.reply(
            Received(self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        )
        if isinstance(reply, Plain):
            self._plain(reply)
            return
        if isinstance(reply, Raw):
            self._raw(reply)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for part in (*reply.parts, *((b"data: [DONE]\n\n",) if reply.done else ())):
                if part is CUT:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                if isinstance(part, Wait):
                    if not script.wait(part, self.connection):
                        self.close_connection = True
                        return
                    continue
                data = part if isinstance(part, bytes) else b"data: " + json.dumps(part).encode() + b"\n\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            script.hung_up.set()
            self.close_connection = True

    def _raw(self, reply: Raw) -> None:
        self.close_connection = True
        try:
            for part in reply.parts():
                if not isinstance(part, Wait):
                    self.wfile.write(part)
                elif not self.server.script.wait(part, self.connection):
                    return
        except OSError:
            self.server.script.hung_up.set()

    def _plain(self, reply: Plain) -> None:
        if reply.before is not None and not self.server.script.wait(reply.before, self.connection):
            self.close_connection = True
            return
        body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        self.send_response(reply.status)
        for name, value in reply.headers:
            self.send_header(name, value)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
