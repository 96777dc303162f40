"""What a run of an agent may say: the numbers, names, meshes and ids of its tool results, and of the user's words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from agent.events import ToolReturned
from perfmodel.config import ROLES
from proposals.agents.grounding_claims import Kind, numbers, sentences
from proposals.agents.grounding_facts import (
    About,
    Fact,
    Mesh,
    axis_sizes,
    clause,
    keyed,
    mesh_of,
    named,
    products,
    quantities,
    stems,
)


@dataclass
class Evidence:
    """Tool results of a run, and what the user said.

    facts: numbers; texts: every text in the results; meshes: configurations named there or by the user; sizes: per axis
    every size named; ids: of records and passages returned, by result; words: the user's.
    """

    results: tuple[ToolReturned, ...]
    words: tuple[str, ...] = ()
    facts: list[Fact] = field(default_factory=list)
    told: list[Fact] = field(default_factory=list)
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

    @classmethod
    def of(cls, results: Iterable[ToolReturned], words: Sequence[str] = ()) -> Evidence:
        """words: what the user said in this thread, this time and earlier."""
        found = cls(tuple(item for item in results if item.ok), tuple(words))
        for item in found.results:
            found.axes |= set(_axes_in(item.result))
        for item in found.results:
            _Walk(found, item).all()
        for text in words:
            found._tell(text)
        return found

    def _tell(self, text: str) -> None:
        pairs = axis_sizes(text, self.axes)
        for pair in pairs:
            self.sizes.setdefault(pair.axis, set()).update({pair.size, pair.last})
        if pairs:
            self.meshes.setdefault(frozenset((pair.axis, pair.last) for pair in pairs if pair.last != 1), set())
        for product in products(text):
            self.orders.add(product.sizes)
        for sentence in sentences(text):
            for claim in numbers(sentence.text, sentence.header):
                self.told.append(Fact(claim.value, claim.kind, tool="the user", path="what the user said"))

    @cached_property
    def siblings(self) -> dict[tuple[str, str], frozenset[str]]:
        """What the rows of one list are called, by result and path."""
        found: dict[tuple[str, str], frozenset[str]] = {}
        for fact in self.facts:
            if fact.labels and fact.leaf != "text":
                key = (fact.result, fact.path)
                found[key] = found.get(key, frozenset()) | fact.labels
        return found

    @cached_property
    def _by_kind(self) -> dict[Kind | None, frozenset[str]]:
        found: dict[Kind | None, set[str]] = {}
        for fact in self.facts:
            found.setdefault(fact.kind, set()).update(fact.of)
        return {kind: frozenset(of) for kind, of in found.items()}

    def quantities_of(self, kind: Kind | None) -> frozenset[str]:
        """The quantities that numbers of a kind are of; all for a bare number."""
        if kind is None:
            return frozenset().union(*self._by_kind.values())
        ratios = self._by_kind.get("ratio", frozenset()) if kind == "share" else frozenset()
        return self._by_kind.get(kind, frozenset()) | ratios

    @cached_property
    def configurations(self) -> dict[str, set[str]]:
        """Configurations by result, what ran left aside."""
        found: dict[str, set[str]] = {}
        for fact in self.facts:
            if not fact.baseline:
                names = {name for of, name in fact.about if of == "configuration" and not name.isdecimal()}
                found.setdefault(fact.result, set()).update(names)
        return found

    @cached_property
    def text(self) -> str:
        """All texts and the user's words, in lower case, to look names up in."""
        return "\n".join([*(text for _, text in self.texts), *self.words]).lower()

    def holding(self, name: str) -> set[str]:
        """Ids of the results that hold a name."""
        return {result for result, text in self.texts if name.lower() in text.lower()}


_SUFFIXES: tuple[tuple[str, Kind], ...] = (
    ("bytes_per_s", "bytes_per_s"), ("flops_per_s", "flops_per_s"), ("flops_per_byte", "intensity"),
    ("operational_intensity", "intensity"), ("_bytes", "bytes"), ("bytes", "bytes"), ("flops", "flops"),
    ("_s", "time"), ("share", "share"), ("utilization", "share"), ("efficiency", "share"), ("confidence", "share"),
    ("speedup_per_token", "ratio"), ("speedup_low80", "ratio"), ("speedup_high80", "ratio"), ("speedup", "ratio"),
    ("speedup_over_this", "ratio"), ("over_fastest", "ratio"), ("ratio", "ratio"), ("mfu", "share"),
    ("shares_0_to_1", "share"),
)  # fmt: skip
_BY_UNIT: dict[str, Kind] = {
    "s": "time", "share": "share", "bytes": "bytes", "bytes_per_s": "bytes_per_s", "flops_per_s": "flops_per_s",
}  # fmt: skip


@dataclass(frozen=True)
class _At:
    """Where in a result a value stands, and what is known of it from the keys above."""

    path: tuple[str, ...] = ()
    about: frozenset[tuple[About, str]] = frozenset()
    axes: frozenset[str] = frozenset()
    kind: Kind | None = None
    of: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    row: str = ""
    baseline: bool = False

    @property
    def name(self) -> str:
        return ".".join(self.path)


class _Walk:
    """Reads one tool result into the evidence."""

    def __init__(self, evidence: Evidence, returned: ToolReturned) -> None:
        self.evidence, self.returned = evidence, returned

    def all(self) -> None:
        self._value(self.returned.result, _At())

    def _value(self, value: Any, at: _At) -> None:
        if isinstance(value, bool) or value is None:
            return
        if isinstance(value, int | float):
            self._number(float(value), at)
        elif isinstance(value, str):
            self._text(value, at)
        elif isinstance(value, Mapping):
            at = self._identity(value, at)
            for key, item in value.items():
                self.evidence.texts.append((self.returned.result_id, str(key)))
                kind = _stated(value, key) or _kind(key) or at.kind
                self._value(item, replace(at, path=(*at.path, str(key)), kind=kind, baseline=_is_baseline(key, at)))
        elif isinstance(value, list):
            if value and all(type(item) is int for item in value):
                self.evidence.orders.add(tuple(value))
            for number, item in enumerate(value):
                self._value(item, replace(at, row=f"{at.row}/{at.name}[{number}]"))

    def _identity(self, value: Mapping[str, Any], at: _At) -> _At:
        """What a row is about: its configuration, op, axis or document."""
        evidence, result = self.evidence, self.returned.result_id
        about, baseline = at.about, at.baseline
        names: set[tuple[About, str]] = set()
        if isinstance(value.get("ici"), Mapping):
            self._mesh(value)
        found = self._configuration(value)
        if found is not None:
            about = frozenset(item for item in about if item[0] != "configuration")
            if baseline or at.path[-1:] == ("configuration",):
                evidence.baseline = found
            names.add(("configuration", named(found)))
            number = value.get("number") or value.get("stands_as_proposal")
            if isinstance(number, int) and not baseline:
                evidence.proposals.setdefault(number, set()).add(result)
                evidence.mesh_of_proposal[number] = found
                names.add(("configuration", str(number)))
        key, name, id_ = value.get("key"), value.get("name"), value.get("id")
        if isinstance(key, str) and isinstance(name, str) and "category" in value:
            for word in (key.lower(), name.lower()):
                names.add(("op", word))
                evidence.ops.setdefault(word, set()).add(result)
        if isinstance(id_, str) and "title" in value:
            names.add(("document", id_.lower()))
            known = evidence.records if "outcome" in value else evidence.passages
            known.setdefault(id_, set()).add(result)
            if "outcome" in value:
                evidence.outcomes[id_] = str(value["outcome"])
        if isinstance(key, str) and "source" in value and "category" not in value:
            known = evidence.records if value["source"] == "history" else evidence.passages
            known.setdefault(key, set()).add(result)
        stated = value.get("axes") or value.get("axis") or value.get("mesh_axis")
        axes = at.axes
        for axis in [stated] if isinstance(stated, str) else stated if isinstance(stated, list) else ():
            axes |= set(str(axis).replace("+", " ").replace(",", " ").split())
        of, labels = _called(value)
        return replace(at, about=about | names, axes=axes, of=at.of | of, labels=at.labels | labels)

    def _configuration(self, value: Mapping[str, Any]) -> Mesh | None:
        mesh, text = value.get("mesh"), value.get("mesh_text")
        if isinstance(mesh, Mapping) and isinstance(mesh.get("ici"), Mapping):
            return mesh_of(mesh)
        if not isinstance(text, str):
            return None
        pairs = axis_sizes(text, self.evidence.axes)
        for pair in pairs:
            self.evidence.sizes.setdefault(pair.axis, set()).add(pair.size)
        found = frozenset((pair.axis, pair.size) for pair in pairs if pair.size != 1)
        self.evidence.meshes.setdefault(found, set()).add(self.returned.result_id)
        return found

    def _mesh(self, value: Mapping[str, Any]) -> None:
        evidence = self.evidence
        pairs = {axis: size for axis, size in value["ici"].items() if isinstance(size, int)}
        evidence.orders.add(tuple(pairs.values()))
        evidence.orders.add(tuple(size for size in pairs.values() if size > 1))
        pairs |= {f"dcn.{a}": n for a, n in (value.get("dcn") or {}).items() if isinstance(n, int)}
        for axis, size in pairs.items():
            evidence.sizes.setdefault(axis, set()).add(size)
        evidence.meshes.setdefault(mesh_of(value), set()).add(self.returned.result_id)

    def _number(self, value: float, at: _At) -> None:
        leaf = at.path[-1] if at.path else ""
        axes = at.axes | set(leaf.partition(":")[2].split("+")) if leaf.startswith("ici:") else at.axes
        labels = at.labels
        if at.path[-2:-1] in (("ici",), ("dcn",)):
            labels = stems(f"{leaf} {' '.join(_WORDS_OF.get(leaf, ()))} parallel sharding shards") | {leaf}
        elif leaf in _ORDINALS:
            return
        self._add(
            Fact(
                abs(value),
                at.kind,
                of=keyed(at.name) | at.of | _OF_TOOL.get(self.returned.name, frozenset()),
                axes=axes,
                labels=labels,
                leaf=leaf,
            ),
            at,
        )

    def _text(self, text: str, at: _At) -> None:
        self.evidence.texts.append((self.returned.result_id, text))
        if at.path and (at.path[-1] in _NAMES or at.path[-2:] == ("evidence", "text")):
            return
        for sentence in sentences(text):
            for pair in axis_sizes(sentence.text, self.evidence.axes):
                self.evidence.sizes.setdefault(pair.axis, set()).update({pair.size, pair.last})
            self.evidence.orders.update(product.sizes for product in products(sentence.text))
            of = quantities(f"{sentence.text} {at.name.replace('_', ' ')}")
            for claim in numbers(sentence.text, sentence.header):
                kind = None if claim.kind == "bare" else claim.kind
                near, whole = stems(clause(sentence.text, claim.start)), stems(sentence.text)
                self._add(Fact(claim.value, kind, of=of, axes=at.axes, labels=whole, clause=near, leaf="text"), at)

    def _add(self, fact: Fact, at: _At) -> None:
        self.evidence.facts.append(
            replace(
                fact,
                result=self.returned.result_id,
                tool=self.returned.name,
                path=at.name,
                about=at.about,
                needs_name=bool(_ONE_OF_MANY & set(at.path)),
                row=at.row,
                baseline=at.baseline,
            )
        )


#: Numbers by which rows are counted off.
_ORDINALS = ("rank", "finding", "hop", "place", "configuration", "number", "experiment", "characters", "op_count")
#: Lists whose rows are many configurations alike.
_ONE_OF_MANY = frozenset(("sensitivity", "one_step_away", "candidates"))
#: How else axes are called.
_WORDS_OF = {
    "model": ("tensor",), "tensor": ("model",), "seq": ("sequence", "context"), "context": ("sequence",),
    "expert": ("experts",), "pipeline": ("stages",), "replica": ("replicas",),
}  # fmt: skip


def _called(row: Mapping[str, Any]) -> tuple[frozenset[str], frozenset[str]]:
    """(quantities that a row says it is of, stems of what it is called); nothing where its keys say all."""

    def said(*keys: str) -> str:
        return " ".join(str(row[key]) for key in keys if isinstance(row.get(key), str))

    if "rule" in row and "insight" in row:
        return frozenset(), stems(said("title", "insight", "action"))
    if "category" in row and "key" in row:
        return frozenset(("ops",)), stems(said("name", "category", "family", "module", "phase", "collective"))
    if "op_count" in row and "time_share" in row:
        return frozenset(("ops",)), stems(" ".join(str(value) for value in row.values() if isinstance(value, str)))
    if "label" in row:
        return quantities(said("label")), stems(said("label", "category"))
    if "outcome" in row and "title" in row:
        return frozenset(("records",)), stems(said("title", "change"))
    if "moves" in row:
        return quantities(said("moves")), frozenset()
    if "before" in row and "after" in row:
        return quantities(said("name")) | keyed(said("key", "term")), stems(said("field"))
    return frozenset(), frozenset()


#: What all numbers of a tool are of.
_OF_TOOL: Mapping[str, frozenset[str]] = {
    "collectives": frozenset(("communication",)), "ops": frozenset(("ops",)), "op": frozenset(("ops",)),
}  # fmt: skip
#: Texts that are names, whose digits claim nothing.
_NAMES = ("hlo", "op_name", "key", "name", "id", "url", "mesh_text", "section", "source", "step")


def _stated(row: Mapping[str, Any], key: str) -> Kind | None:
    """The kind of a value whose row says its unit, or what it is."""
    if key in ("value", "before", "after", "change") and "unit" in row:
        return _BY_UNIT.get(str(row["unit"]))
    held = row.get("name") in ("weights", "optimizer", "gradients", "activations")
    return "bytes" if held and key in ("before", "after") else None


def _is_baseline(key: str, at: _At) -> bool:
    return at.baseline or key == "what_runs" or (key in ("before_s", "before_share") and "communication" in at.path)


def _kind(key: str) -> Kind | None:
    return next((kind for suffix, kind in _SUFFIXES if key.endswith(suffix)), None)


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
