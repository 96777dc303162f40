"""A message as what is to be computed: requests for capabilities with their values, in its order, or the nearest ones
where none is certain enough.

Each clause is read by itself: what it states (`stated`), else which capability it asks for (`wanted`), with the values
that it names (`notation`).  A clause that names values and nothing else asks again what was asked last.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from proposals.agents import notation
from perfmodel.config import ExperimentConfig
from proposals.agents.capabilities import Capability, command, registry
from proposals.agents.capabilities.common import SETTINGS as KEYS
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
#: How certain a request is that was read from values or from the palette.
SURE = 0.95
#: Least chance of a reading that is computed at all, to be judged with its answer.
WORTH = 0.3
#: Options that are offered.
OFFERED = wanted.OFFERED
#: Values that configure a run.
SETTINGS = frozenset(
    ("mesh", "chip", "chips", "batch", "seq_len", "micro_batches", "remat", "precision", "weight_sharding",
     "optimizer")
)  # fmt: skip
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
    under which it is to be computed; chance: that this is what the clause asks for; follows: it goes on from an earlier
    message; others: further messages that the clause may mean, the likeliest first."""

    of: Capability
    values: dict[str, Any] = field(default_factory=dict)
    read: Read = field(default_factory=Read)
    supposed: dict[str, Any] = field(default_factory=dict)
    chance: float = SURE
    follows: bool = False
    others: tuple[str, ...] = ()

    @property
    def told(self) -> bool:
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


def understand(text: str, knows: Knows, earlier: Sequence[Turn] = ()) -> Understood:
    """What a message asks for and states, in its order."""
    if (exact := commanded(text)) is not None:
        return (exact,)
    last = _last(earlier, knows)
    found: list[Request | Offer | Outside] = []
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


def _asked(read: Read, knows: Knows, last: Request | None) -> Request | Offer | Outside | None:
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
    if key == wanted.OUTSIDE and chance >= wanted.weights().least and not read.names & SETTINGS:
        return Outside(read.text)
    carried = last if goes_on or again else None
    near = [item for item in ranked[: OFFERED + 1] if item[0] != wanted.OUTSIDE][:OFFERED]
    options = [request(registry()[name], read, knows, carried, chance) for name, chance in near]
    others = tuple(command(item.of, item.values) for item in options)
    first = replace(options[0], others=others)
    if lost := _lost(first, knows):
        return Offer(read.text, others, lost)
    return first if first.chance >= WORTH else Offer(read.text, others)


def _lost(item: Request, knows: Knows) -> tuple[str, ...]:
    """Values of the clause that the form does not take and that are not those of the current configuration."""
    found = []
    for name in sorted(item.read.names & SETTINGS):
        takes = {name, *wanted.FILLS.get(name, ())} & set(item.of.fields)
        values = item.read.of(name)[1 if takes and "meshes" not in takes else 0 :] if takes != {"mesh", "meshes"} else []
        found += [_spoken(name, value) for value in values if not _runs(name, value, knows.config)]
    return tuple(dict.fromkeys(found))


def _spoken(name: str, value: Any) -> str:
    return written(value) if isinstance(value, Sizes) else f"{name.replace('_', ' ')} {value}"


def _runs(name: str, value: Any, config: ExperimentConfig) -> bool:
    """Whether a value is that of the current configuration."""
    if isinstance(value, Sizes):
        ici, dcn = dict(config.mesh.ici), dict(config.mesh.dcn)
        named = all(ici.get(axis, 1) == size for axis, size in value.ici.items())
        return named and all(dcn.get(axis, 1) == size for axis, size in value.dcn.items()) and not (
            value.factors or (value.positional and value.positional != tuple(ici.values()))
        )  # fmt: skip
    if name in ("chip", "chips"):
        return bool(getattr(config.hardware, name) == value)
    return bool(getattr(config.training, KEYS[name]) == value)


def request(of: Capability, read: Read, knows: Knows, last: Request | None, chance: float) -> Request:
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
    return Request(of, values, read, supposed, chance, last is not None)


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
    kept = Read(read.values, last.read.words, read.text)
    return Request(last.of, {**values, **mine}, kept, last.supposed, follows=True)


def _settled(found: list[Request | Offer | Outside], text: str, knows: Knows, last: Request | None) -> Understood:
    """What was read: all that is likely, else the likeliest; where nothing is, the message as a whole is read.

    Beside what is likely only the first other clause that asks is offered: a remark asks nothing.
    """
    asked = [item for item in found if isinstance(item, Request)]
    if not asked and len(found) > 1:
        whole = _asked(notation.read(text, knows), knows, last)
        return (whole,) if whole is not None else found[:1]
    if not asked:
        return found[:1]
    least = min(wanted.weights().least, max((item.chance for item in asked if not item.told), default=1.0))
    kept: list[Request | Offer | Outside] = []
    offered = False
    for item in found:
        if isinstance(item, Request) and item.chance < least:
            item = Offer(item.read.text, item.others)
        if isinstance(item, Request):
            same = [(o.of.key, _plain(o.values)) for o in kept if isinstance(o, Request)]
            kept += [item] if (item.of.key, _plain(item.values)) not in same else []
        elif item.text.rstrip().endswith("?") and not offered:
            kept, offered = [*kept, item], True
    return _one_hold(kept)[:MOST]


def _plain(values: dict[str, Any]) -> str:
    return str({key: value for key, value in values.items() if key not in ("text", "sentence")})


def _one_hold(kept: list[Request | Offer | Outside]) -> Understood:
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
