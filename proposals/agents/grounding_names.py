"""The names that a sentence claims: ops, axes with sizes, meshes, proposals, records, passages, results, links."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from formatting import did_you_mean
from formatting.numbers import whole_number
from perfmodel.config import ROLE_SYNONYMS
from perfmodel.config_file import TRAINING_KEYS
from proposals.agents.grounding_claims import Sentence
from proposals.agents.grounding_evidence import Evidence
from proposals.agents.grounding_facts import Pair, axis_sizes, groups, named, products
from proposals.agents.grounding_match import proposals_named
from proposals.agents.grounding_symbols import assigned, is_length, is_of_a_mesh, is_variable

#: Words of which the names of HLO ops are made.
_OPCODES = (
    "fusion|all-reduce|all_reduce|all-gather|all_gather|reduce-scatter|reduce_scatter|all-to-all|collective|permute|"
    "convolution|dot|copy|custom-call|custom_call|while|transpose|slice|broadcast|reshape|concatenate|scatter|gather|"
    "reduce|matmul|einsum|async|infeed|outfeed|send|recv|rng|select|iota|pad|sort|convert|bitcast|parameter|cholesky|"
    "add|subtract|multiply|divide|exponential|tanh|compare|region|loop|input|output|wrapped"
)
#: `fusion.12`, `all-gather-start.3`, `convolution_fusion.21.block0`, with a program before it or not.
_OP = re.compile(
    # Words and separators are distinguished, so that no long name can be split in many ways.
    rf"(?<![\w./-])%?((?:[\w.\-]+/)?(?:[a-z][a-zA-Z0-9]*[-_]+(?:[a-zA-Z0-9]+[-_]+)*)?(?:{_OPCODES})(?:[-_]+[a-zA-Z0-9]+)*"
    r"\.\d+(?:\.[A-Za-z]\w*)*)(?![\w/-])"
)
_QUOTED = re.compile(r"`([^`\n]{1,300})`")
#: `there is no proposal 3`, `proposal 3 does not exist`: what is right where none is in the results.
_NONE_BEFORE = re.compile(r"\b(?:no|not an?|without an?|neither|nor)\b[^.;,]{0,24}$", re.IGNORECASE)
_NONE_AFTER = re.compile(
    r"^\D{0,24}?\b(?:(?:does|do|is|are|was|were|has|have|did)(?:\s+not|n['’]t)|not)\s+(?:exist|there|made|proposed|been|among|one|"
    r"listed|available|in\b)",
    re.IGNORECASE,
)
_AXIS = re.compile(r"`([A-Za-z]\w*)`[- ]ax[ie]s")
_CITED = re.compile(
    r"\b(record|precedent|passage)s?\s+[`\[(]?([a-z0-9]+(?:(?:--|[-_.])[a-z0-9]+)*)[`\])]?", re.IGNORECASE
)
_BRACKETED = re.compile(r"\[([a-z0-9]+(?:--?[a-z0-9]+)+)\](?!\()")
_RESULT = re.compile(r"[\[(]((?:r\d{1,4})(?:\s?[,;]\s?r\d{1,4})*)[\])]")
_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)|(?<![\w(<])(https?://[^\s)>\]]+)")
#: What a sentence about records says without naming one.
_NO_ID = frozenset(
    re.findall(
        r"\w+",
        "of that which from in on with is are was has have shows show says say for and or id ids itself found here "
        "there this published measured imported the a an to by as at about exists stands names",
    )
)
#: Assignments that are none of a mesh.
_KEYS = frozenset(
    (*TRAINING_KEYS, "batch", "chips", "layers", "heads", "slices", "topology", "rank", "n", "k", "N", "top")
)
#: Characters between two pairs of one mesh.
_BETWEEN = re.compile(r"[\s·•,;×x/|&+(){}\[\]\"'`:]*(?:and|by|dcn|ici)?[\s·•,;×x/|&+(){}\[\]\"'`:]*")


@dataclass(frozen=True)
class Named:
    """A name that a sentence claims.  wrong: the complaint, empty where it is in the results or the user's words.

    results: that hold it.  covers: whether the numbers inside it are part of the name.
    """

    kind: str
    text: str
    start: int
    end: int
    wrong: str = ""
    results: tuple[str, ...] = ()
    covers: bool = True


def names(sentence: Sentence, evidence: Evidence) -> Iterator[Named]:
    """Every name in a sentence, each once per place."""
    text = sentence.text
    yield from _ops(text, evidence)
    yield from _meshes(text, evidence)
    yield from _axes(sentence, evidence)
    yield from _products(text, evidence)
    yield from _proposals(text, evidence)
    yield from _documents(text, evidence)
    yield from _results(text, evidence)
    yield from _links(text, evidence)


def _ops(text: str, evidence: Evidence) -> Iterator[Named]:
    for match in _OP.finditer(text):
        name = match[1].rstrip(".")
        held = evidence.ops.get(name.lower()) or evidence.holding(name)
        if held or name.lower() in evidence.text:
            yield Named("op", name, match.start(), match.end(), "", tuple(sorted(held)))
            continue
        hint = did_you_mean(name.lower(), evidence.ops, most=2, cutoff=0.75, quote="`")
        wrong = f"No tool result has an op `{name}`.{hint}"
        yield Named("op", name, match.start(), match.end(), wrong)
    for match in _QUOTED.finditer(text):
        # Code that occurs in a result is a quotation, numbers included.
        code = match[1]
        quoted = len(code) > 3 and re.search(r"[A-Za-z_%]", code) and code.lower() in evidence.text
        if quoted and not axis_sizes(code, evidence.axes):
            yield Named("quotation", code, match.start(), match.end(), "", tuple(sorted(evidence.holding(code))))


def _sizes_of(axis: str, evidence: Evidence) -> set[int]:
    """Sizes named of an axis, or of one with the same role where the results call it otherwise."""
    known_sizes = set(evidence.sizes.get(axis, set()))
    place, _, plain = axis.rpartition(".")
    role = ROLE_SYNONYMS.get(plain, plain)
    for other, sizes in evidence.sizes.items():
        where, _, name = other.rpartition(".")
        if where == place and ROLE_SYNONYMS.get(name, name) == role:
            known_sizes |= sizes
    return known_sizes


def _meshes(text: str, evidence: Evidence) -> Iterator[Named]:
    """Axes with sizes, by themselves and as meshes."""
    ran = {axis for mesh in evidence.meshes for axis, _ in mesh}
    pairs = [
        p
        for p in axis_sizes(text, evidence.axes)
        if not p.plain or p.axis in ran or p.to is not None or _in_code(text, p)
    ]
    near: list[list[Pair]] = []
    for pair in pairs:
        joined = near and _BETWEEN.fullmatch(text[near[-1][-1].end : pair.start])
        near = [*near[:-1], [*near[-1], pair]] if joined else [*near, [pair]]
    for run in near:
        for group in groups(run):
            if not (len(group) == 1 and is_length(group[0], evidence)):
                yield _mesh(text, group, evidence)


def _in_code(text: str, pair: Pair) -> bool:
    return any(match.start() < pair.start and pair.end <= match.end() for match in _QUOTED.finditer(text))


def _mesh(text: str, group: Sequence[Pair], evidence: Evidence) -> Named:
    start, end = group[0].start, group[-1].end
    said = text[start:end]
    for pair in group:
        known = _sizes_of(pair.axis, evidence)
        for size in (pair.size, pair.last):
            if size not in known:
                sizes = ", ".join(str(n) for n in sorted(known)) or "no size"
                wrong = f"`{said}`: no tool result has {pair.axis} of size {size}; results have {sizes}."
                return Named("axis", said, start, end, wrong)
    wanted = {pair.axis: pair.last for pair in group}
    held: set[str] = set()
    fitting = False
    for mesh, results in evidence.meshes.items():
        sizes_ = dict(mesh)
        if all(sizes_.get(axis, 1) == size or _by_role(axis, size, sizes_) for axis, size in wanted.items()):
            fitting, held = True, held | results
    if not fitting and (len(group) > 1 or not evidence.meshes):
        meshes = "; ".join(named(mesh) for mesh in list(evidence.meshes)[:4]) or "none"
        wrong = f"No tool result has the mesh `{said}`; ask `predict` for it. Meshes in the results: {meshes}."
        return Named("mesh", said, start, end, wrong)
    return Named("mesh" if len(group) > 1 else "axis", said, start, end, "", tuple(sorted(held)))


def _by_role(axis: str, size: int, sizes: dict[str, int]) -> bool:
    role = ROLE_SYNONYMS.get(axis, axis)
    return any(ROLE_SYNONYMS.get(other, other) == role and n == size for other, n in sizes.items())


def _axes(sentence: Sentence, evidence: Evidence) -> Iterator[Named]:
    text = sentence.text
    before = f"{sentence.heading} {sentence.before}"
    said = [(one.name, one.start, one.end) for one in assigned(text) if not is_variable(one, text, before, evidence)]
    for name, start, end in (*said, *((match[1], match.start(), match.end()) for match in _AXIS.finditer(text))):
        if name in evidence.axes or name in _KEYS or re.search(rf"\b{re.escape(name.lower())}\b", evidence.text):
            continue
        known = ", ".join(sorted(axis for axis in evidence.sizes if "." not in axis)) or "none"
        wrong = f"No tool result has an axis `{name}`; axes in the results: {known}."
        yield Named("axis", name, start, end, wrong)


def _products(text: str, evidence: Evidence) -> Iterator[Named]:
    """`8 × 8 × 8`: sizes of a mesh, a topology or an array, in whatever order."""
    known = {tuple(sorted(order)) for order in evidence.orders}
    for product in products(text):
        listed = ",".join(str(size) for size in product.sizes)
        chips = math.prod(product.sizes)
        if tuple(sorted(product.sizes)) in known or f"[{listed}]" in evidence.text:
            yield Named("mesh", product.text, product.start, product.end)
        elif not is_of_a_mesh(product, text, evidence):
            continue  # whose sizes are numbers like others
        elif all(size > 1 for size in product.sizes) and any(math.prod(order) == chips for order in known if order):
            wrong = f"`{product.text}` is not a mesh, topology or shape in any tool result."
            yield Named("mesh", product.text, product.start, product.end, wrong)


def _proposals(text: str, evidence: Evidence) -> Iterator[Named]:
    for number in sorted(proposals_named(text)):
        place = re.search(rf"(?:proposal|option|configuration|#)\s*#?{number}\b", text, re.IGNORECASE)
        start, end = (place.start(), place.end()) if place else (0, 0)
        held = evidence.proposals.get(number, set())
        if held or place is None or not place[0].lower().startswith("proposal"):
            yield Named("proposal", str(number), start, end, "", tuple(sorted(held)))
            continue
        listed = bool(evidence.proposals)  # that one is missing is known where others are
        denied = listed and (_NONE_BEFORE.search(text[:start]) or _NONE_AFTER.search(text[end:]))
        told = denied or any(number in proposals_named(said) for said in evidence.words)
        known = ", ".join(str(n) for n in sorted(evidence.proposals)) or "none"
        wrong = (
            "" if told else f"No tool result has a proposal {number}; `proposals` lists them (in the results: {known})."
        )
        yield Named("proposal", str(number), start, end, wrong)


def _documents(text: str, evidence: Evidence) -> Iterator[Named]:
    seen: set[str] = set()
    for kind, known in (("record", evidence.records), ("passage", evidence.passages)):
        for key, results in known.items():
            # A passage's id may be a plain word, so it must be set apart.
            apart = rf"[`\[(]{re.escape(key)}[`\])]|\b{kind}s?\s+{re.escape(key)}\b"
            pattern = rf"(?<![\w-]){re.escape(key)}(?![\w-])" if re.search(r"[-\d]", key) else apart
            if match := re.search(pattern, text, re.IGNORECASE):
                seen.add(key.lower())
                yield Named(kind, key, match.start(), match.end(), "", tuple(sorted(results)))
    claimed = [(match[1].lower(), match[2], match) for match in _CITED.finditer(text)]
    claimed += [("document", match[1], match) for match in _BRACKETED.finditer(text)]
    for kind, key, match in claimed:
        key = key.rstrip(".")
        looks = kind == "document" or re.search(r"[-\d]", key) or f"`{key}`" in text
        if not looks or key.lower() in seen or key.lower() in _NO_ID or whole_number(key) is not None:
            continue
        if re.search(rf"(?<![\w-]){re.escape(key.lower())}(?![\w-])", evidence.text):
            continue
        seen.add(key.lower())
        ids = [*evidence.records, *evidence.passages]
        hint = did_you_mean(key, ids, most=2, cutoff=0.7)
        kind = "record" if kind == "precedent" else kind
        wrong = f"No tool result has a {kind} `{key}`.{hint}"
        yield Named("passage" if kind == "document" else kind, key, match.start(), match.end(), wrong)


def _results(text: str, evidence: Evidence) -> Iterator[Named]:
    known = {item.result_id for item in evidence.results}
    for match in _RESULT.finditer(text):
        for result in re.findall(r"r\d+", match[1]):
            wrong = "" if result in known else f"There is no tool result `{result}` in this answer."
            yield Named("result", result, match.start(), match.end(), wrong, (result,) if not wrong else ())


def _links(text: str, evidence: Evidence) -> Iterator[Named]:
    for match in _LINK.finditer(text):
        address = (match[1] or match[2]).rstrip(".,;")
        if address.lower() in evidence.text:
            yield Named("link", address, match.start(), match.end(), "", tuple(sorted(evidence.holding(address))))
        else:
            yield Named(
                "link", address, match.start(), match.end(), f"`{address}` is an address that no tool result has."
            )
