"""What a run of an agent may say: the numbers, names, meshes and ids of its tool results, and of the user's words."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from agent.events import ToolReturned
from perfmodel.config import ROLES
from proposals.agents import expressions
from proposals.agents.grounding_claims import Kind, Number, numbers, sentences
from proposals.agents.grounding_facts import CURRENT, Fact, Mesh, axis_sizes, mesh_of, named, products
from proposals.agents.grounding_shown import is_constant


@dataclass
class Evidence:
    """Tool results of a run, and what the user said.

    facts: numbers; texts: every text in the results; meshes: configurations named there or by the user; sizes: per axis
    every size named; ids: of records and passages returned, by result; words: the user's.
    """

    results: tuple[ToolReturned, ...]
    words: tuple[str, ...] = ()
    facts: list[Fact] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)
    meshes: dict[Mesh, set[str]] = field(default_factory=dict)
    baseline: Mesh | None = None
    axes: set[str] = field(default_factory=lambda: set(ROLES))
    sizes: dict[str, set[int]] = field(default_factory=dict)
    proposals: dict[int, set[str]] = field(default_factory=dict)
    mesh_of_proposal: dict[int, Mesh] = field(default_factory=dict)
    records: dict[str, set[str]] = field(default_factory=dict)
    passages: dict[str, set[str]] = field(default_factory=dict)
    ops: dict[str, set[str]] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)
    orders: set[tuple[int, ...]] = field(default_factory=set)
    without_profile: bool = False

    @classmethod
    def of(
        cls, results: Iterable[ToolReturned], words: Sequence[str] = (), earlier: Iterable[ToolReturned] = ()
    ) -> Evidence:
        """words: what the user said in this thread, this time and earlier.  earlier: results of its earlier answers,
        which count as well, and are not cited by their ids."""
        evidence = cls(tuple(item for item in results if item.ok), tuple(words))
        every = [*(replace(item, result_id="") for item in earlier if item.ok), *evidence.results]
        for item in every:
            evidence.axes |= set(_axes_in(item.result))
            if item.name == "run" and isinstance(item.result, dict):
                profile = item.result.get("profile")
                evidence.without_profile = not (isinstance(profile, dict) and profile.get("ops"))
        foreign = {text for item in every for text in _names_in(item.result, "")}
        reckoned = [item for item in every if item.name == CALCULATE]
        for item in every:
            if item.name != CALCULATE:
                _Walk(evidence, item, foreign).value(item.result, _At())
        for text in words:
            evidence._tell(text)
        for item in reckoned:  # what is worked out is evidence where what it is worked out from is
            asked = item.arguments if isinstance(item.arguments, dict) else {}
            known = [evidence._required_names(operand) for operand in _operands(str(asked.get("expression", "")))]
            before = len(evidence.facts)
            if all(of is not None for of in known):
                _Walk(evidence, item, foreign).value(item.result, _At())
            if names := [of for of in known if of]:  # what a document says is, worked with, still what it says
                shared = frozenset.intersection(*names)
                evidence.facts[before:] = [replace(f, within=shared) for f in evidence.facts[before:] if shared]
        return evidence

    def _required_names(self, operand: Number) -> frozenset[str] | None:
        """What must be named to reckon with a number: nothing (empty) where it is in the evidence, in the unit of
        its field or as it is printed, else the text in which it does; None where it stands nowhere."""
        if is_constant(operand):
            return frozenset()
        required_names = [
            frozenset[str]() if fact.kind == "bare" and not fact.owners else fact.within
            for fact in self.facts
            if fact.value
            for factor in (1.0, *_PRINTED.get(fact.kind, ()))
            if abs(fact.value / factor - operand.value) <= operand.half * (1 + 1e-9) + 1e-12 * operand.value
        ]
        return min(required_names, key=len, default=None)

    def _tell(self, text: str) -> None:
        pairs = axis_sizes(text, self.axes)
        for pair in pairs:
            self.sizes.setdefault(pair.axis, set()).update({pair.size, pair.last})
        if pairs:
            self.meshes.setdefault(frozenset((pair.axis, pair.last) for pair in pairs if pair.last != 1), set())
        self.orders.update(product.sizes for product in products(text))
        for value, kind in _numbers_in(text):
            self.facts.append(Fact(value, kind, tool="the user", path="what the user said", text=True))

    @cached_property
    def text(self) -> str:
        """All texts and the user's words, in lower case, to look names up in."""
        return "\n".join([*(text for _, text in self.texts), *self.words]).lower()

    @cached_property
    def chips(self) -> frozenset[int]:
        """How many chips the meshes have, and the numbers of chips in the results."""
        counted = (int(f.value) for f in self.facts if f.path.endswith("chips") and f.value == int(f.value))
        return frozenset((*(math.prod(size for _, size in mesh) for mesh in self.meshes), *counted))

    def holding(self, name: str) -> set[str]:
        """Ids of the results that hold a name."""
        return {result for result, text in self.texts if name.lower() in text.lower()}


#: Keys by which a row is about the current configuration or a proposal; the later ones are of results that earlier
#: versions stored in a conversation.
_CURRENT_KEYS = ("current", "what_runs")
_IS_CURRENT_KEYS = ("is_current", "is_what_runs")
_NUMBER_KEYS = ("proposal_number", "stands_as_proposal")
#: The tool whose results are worth what their operands are.
CALCULATE = "calculate"
#: What values are printed in, beside SI.
_PRINTED: dict[Kind, tuple[float, ...]] = {
    "time": (1e-3, 1e-6), "share": (1e-2,), "bytes": (1e6, 1e9), "bytes_per_s": (1e9,), "flops_per_s": (1e12,),
}  # fmt: skip
#: The unit that a key says; what its value was estimated from, or is set against, is none.
_UNITS: tuple[tuple[str, Kind], ...] = (
    ("bytes_per_s", "bytes_per_s"), ("flops_per_s", "flops_per_s"), ("flops_per_byte", "intensity"),
    ("operational_intensity", "intensity"), ("bytes", "bytes"),
    (r"(?:shares?|\w*utilization|\w*efficiency|confidence|mfu)", "share"),
    (r"(?:speedup|over_fastest|over_this|over_own|ratio)", "ratio"), ("flops", "flops"), ("s", "time"),
)  # fmt: skip
_KEYED = [(re.compile(rf"(?<!_from)(?<!_per)(?<!_over)(?:^|_){unit}(?:_|$)"), kind) for unit, kind in _UNITS]
_BY_UNIT: dict[str, Kind] = {
    "s": "time", "share": "share", "bytes": "bytes", "bytes_per_s": "bytes_per_s", "flops_per_s": "flops_per_s",
    "flops": "flops", "speedup": "ratio", "FLOP/byte": "intensity",
}  # fmt: skip


@dataclass(frozen=True)
class _At:
    """Where in a result a value stands, and what is known of it from the keys above."""

    path: tuple[str, ...] = ()
    term: tuple[str, ...] = ()
    owners: frozenset[str] = frozenset()
    kind: Kind | None = None
    predicted: bool = False
    within: frozenset[str] = frozenset()


class _Walk:
    """Reads one tool result into the evidence.  foreign: texts that the product did not write."""

    def __init__(self, evidence: Evidence, returned: ToolReturned, foreign: set[str]) -> None:
        self.evidence, self.returned = evidence, returned
        digits = sorted((text for text in foreign if re.search(r"\d", text)), key=len, reverse=True)
        self._foreign = [text for text in digits if len(text) > 3]

    def value(self, value: Any, at: _At) -> None:
        if isinstance(value, bool) or value is None:
            return
        if isinstance(value, int | float):
            self._add(abs(float(value)), at.kind or "bare", at)
        elif isinstance(value, str):
            self._text(value, at)
        elif isinstance(value, Mapping):
            at = self._identity(value, at)
            for key, item in value.items():
                self.evidence.texts.append((self.returned.result_id, str(key)))
                self.value(item, self._below(value, str(key), at))
        elif isinstance(value, list):
            if value and all(type(item) is int for item in value):
                self.evidence.orders.add(tuple(value))
            if len(value) > 4 and not isinstance(value[0], int | float):
                self._add(len(value), "bare", replace(at, term=()))
            for item in value:
                self.value(item, at)

    def _below(self, row: Mapping[str, Any], key: str, at: _At) -> _At:
        kind = _BY_UNIT.get(str(row["unit"])) if key == "value" and "unit" in row else _kind(key)
        owners = frozenset((CURRENT,)) if key in _CURRENT_KEYS else at.owners
        within = at.within
        if _is_name(key) and isinstance(row.get("kind"), str):
            within |= {row["kind"].lower()}  # what the product calls an op of such a name
        return replace(
            at,
            path=(*at.path, key),
            term=(*at.term, key) if key != "estimate" else at.term,
            owners=owners,
            kind=kind or at.kind,
            predicted=self._is_predicted(key, owners, at),
            within=within,
        )

    def _is_predicted(self, key: str, owners: frozenset[str], at: _At) -> bool:
        """Without a profile only the step time of the current configuration was measured, and its stated values."""
        if CURRENT in owners:
            inside = self.evidence.without_profile and key in ("breakdown_s", "breakdown_share", "communication")
            return (at.predicted and at.owners == owners) or inside
        return at.predicted or "predicted" in key

    def _identity(self, value: Mapping[str, Any], at: _At) -> _At:
        """What a row is about: its configuration, op or document."""
        evidence, result = self.evidence, self.returned.result_id
        if isinstance(value.get("ici"), Mapping):
            self._mesh(value)
        mesh = self._configuration(value)
        if mesh is not None:
            if "experiment" in value or at.path[-1:] == ("configuration",):
                at = replace(at, owners=frozenset((CURRENT,)))
            if CURRENT in at.owners:
                evidence.baseline = mesh
            owners = {mesh_name(mesh)} | ({CURRENT} & at.owners)
            number = value.get("number") or _first(value, _NUMBER_KEYS)
            if isinstance(number, int) and CURRENT not in owners:
                evidence.proposals.setdefault(number, set()).add(result)
                evidence.mesh_of_proposal[number] = mesh
                owners.add(f"proposal {number}")
            kept = value.get("kind") == "keep" or _first(value, _IS_CURRENT_KEYS) is True
            owners |= {CURRENT} if kept else set()
            ran = isinstance(value.get("trial"), int)  # of a campaign
            at = replace(at, owners=frozenset(owners), term=(), predicted=CURRENT not in owners and not ran)
        key, name, id_ = value.get("key"), value.get("name"), value.get("id")
        if isinstance(key, str) and isinstance(name, str) and "category" in value:
            for word in (key.lower(), name.lower()):
                evidence.ops.setdefault(word, set()).add(result)
            called = {
                str(value[of]).lower() for of in ("key", "name", "category", "family", "collective") if value.get(of)
            }
            at = replace(at, within=frozenset(called))
        if isinstance(id_, str) and "title" in value:
            known = evidence.records if "outcome" in value else evidence.passages
            known.setdefault(id_, set()).add(result)
            if "outcome" in value:
                evidence.outcomes[id_] = str(value["outcome"])
            at = replace(at, within=_named_by(value, id_), owners=frozenset((f"record {id_}",)), term=())
        if isinstance(key, str) and "source" in value and "category" not in value:
            known = evidence.records if value["source"] == "history" else evidence.passages
            known.setdefault(key, set()).add(result)
            at = replace(at, within=_named_by(value, key))
        return at

    def _configuration(self, value: Mapping[str, Any]) -> Mesh | None:
        mesh, text = value.get("mesh"), value.get("mesh_text")
        if isinstance(mesh, Mapping) and isinstance(mesh.get("ici"), Mapping):
            return mesh_of(mesh)
        if not isinstance(text, str):
            return None
        pairs = axis_sizes(text, self.evidence.axes)
        for pair in pairs:
            self.evidence.sizes.setdefault(pair.axis, set()).add(pair.size)
        mesh_sizes = frozenset((pair.axis, pair.size) for pair in pairs if pair.size != 1)
        self.evidence.meshes.setdefault(mesh_sizes, set()).add(self.returned.result_id)
        return mesh_sizes

    def _mesh(self, value: Mapping[str, Any]) -> None:
        evidence = self.evidence
        pairs = {axis: size for axis, size in value["ici"].items() if isinstance(size, int)}
        evidence.orders.add(tuple(pairs.values()))
        evidence.orders.add(tuple(size for size in pairs.values() if size > 1))
        pairs |= {f"dcn.{a}": n for a, n in (value.get("dcn") or {}).items() if isinstance(n, int)}
        for axis, size in pairs.items():
            evidence.sizes.setdefault(axis, set()).add(size)
        evidence.meshes.setdefault(mesh_of(value), set()).add(self.returned.result_id)

    def _text(self, text: str, at: _At) -> None:
        self.evidence.texts.append((self.returned.result_id, text))
        for pair in axis_sizes(text, self.evidence.axes):
            self.evidence.sizes.setdefault(pair.axis, set()).update({pair.size, pair.last})
        self.evidence.orders.update(product.sizes for product in products(text))
        own = text
        if at.path and _is_name(at.path[-1]):
            at = replace(at, within=at.within | {text.lower()})
        elif not at.within:
            for foreign in self._foreign:
                own = own.replace(foreign, " ")
        for value, kind in _numbers_in(own):
            self._add(value, kind, at, text=True)

    def _add(self, value: float, kind: Kind, at: _At, text: bool = False) -> None:
        self.evidence.facts.append(
            Fact(
                value, kind, self.returned.result_id, self.returned.name, ".".join(at.path), ".".join(at.term),
                at.owners, at.predicted, text, at.within if text else frozenset(),
            )
        )  # fmt: skip


def _named_by(document: Mapping[str, Any], key: str) -> frozenset[str]:
    """How a text may name a record or passage: by id, by its title, or by what its source is called."""
    source = [part.strip() for part in re.split(r"[(),;]", str(document.get("source", "")))]
    called = [str(document.get("title", "")), *(part for part in source if not _PLACE.match(part))]
    return frozenset((key.lower(), *(name.lower() for name in called if len(name) > 12 and len(name.split()) > 1)))


#: A place in a source.
_PLACE = re.compile(
    r"(?:sections?|chapters?|exercises?|pages?|pp?\.|figures?|tables?|pull request|issue)\b", re.IGNORECASE
)


def mesh_name(mesh: Mesh) -> str:
    """The mesh as the owner of numbers."""
    return f"mesh {named(mesh)}"


#: Keys of texts that come from the user's files.
def _first(row: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return next((row[key] for key in keys if row.get(key)), None)


_FOREIGN = frozenset(("name", "op_name", "hlo", "source", "key", "experiment", "ops", "device", "id", "op", "file"))


def _is_name(key: str) -> bool:
    return key in _FOREIGN


def _names_in(value: Any, key: str) -> Iterator[str]:
    """Names from the user's files, wherever they occur."""
    if isinstance(value, str) and _is_name(key):
        yield value
    elif isinstance(value, Mapping):
        for below, item in value.items():
            yield from _names_in(item, below)
    elif isinstance(value, list):
        for item in value:
            yield from _names_in(item, key)


def _operands(expression: str) -> Iterator[Number]:
    try:
        written = expressions.operands(expression)
    except (SyntaxError, ValueError, RecursionError):
        written = [expression]
    for each in written:
        yield from numbers(each)


#: A shape may have it as `[2,048]`, so that both readings count.
_THOUSANDS = re.compile(r"(?<![\w.,\[(])\d{1,3}(?:,\d{3})+(?![\w,]|\.\d|[\])])")
_TOKEN = re.compile(r"(?<![A-Za-z0-9.])\d+(?:\.\d+)?(?:x\d+)*(?P<scale>[bBmMkK])?(?![A-Za-z0-9]|\.\d)")
_SCALES = {"b": 1e9, "m": 1e6, "k": 1e3}


def _numbers_in(text: str) -> Iterator[tuple[float, Kind]]:
    """Numbers of a text: as it claims them, and what else its names, shapes and codes hold."""
    for sentence in sentences(text):
        for claim in numbers(sentence.text, sentence.header):
            yield claim.value, claim.kind
    for match in _TOKEN.finditer(_THOUSANDS.sub(lambda whole: whole[0].replace(",", ""), text)):
        for digits in match[0].rstrip("bBmMkK").split("x"):
            yield float(digits) * _SCALES.get((match["scale"] or "").lower(), 1.0), "bare"


def _kind(key: str) -> Kind | None:
    return next((kind for pattern, kind in _KEYED if pattern.search(key)), None)


def _axes_in(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if isinstance(value.get("ici"), Mapping):
            yield from value["ici"]
            yield from value.get("dcn") or {}
        for item in value.values():
            yield from _axes_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from _axes_in(item)
