"""A message as what is to be computed: requests for capabilities with their values, in its order, or the nearest ones
where none is certain enough.

Each clause is read by itself: what it states (`stated`), else which capability it asks for (`wanted`), with the values
that it names (`notation`).  A clause that names values and nothing else asks again what was asked last.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from proposals.agents import notation
from proposals.agents.capabilities import Capability, command, registry
from proposals.agents.capabilities.held import Released
from proposals.agents.conversation import Turn
from proposals.agents.filling import Sizes
from proposals.agents.notation import Knows, Read, written
from proposals.agents.reasoner import wanted
from proposals.agents.reasoner.stated import statement

#: Clauses of a message that are answered, and messages that are read again for what was asked last.
MOST, LOOKED_BACK = 4, 4
#: Words of a fragment that is no clause by itself, such as `Sure?`.
SHORT = 2
_SPLIT = re.compile(
    r"(?<=[.?!;])\s+(?=\S)|\n+|,?\s+(?:and|but|also|then)\s+(?=(?:also\s+)?(?:what|which|how|why|where|when|is|are|does|do|"
    r"can|could|should|show|explain|compare|tell|give|would|will|who)\b)",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    r"^(?:and|also|then|so|ok so|what about|how about|with|but|same|or|no wait)\b|\b(?:it|that|them|those|the "
    r"same|its|there|both)\b",
    re.IGNORECASE,
)
#: Words that ask for nothing by themselves.
_EMPTY = wanted.tokens(
    "and or but so then what how about if with for the a an to it that this these those same instead ok okay "
    "please pls only "
    "now too also is be would one ones of on in at we i you use using try go make set let mesh proposal batch "
    "chip chips again "
    "no wait take everything else"
)
_ORDERS = re.compile(r"^\s*(?:hi|hello|thanks|thank you|ok|okay|please|well|hm+)\b[\s,.!:]*", re.IGNORECASE)


@dataclass(frozen=True)
class Request:
    """A capability with the values of its form.  read: the clause it was read in; supposed: facts by configuration path
    under which it is to be computed."""

    of: Capability
    values: dict[str, Any] = field(default_factory=dict)
    read: Read = field(default_factory=Read)
    supposed: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Offer:
    """A clause that was not understood, and the nearest capabilities as messages that ask for them."""

    text: str
    options: tuple[str, ...]


Understood = Sequence[Request | Offer]


def understand(text: str, knows: Knows, earlier: Sequence[Turn] = ()) -> Understood:
    """What a message asks for and states, in its order."""
    if (exact := commanded(text)) is not None:
        return (exact,)
    last = _last(earlier, knows)
    found: list[Request | Offer] = []
    for clause in list(clauses(text))[: 2 * MOST]:
        read = notation.read(clause, knows)
        told = statement(read, knows.config.mesh)
        if told is not None:
            key = "forget" if isinstance(told, Released) else "hold"
            found.append(Request(registry()[key], told.model_dump(exclude_defaults=True), read))
            continue
        before = next((item for item in reversed(found) if isinstance(item, Request)), last)
        asked = _asked(read, knows, before)
        if asked is not None:
            found.append(asked)
    return _settled(found, text, knows, last)


def commanded(text: str) -> Request | None:
    """A message of the palette: a capability's title, a colon, and `name = value` separated by semicolons."""
    title, colon, rest = text.strip().partition(":")
    of = next((item for item in registry().values() if item.title == title.strip()), None) if colon else None
    if of is None:
        return None
    pairs = (part.partition("=") for part in rest.split(";") if "=" in part)
    values = {name.strip(): value.strip() for name, _, value in pairs}
    return Request(of, {name: _typed(of, name, value) for name, value in values.items()}, Read((), rest, text))


def _typed(of: Capability, name: str, value: str) -> Any:
    """A value of a palette's message as its field takes it; sequences are separated by commas, or by bars."""
    info = of.arguments.model_fields.get(name)
    if info is not None and str(info.annotation).startswith("tuple"):
        bars = name == "meshes" or "|" in value
        return [part.strip() for part in value.split("|" if bars else ",") if part.strip()]
    return value


def clauses(text: str) -> Iterator[str]:
    """Sentences, and halves of sentences that ask something of their own; a word or two go with what follows."""
    held = ""
    for part in _SPLIT.split(text[: notation.LONGEST]):
        part = _ORDERS.sub("", part.strip(" ,;"))
        if not re.search(r"\w", part):
            continue
        held = f"{held} {part}".strip()
        if len(held.split()) > SHORT or re.search(r"\d", part):
            yield held
            held = ""
    if held:
        yield held


def _asked(read: Read, knows: Knows, last: Request | None) -> Request | Offer | None:
    """What one clause asks for; None where it asks for nothing at all."""
    content = wanted.tokens(read.words) - _EMPTY
    goes_on = bool(_GOES_ON.search(read.text))
    alone = read.names <= {"number", "proposal"}
    if last is not None and not content and read.values and (goes_on or alone):
        same = _again(last, read)
        if same is not None:
            return same
    words, again = read.words, last is not None and len(content) < 2 and not read.values
    if last is not None and again:
        words = f"{words} {last.of.title}"  # `why?`, `how sure?`: of what was asked last
    ranked = [item for item in wanted.nearest(words, read.names) if not (again and last and item[0] == last.of.key)]
    key, chance = ranked[0]
    carried = last if goes_on or again else None
    if chance >= wanted.weights().least:
        return request(registry()[key], read, knows, carried)
    options = [request(registry()[name], read, knows, carried) for name, _ in ranked[: wanted.OFFERED]]
    return Offer(read.text, tuple(command(item.of, item.values) for item in options))


def request(of: Capability, read: Read, knows: Knows, last: Request | None) -> Request:
    """The clause's values as those of a form; what it leaves open, where it goes on, from the last request."""
    values = filled(of, read, knows.proposals)
    if last is not None:
        shared = {
            k: v for k, v in last.values.items() if k in of.fields and k not in values and k not in ("text", "sentence")
        }
        values = {**shared, **values} if not values.keys() & {"mesh", "proposal", "proposals"} else values
    supposed = (
        {"model.name": read.of("model_name")[0]} if read.of("model_name") and "model_name" not in of.fields else {}
    )
    return Request(of, values, read, supposed)


def filled(of: Capability, read: Read, proposals: Collection[int]) -> dict[str, Any]:
    """The fields of a form that the values of a clause fill."""
    found: dict[str, Any] = {}
    numbers = read.of("proposal") or [n for n in read.of("number") if n in proposals]
    for name in of.fields:
        if name == "proposals":
            if numbers:
                found[name] = tuple(dict.fromkeys(numbers))[:4]
        elif name == "proposal":
            if read.of("proposal"):
                found[name] = read.of("proposal")[0]
        elif name == "mesh":
            if read.of("mesh"):
                found[name] = written(read.of("mesh")[0])
        elif name == "meshes":
            if len(read.of("mesh")) > 1:
                found[name] = tuple(written(each) for each in read.of("mesh")[:4])
                found.pop("mesh", None)
        elif name == "xla_flags":
            if read.of(name):
                found[name] = tuple(read.of(name))
        elif name == "text":
            found[name] = read.text[:400]
        elif read.of(name):
            found[name] = read.of(name)[0]
    if "meshes" in found:
        found.pop("mesh", None)
    return found


#: Values that a number alone may stand for again, and fields that other values of a clause replace.
_COUNTED = ("batch", "seq_len", "micro_batches", "chips", "proposal", "finding")


def _again(last: Request, read: Read) -> Request | None:
    """The last request with the values of a clause that names nothing else: `and 8?`, `the second one?`."""
    values = dict(last.values)
    mine = filled(last.of, read, ())
    mine.pop("text", None)
    number = next(iter(read.of("number")), None)
    if not mine and number is not None:
        sizes = last.read.of("mesh")
        single = sizes[-1].ici if sizes and isinstance(sizes[-1], Sizes) else {}
        if len(single) == 1 and "mesh" in values:
            mine = {"mesh": f"{next(iter(single))}={number}"}
        else:
            name = next((each for each in _COUNTED if each in values), "")
            mine = {name: number} if name else {}
    if not mine:
        return None
    return Request(last.of, {**values, **mine}, Read(read.values, last.read.words, read.text), last.supposed)


def _settled(found: list[Request | Offer], text: str, knows: Knows, last: Request | None) -> Understood:
    """What was read; where nothing is certain enough, the message as a whole is read.

    Beside what is answered only the first clause that asks is offered: a remark that was not understood asks nothing.
    """
    requests = [item for item in found if isinstance(item, Request)]
    if not requests and len(found) > 1:
        whole = _asked(notation.read(text, knows), knows, last)
        return (whole,) if whole is not None else found[:1]
    if not requests:
        return found[:1]
    kept: list[Request | Offer] = []
    offered = next((item for item in found if isinstance(item, Offer) and item.text.rstrip().endswith("?")), None)
    for item in found:
        if isinstance(item, Offer):
            kept += [item] if item is offered else []
        elif all(
            (item.of.key, _plain(item.values)) != (other.of.key, _plain(other.values))
            for other in kept
            if isinstance(other, Request)
        ):
            kept.append(item)
    return _one_hold(kept)[:MOST]


def _plain(values: dict[str, Any]) -> str:
    return str({key: value for key, value in values.items() if key not in ("text", "sentence")})


def _one_hold(kept: list[Request | Offer]) -> Understood:
    """Statements of one message held together, before what it asks is answered."""
    told = [item for item in kept if isinstance(item, Request) and item.of.key in ("hold", "forget")]
    rest = [item for item in kept if item not in told]
    holds = [item for item in told if item.of.key == "hold"]
    if len(holds) < 2:
        return [*told, *rest]
    values: dict[str, Any] = {}
    for item in holds:
        values |= item.values
    values["sentence"] = " ".join(str(item.values.get("sentence", "")) for item in holds)[:300]
    released = [item for item in told if item.of.key != "hold"]
    return [Request(holds[0].of, values, holds[0].read), *released, *rest]


def _last(earlier: Sequence[Turn], knows: Knows) -> Request | None:
    """What was asked last, read again from the user's own messages."""
    last: Request | None = None
    for turn in [turn for turn in earlier if turn.role == "user"][-LOOKED_BACK:]:
        if (exact := commanded(turn.text)) is not None:
            last = exact
            continue
        for clause in clauses(turn.text):
            read = notation.read(clause, knows)
            if statement(read, knows.config.mesh) is not None:
                continue
            asked = _asked(read, knows, last)
            last = asked if isinstance(asked, Request) else last
    return last
