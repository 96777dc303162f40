"""A message as what is to be computed: requests for capabilities with their values, in its order, or the nearest ones
where none is certain enough.

Each clause is read by itself: what it states (`stated`), else which capability it asks for (`intent`), with the values
that it names (`notation`).  A clause that names values and nothing else asks again what was asked last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from proposals.agents import notation
from proposals.agents.capabilities import Capability, command, registry
from proposals.agents.capabilities.configured import Configured
from proposals.agents.capabilities.held import Released
from proposals.agents.conversation import Turn
from proposals.agents.mesh_completion import Sizes
from proposals.agents.notation import ParseContext, Read
from proposals.agents.reasoner import intent
from proposals.agents.reasoner.form import SETTINGS, carried, filled, lost, runs
from proposals.agents.reasoner.statement_parser import asks, statement

#: Clauses of a message that are answered, and messages that are read again for what was asked last.
MOST, LOOKED_BACK = 4, 4
#: Words of a fragment that is no clause by itself, such as `Sure?`.
SHORT = 2
#: How certain a request is that was read from values or from the palette.
SURE = 0.95
#: Least chance of a reading that is computed at all, to be judged with its answer.
WORTH = 0.3
#: From here on the likeliest is that something else than a training run is spoken of.
OUTSIDE = 0.3
#: What a clause may name and be a condition.
_OF_A_RUN = SETTINGS | {"model_name", "number", "quantity", "proposal", "share", "bytes", "topology", "axis"}
#: Areas of what a configuration does; elsewhere its price is no answer.
_OF_CONFIGURATIONS = ("pricing", "parallelism", "other_chips", "cost", "memory")
#: What is asked of by naming it.
_ASKED_OF = SETTINGS | {"proposal", "finding", "op", "number", "xla_flags", "axis"}
#: Options that are offered.
OFFERED = intent.OFFERED
#: Words that ask for no more of a configuration than its price.
_PRICE = intent.tokens(
    "price predict prediction time step faster slower better worth gain win lose good idea node cluster slice total "
    "job run training totally all over same else rest everything as before please interleaved schedule what happens "
    "happen go should could would does do are there here now give me show bad yes legal valid allowed any"
)
_SPLIT = re.compile(
    r"(?<=[.?!;])(?<!\bprop\.)(?<!\bvs\.)\s+(?=\S)|\n+|,?\s+(?:and|but|also|then)\s+"
    r"(?=(?:also\s+)?(?:what|which|how|why|where|when|is|are|does|do|can|could|should|show|explain|compare|tell|give|would|will|who)\b)",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    r"^(?:and|also|then|so|ok so|what about|how about|with|but|same|or|no wait)\b|\b(?:it|that|them|those|the "
    r"same|its|there|both)\b",
    re.IGNORECASE,
)
#: `and full?` after a remat policy; `and 16, so two boxes?` after a number of chips.
_POLICY = re.compile(r"^(?:and|or)?\s*(none|minimal|full|offload)\b\W*$", re.IGNORECASE)
_COUNT = re.compile(r"^and \d+(?=[?,]|$)", re.IGNORECASE)
#: Words that ask for nothing by themselves.
_EMPTY = intent.tokens(
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
    under which it is to be computed; chance: that this is what the clause asks for; follows: it goes on from an earlier
    message; others: further messages that the clause may mean, the likeliest first;
    implied: its values alone say that their price is asked for."""

    of: Capability
    values: dict[str, Any] = field(default_factory=dict)
    read: Read = field(default_factory=Read)
    supposed: dict[str, Any] = field(default_factory=dict)
    chance: float = SURE
    follows: bool = False
    others: tuple[str, ...] = ()
    implied: bool = False

    @property
    def stated(self) -> bool:
        """Whether it is no question, but something stated, or a deed that is a person's."""
        return self.of.key in ("hold", "forget", "decide")


@dataclass(frozen=True)
class Offer:
    """A clause that is not certain enough, and the nearest capabilities as messages that ask for them.  lost: values
    that the likeliest of them does not take."""

    text: str
    options: tuple[str, ...]
    lost: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outside:
    """A clause that asks for nothing about a training run."""

    text: str


Understood = Sequence[Request | Offer | Outside]


def understand(text: str, knows: ParseContext, earlier: Sequence[Turn] = ()) -> Understood:
    """What a message asks for and states, in its order."""
    if (exact := commanded(text)) is not None:
        return (exact,)
    last = _last(earlier, knows)
    understood: list[Request | Offer | Outside] = []
    parts = [notation.read(clause, knows) for clause in list(clauses(text))[: 2 * MOST]]
    questions = any("?" in read.text and intent.tokens(read.rest) - _EMPTY - _PRICE for read in parts)
    conditions: list[Read] = []
    for read in parts:
        stated = statement(read, knows.config)
        if stated is not None:
            key = "forget" if isinstance(stated, Released) else "hold"
            understood.append(Request(registry()[key], stated.model_dump(exclude_defaults=True), read))
            continue
        before = next((item for item in reversed(understood) if isinstance(item, Request) and not item.stated), last)
        if questions and read.names & SETTINGS and read.names <= _OF_A_RUN and not asks(read.text):
            conditions.append(read)
            continue  # a condition of the question beside it
        alone = not intent.tokens(read.rest) - _EMPTY
        if understood and not read.values and not intent.tokens(read.rest) - _EMPTY - _PRICE:
            continue  # `better?` goes with what stands before
        if alone and "?" not in read.text and len(parts) > 1 and read.names and read.names.isdisjoint(_ASKED_OF):
            continue  # `255 GB, ok.`: repeated, and nothing asked of it
        asked = _asked(read, knows, before)
        if asked is not None:
            understood.append(asked)
    settled = _settled([_under(item, conditions) for item in understood], text, knows, last)
    return _with_conditions(settled, text, knows)


def _under(item: Request | Offer | Outside, conditions: Sequence[Read]) -> Request | Offer | Outside:
    """A question with the settings that are named beside it and that it leaves open."""
    if not isinstance(item, Request) or item.stated:
        return item
    named = {name: value for read in conditions for name, value in filled(item.of, read, ()).items()}
    taken = {name: value for name, value in named.items() if name in Configured.model_fields}
    return replace(item, values={**taken, **item.values}) if taken else item


def _with_conditions(parts: Understood, text: str, knows: ParseContext) -> Understood:
    """The one question of a message is asked of the configuration that the whole message names."""
    asked = [item for item in parts if isinstance(item, Request) and not item.stated]
    if len(asked) != 1 or any(isinstance(item, Request) and item.stated for item in parts):
        return parts
    (one,) = asked
    read = notation.read(text, knows)
    whole = {**filled(one.of, read, ()), **one.values}
    mine = {key: value for key, value in whole.items() if key in Configured.model_fields or key in one.values}
    changed = replace(one, values=mine)
    if {item.name for item in read.values} & SETTINGS > one.read.names & SETTINGS:
        changed = replace(changed, read=replace(read, words=one.read.words))
    gone = lost(changed.of, changed.read, knows.config)
    if gone or _unchanged(changed, knows):
        options = tuple(dict.fromkeys([command(one.of, mine), *one.others]))[:OFFERED]
        if gone and (price := _priced(changed, options, knows)):
            return [price if item is one else item for item in parts]
        return [Offer(text, options, gone) if item is one else item for item in parts]
    return [changed if item is one else item for item in parts]


def _priced(item: Request, others: Sequence[str], knows: ParseContext) -> Request | None:
    """The price of the configuration that a clause names, in the place of what does not take all of it."""
    price = registry()["price_mesh"]
    if item.of.area not in _OF_CONFIGURATIONS or lost(price, item.read, knows.config):
        return None
    named = {**item.values, **filled(price, item.read, knows.proposals)}
    values = {key: value for key, value in named.items() if key in price.fields}
    return replace(item, of=price, values=values, others=tuple(others)) if values else None


def _unchanged(item: Request, knows: ParseContext) -> bool:
    """Whether a change is asked for, and all that is named runs already."""
    named = [value for value in item.read.values if value.name in SETTINGS]
    what_if = item.of.area in ("pricing", "parallelism", "other_chips") and item.of.key != "why_not"
    same = all(runs(value.name, value.value, knows.config) for value in named)
    return what_if and bool(named) and same and set(item.values) <= {value.name for value in named}


def commanded(text: str) -> Request | None:
    """A message of the palette: a capability's title, a colon, and `name = value` separated by semicolons."""
    title, colon, rest = text.strip().partition(":")
    if not colon:
        return None
    of = next((i for key, i in registry().items() if title.strip() in (i.title, intent.fitted_title(key))), None)
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


def _asked(read: Read, knows: ParseContext, last: Request | None) -> Request | Offer | Outside | None:
    """What one clause asks for; None where it asks for nothing at all."""
    content = intent.tokens(read.rest) - _EMPTY
    goes_on = bool(_GOES_ON.search(read.text))
    configures = bool(read.names & SETTINGS)
    alone = read.names <= {"number", "proposal"}
    if last is not None and (policy := _POLICY.match(read.text)) and "remat" in last.values:
        return replace(last, values={**last.values, "remat": policy[1].lower()}, read=read, follows=True)
    count = _COUNT.match(read.text)
    if last is not None and read.values and ((not content and (goes_on or alone or configures)) or count):
        same = _again(last, read, knows)
        if same is not None:
            return same
    if configures and not content - _PRICE:
        price = request(registry()["price_mesh"], read, knows, last if goes_on else None, SURE)
        others = tuple(command(registry()[key], price.values) for key in ("fits", "why_not"))
        gone = lost(price.of, price.read, knows.config)
        given = command(price.of, price.values)
        return Offer(read.text, (given, *others), gone) if gone else replace(price, others=others, implied=True)
    words, again = read.words, last is not None and len(content) < 2 and not read.values
    if last is not None and again:
        words = f"{words} {intent.fitted_title(last.of.key)}"  # `why?`, `how sure?`: of what was asked last
    ranked = [item for item in intent.nearest(words, read.names) if not (again and last and item[0] == last.of.key)]
    key, chance = ranked[0]
    if key == intent.OUTSIDE and chance >= OUTSIDE and not configures:
        return Outside(read.text)
    carried = last if goes_on or again else None
    # What is held or released has a form of its own (`stated`), and this clause has another.
    near = [item for item in ranked[: OFFERED + 3] if item[0] not in (intent.OUTSIDE, "hold", "forget")][:OFFERED]
    options = [request(registry()[name], read, knows, carried, chance) for name, chance in near]
    others = tuple(command(item.of, item.values) for item in options)
    first = replace(options[0], others=others)
    if gone := lost(first.of, first.read, knows.config):
        return _priced(first, others, knows) or Offer(read.text, others, gone)
    return first if first.chance >= WORTH else Offer(read.text, others)


def request(of: Capability, read: Read, knows: ParseContext, last: Request | None, chance: float) -> Request:
    """The clause's values as those of a form; what it leaves open, where it goes on, from the last request."""
    values = filled(of, read, knows.proposals)
    if last is not None:
        values = carried(last.values, values, of, knows.config)
    supposed = (
        {"model.name": read.of("model_name")[0]} if read.of("model_name") and "model_name" not in of.fields else {}
    )
    return Request(of, values, read, supposed, chance, last is not None)


#: Values that a number alone may stand for again, and fields that other values of a clause replace.
_COUNTED = ("batch", "seq_len", "micro_batches", "chips", "proposal", "finding")


def _again(last: Request, read: Read, knows: ParseContext) -> Request | None:
    """The last request with the values of a clause that names nothing else: `and 8?`, `the second one?`."""
    mine = filled(last.of, read, ())
    mine.pop("text", None)
    number = next(iter(read.of("number")), None)
    if not mine and number is not None:
        sizes = last.read.of("mesh")
        single = sizes[-1].ici if sizes and isinstance(sizes[-1], Sizes) else {}
        if len(single) == 1 and "mesh" in last.values:
            mine = {"mesh": f"{next(iter(single))}={number}"}
        else:
            name = next((each for each in _COUNTED if each in last.values), "")
            mine = {name: number} if name else {}
    kept = Read(read.values, last.read.words, read.text)
    if not mine or lost(last.of, kept, knows.config):
        return None
    text = {"text": last.values["text"]} if "text" in last.values else {}
    values = {**text, **carried(last.values, mine, last.of, knows.config)}
    return Request(last.of, values, kept, last.supposed, follows=True, implied=True)


def _settled(read: list[Request | Offer | Outside], text: str, knows: ParseContext, last: Request | None) -> Understood:
    """What was read: all that is likely, else the likeliest; where nothing is, the message as a whole is read.

    Beside what is likely only the first other clause that asks is offered: a remark asks nothing.
    """
    asked = [item for item in read if isinstance(item, Request)]
    outside = [item for item in read if isinstance(item, Outside)]
    if not asked and outside:
        return outside[:1]
    if not asked and len(read) > 1:
        whole = _asked(notation.read(text, knows), knows, last)
        return (whole,) if whole is not None else read[:1]
    if not asked:
        return read[:1]
    least = min(intent.weights().least, max((item.chance for item in asked if not item.stated), default=1.0))
    kept: list[Request | Offer | Outside] = []
    offered = False
    later = [item for item in asked if not item.implied and not item.stated and item.chance >= least]
    read = [
        item
        for item in read
        if not (
            isinstance(item, Request) and item.implied and any(item.values.items() <= o.values.items() for o in later)
        )
    ]
    for item in read:
        if isinstance(item, Request) and item.chance < least:
            item = Offer(item.read.text, item.others)
        if isinstance(item, Request):
            one = next((each for each in kept if isinstance(each, Request) and _agree(each, item)), None)
            kept = [*kept, item] if one is None else [_joined(one, item) if each is one else each for each in kept]
        elif item.text.rstrip().endswith("?") and not offered:
            kept, offered = [*kept, item], True
    return _one_hold(kept)[:MOST]


def _agree(one: Request, other: Request) -> bool:
    """Whether two clauses ask the same capability for what makes one request: no value of both differs."""
    if one.of.key != other.of.key:
        return False
    if one.stated:
        return one.values == other.values
    both = (one.values.keys() & other.values.keys()) - {"text", "sentence"}
    only = (one.values.keys() ^ other.values.keys()) - {"text", "sentence"}
    settings = only & set(Configured.model_fields)
    return all(one.values[key] == other.values[key] for key in both) and not settings


def _joined(one: Request, other: Request) -> Request:
    """Two clauses as one request, with the words of the first."""
    values = {**other.values, **one.values}
    text = f"{one.read.text} {other.read.text}"
    read = replace(one.read, values=(*one.read.values, *other.read.values), text=text)
    return replace(one, values=values, chance=max(one.chance, other.chance), read=read)


def _one_hold(kept: list[Request | Offer | Outside]) -> Understood:
    """Statements of one message held together, before what it asks is answered."""
    stated = [item for item in kept if isinstance(item, Request) and item.of.key in ("hold", "forget")]
    rest = [item for item in kept if item not in stated]
    holds = [item for item in stated if item.of.key == "hold"]
    if len(holds) < 2:
        return [*stated, *rest]
    values: dict[str, Any] = {}
    for item in holds:
        values |= item.values
    values["sentence"] = " ".join(str(item.values.get("sentence", "")) for item in holds)[:300]
    released = [item for item in stated if item.of.key != "hold"]
    return [Request(holds[0].of, values, holds[0].read), *released, *rest]


def _last(earlier: Sequence[Turn], knows: ParseContext) -> Request | None:
    """What was asked last, read again from the user's own messages."""
    last: Request | None = None
    for turn in [turn for turn in earlier if turn.role == "user"][-LOOKED_BACK:]:
        if (exact := commanded(turn.text)) is not None:
            last = exact
            continue
        for clause in clauses(turn.text):
            read = notation.read(clause, knows)
            if statement(read, knows.config) is not None:
                continue
            asked = _asked(read, knows, last)
            last = asked if isinstance(asked, Request) else last
    return last
