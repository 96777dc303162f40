"""What `d = 128` and `8 × 128` are of: a mesh, or a formula, an array and plain arithmetic, which also have sizes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from perfmodel.config import ROLE_SYNONYMS
from proposals.agents.grounding_claims import UNIT
from proposals.agents.grounding_evidence import Evidence
from proposals.agents.grounding_facts import Pair, Product

#: `mdl=8` in whatever notation of a mesh; a symbol after a number (`2 × 70e9 bytes = 140 GB`) or has a unit is
#: arithmetic.
_ASSIGNED = re.compile(
    r"(?<![\w.\-])(?<!\d\s)(?:dcn\.)?(?P<name>[A-Za-z]\w*)(?P<sign>\s?=\s?)(?P<size>\d{1,3}(?:,\d{3})+|\d+)"
    rf"(?!\w|\.\d)(?!\s?(?:{UNIT})s?\b)"
)
#: A size of more is larger than any machine, whatever it is.
_MOST_DIGITS = 15
#: Between two assignments of one mesh.
_BETWEEN = re.compile(r"[\s·•,;×x/|&+(){}`]*(?:and|by)?[\s·•,;×x/|&+(){}`]*")
_OPERATOR = r"[·×⋅∙*/÷+−^]"
_MESH = r"mesh(?:es)?|torus|topolog(?:y|ies)|ax[ie]s|grid"
_MACHINE = r"slices?|pods?|chips?|devices?|GPUs?|TPUs?|cores?|hosts?|machine"
_ARRAY = (
    r"tiles?|tiling|tiled|blocks?|arrays?|tensors?|matri(?:x|ces)|operands?|registers?|vregs?|lanes?|sublanes?|layouts?|"
    r"shapes?|shaped|padded|padding|pads?|MXU|systolic|matmuls?|GEMMs?|values|elements|entries"
)
_WORD = re.compile(r"[A-Za-z][\w'’]*")
_CLAUSE = re.compile(r"[.;:]\s")
#: Words between sizes and what they are of: fewer than the first where it calls them that, fewer than the second where
#: it speaks of them at all.
_CLOSE, _FAR = 3, 6


@dataclass(frozen=True)
class Assigned:
    """`mdl=8`.  start, end: of it; run: of all that is assigned beside it; sizes: there, its own included."""

    name: str
    size: int
    start: int
    end: int
    run: tuple[int, int]
    sizes: tuple[int, ...]


def assigned(text: str) -> Iterator[Assigned]:
    """The assignments of whole numbers in a sentence, each with those beside it."""
    runs: list[list[re.Match[str]]] = []
    for match in _ASSIGNED.finditer(text):
        if runs and _BETWEEN.fullmatch(text[runs[-1][-1].end() : match.start()]):
            runs[-1].append(match)
        else:
            runs.append([match])
    for run in runs:
        sizes = tuple(_whole(match["size"]) for match in run)
        for match, size in zip(run, sizes, strict=True):
            yield Assigned(match["name"], size, *match.span(), (run[0].start(), run[-1].end()), sizes)


def _whole(digits: str) -> int:
    return int(digits.replace(",", "")[:_MOST_DIGITS])


def is_variable(one: Assigned, text: str, before: str, evidence: Evidence) -> bool:
    """Whether an assignment gives a variable of a formula its value: a formula of the text has it, it is one letter
    (with an index or not), or it is larger than any mesh.  What the text calls a mesh, or what makes one together, is
    one."""
    is_mesh = _near(text, *one.run, _MESH) < _CLOSE
    makes_one = len(one.sizes) > 1 and math.prod(one.sizes) in evidence.chips
    if _in_formula(one.name, f"{before} {text}"):
        return not (is_mesh and makes_one)
    fits_none = one.size > max(evidence.chips, default=math.inf)
    return not (is_mesh or makes_one) and (len(one.name.partition("_")[0]) == 1 or fits_none)


def is_length(pair: Pair, evidence: Evidence) -> bool:
    """Whether an axis' name with a size is what that axis divides: `seq = 4096`, where the sequence length is that."""
    role = ROLE_SYNONYMS.get(pair.axis, pair.axis)
    return pair.size > max(evidence.chips, default=math.inf) and any(
        fact.value == pair.size and role in fact.path.rpartition(".")[2].split("_") for fact in evidence.facts
    )


def _in_formula(name: str, text: str) -> bool:
    said = rf"(?<![\w.]){re.escape(name)}(?!\w)"
    return bool(re.search(rf"{_OPERATOR}\s?{said}(?!\s?=\s?\d)|{said}\s?(?:{_OPERATOR}|[²³])", text))


def is_of_a_mesh(product: Product, text: str, evidence: Evidence) -> bool:
    """Whether sizes joined by × are said to be those of a mesh or a topology: what they stand nearest to is one, and no
    array; arithmetic (`32 × 16 = 512 chips`) is a mesh only where it is called one."""
    start, end = product.start, product.end
    axes = {re.escape(axis) for each in evidence.meshes for axis, _ in each}
    mesh = _near(text, start, end, "|".join((_MESH, *axes)))
    if re.match(rf"\s*(?:=|≈|{_OPERATOR})", text[end:]) or re.search(rf"(?:=|≈|{_OPERATOR})\s*$", text[:start]):
        return mesh < _CLOSE
    return min(mesh, _near(text, start, end, _MACHINE)) <= _near(text, start, end, _ARRAY)


def _near(text: str, start: int, end: int, words: str) -> int:
    """How many words stand between a place and the nearest of some words in its clause, at most `_FAR`."""
    before = _WORD.findall(_CLAUSE.split(text[:start])[-1])[::-1]
    after = _WORD.findall(_CLAUSE.split(text[end:])[0])
    distances = [
        n for side in (before, after) for n, word in enumerate(side) if re.fullmatch(words, word, re.IGNORECASE)
    ]
    return min([*distances, _FAR])
