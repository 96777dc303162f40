"""A number with what it is of: its kind, the quantities that its key names, and the configuration, op or document that
its row is about.  So a share of idle time does not back a share of communication.

Here, too: how a text writes axes with sizes, and sizes joined by ×.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any, Literal

from proposals.agents.grounding_claims import Kind

About = Literal["configuration", "op", "document"]
Mesh = frozenset[tuple[str, int]]

#: Quantities: how a text speaks of them, and how keys and units do.  Words of one quantity mean the same; a number
#: whose key names none of them may be said of anything.
QUANTITIES: Mapping[str, tuple[str, str]] = {
    "step": (r"(?<!of the )(?<!per )(?<!of a )(?<!each )\bsteps?\b|iteration|\bfast|slow|speed|gain|quick|"
             r"improv|shorten|throughput|per token|baseline|what r[au]n",
             r"\bstep|speedup|time_per_token|relative|over_fastest|over_this"),
    "compute": (r"comput|arithmetic|matmul|matri|flop|mxu|products?\b", r"compute|flops|mxu|matmul"),
    "hbm": (r"\bhbm\b|memory[- ]b|bandwidth of (?:the )?memory", r"\bhbm(?!_per_chip|_total)|hbm_utilization"),
    "memory": (r"memory|\bhbm\b|\bfits?\b|headroom|\broom\b|capacity|per chip|free\b|margin",
               r"hbm_per_chip|memory|headroom|capacity|peak_bytes|hbm_total|per_chip"),
    "communication": (r"communicat|collective|\bici\b|\bdcn\b|exposed|all-?(?:gather|reduce|to-?all)|reduce-?scatter|"
                      r"permute|\blinks?\b|bandwidth|network|\bwires?\b|hidden|overlap|exchang|\bax[ei]s\b|traffic",
                      r"communicat|\bici|\bdcn|collective|exposed|achieved|possible|in_flight|hidden|waiting"),
    "idle": (r"\bidle|stall|wait|bubble", r"idle|waiting|stall"),
    "input": (r"\binput|infeed|data pipeline", r"\binput"),
    "host": (r"\bhost", r"\bhost(?!s)"),
    "duty": (r"duty|busy", r"duty"),
    "mfu": (r"\bmfu\b|model flop|utili[sz]ation", r"mfu|flops_utilization"),
    "goodput": (r"goodput|productive", r"goodput"),
    "roofline": (r"roof|utili[sz]|efficien|peak|ridge|intensity",
                 r"roofline|utilization|efficiency|peak|ridge|intensity"),
    "confidence": (r"confiden|probab|likel|chance|certain|\bsure|calibrat|\bodds", r"confidence"),
    "saving": (r"\bsav|amdahl|at most|recover|\bcosts?\b|bound", r"saving"),
    "weights": (r"weight|param", r"params|weights|parameters"),
    "optimizer": (r"optimi[sz]er", r"optimizer"),
    "gradients": (r"gradient", r"gradients"),
    "activations": (r"activation", r"activations"),
    "batch": (r"batch|sequences", r"batch|sequences|grad_accum"),
    "tokens": (r"token", r"token|seq_len"),
    "length": (r"sequence length|context|seq_len|tokens long", r"seq_len"),
    "chips": (r"\bchips?\b|device|\bgpus?\b|\btpus?\b|slice|\bcores?\b|torus|topology|pod",
              r"chips|cores|hosts|slices|topology"),
    "layers": (r"layer|\bd_|heads|vocab|expert|hidden size",
               r"model\.|layers|d_model|d_ff|heads|head_dim|vocab|experts"),
    "ops": (r"\bops?\b|occurrenc|kernel|instruction|times\b", r"ops|occurrences|count|matching"),
    "meshes": (r"mesh|candidate|considered|configuration|rejected|rule|option|priced",
               r"meshes|candidates|rejected|listed|count_by"),
    "records": (r"record|precedent|\bpast\b|publish|paper|history|earlier|elsewhere", r"records|history|found"),
    "spread": (r"spread|deviat|vari|range|interval|between|minimum|maximum",
               r"stdev|spread|_min|_max|low80|high80|lower|upper"),
    "stragglers": (r"straggl|slowest|\blags?\b|behind", r"straggl|core_max|core_min"),
    "utility": (r"utility", r"utility"),
    "other": (r"\bother\b|\brest\b|remain|unexplained", r"\bother\b"),
}  # fmt: skip
_SAID = {name: re.compile(said, re.IGNORECASE) for name, (said, _) in QUANTITIES.items()}
_KEYED = {name: re.compile(keyed) for name, (_, keyed) in QUANTITIES.items()}


#: Characters of a text whose quantities are remembered; longer ones would fill the memory.
_REMEMBERED = 400


def quantities(text: str) -> frozenset[str]:
    """The quantities that a text speaks of."""
    return _quantities(text) if len(text) <= _REMEMBERED else _quantities.__wrapped__(text)


@lru_cache(maxsize=8192)
def _quantities(text: str) -> frozenset[str]:
    return frozenset(name for name, pattern in _SAID.items() if pattern.search(text))


@lru_cache(maxsize=8192)
def keyed(name: str) -> frozenset[str]:
    """The quantities that a key names."""
    return frozenset(each for each, pattern in _KEYED.items() if pattern.search(name))


_STEM = re.compile(r"[a-z]{3,}")
#: Stems that stand in any sentence of a diagnosis.
_ANY = frozenset(
    word[:5]
    for word in _STEM.findall(
        "take takes step steps time this that with from over than more less most much many each what which where when "
        "into they them their have been were would could should about while there other axis axes chip chips share "
        "limits mesh only also still some same does done goes every between because what whose total average mean the "
        "and for are was but not its has had out per one two all any can may now how why who our you your yes "
        "their nor yet via use used uses of"
    )
)


def stems(text: str) -> frozenset[str]:
    """Beginnings of the words that tell one text from another."""
    return frozenset(word[:5] for word in _STEM.findall(text.lower().replace("_", " ").replace("-", " "))) - _ANY


_CLAUSE = re.compile(r"[;:()|]|,(?!\d)|\s[–—]\s")


def clauses(text: str) -> list[tuple[int, str]]:
    """The parts of a sentence, between commas and the like, each with where it begins."""
    found, start = [], 0
    for match in _CLAUSE.finditer(text):
        found.append((start, text[start : match.start()]))
        start = match.end()
    return [*found, (start, text[start:])]


def clause(text: str, at: int) -> str:
    """The part of a sentence that holds a place."""
    found = clauses(text)
    return found[bisect_right(found, at, key=itemgetter(0)) - 1][1]


@dataclass(frozen=True)
class Fact:
    """A number that was returned or told.

    value: in SI, signs do not count.  kind: None where any unit would do (a whole number of something).  of: the
    quantities that its key names; about: (kind of thing, name) of its row; axes: that its row names.
    labels: stems of what its row is called, where many rows hold the same numbers; needs_name: whether a sentence must
    name its configuration, since it is one of many; clause: stems around a number inside a text.  path: the key;
    leaf: its last part, `text` for a number inside a text.  baseline: whether it is of what ran.
    """

    value: float
    kind: Kind | None
    result: str = ""
    tool: str = ""
    path: str = ""
    of: frozenset[str] = frozenset()
    about: frozenset[tuple[About, str]] = frozenset()
    axes: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    needs_name: bool = False
    clause: frozenset[str] = frozenset()
    row: str = ""
    leaf: str = ""
    baseline: bool = False


_PAIR = re.compile(
    r"(?<![\w-])(?P<dcn>dcn[._ ])?(?P<axis>[A-Za-z][A-Za-z0-9_]*)[`\"]*\s?(?P<sign>=|:|\s)\s?(?P<size>\d{1,7})"
    r"(?:\s?(?:→|->|⟶|to)\s?(?P<to>\d{1,7}))?(?![\w%×]|\.\d|\s?(?:×|%))"
)


@dataclass(frozen=True)
class Pair:
    """An axis with its size as a text has it; to: the size that it changes to.  plain: joined by a space alone."""

    axis: str
    size: int
    to: int | None
    start: int
    end: int
    plain: bool = False

    @property
    def last(self) -> int:
        return self.size if self.to is None else self.to


def axis_sizes(text: str, axes: Iterable[str]) -> list[Pair]:
    """Axes with sizes: `data 8`, `data=8`, `"data": 8`, `dcn.data 2`, `data 8 → 16`."""
    known = set(axes)
    found = []
    for match in _PAIR.finditer(text):
        if match["axis"] in known:
            name = f"dcn.{match['axis']}" if match["dcn"] else match["axis"]
            to = int(match["to"]) if match["to"] else None
            plain = not match["sign"].strip()
            found.append(Pair(name, int(match["size"]), to, match.start(), match.end(), plain))
    return found


def mesh_of(data: Mapping[str, Any]) -> Mesh:
    """{"ici": …, "dcn": …} as pairs, axes of size 1 left out."""
    pairs = [(axis, size) for axis, size in (data.get("ici") or {}).items()]
    pairs += [(f"dcn.{axis}", size) for axis, size in (data.get("dcn") or {}).items()]
    return frozenset((axis, size) for axis, size in pairs if size != 1)


def named(mesh: Mesh) -> str:
    return " ".join(f"{axis}={size}" for axis, size in sorted(mesh))


@dataclass(frozen=True)
class Product:
    """Sizes joined by ×: `8 × 8 × 8`."""

    sizes: tuple[int, ...]
    text: str
    start: int
    end: int


_PRODUCT = re.compile(r"(?<![\w.,])\d{1,7}(?:\s?[×x]\s?\d{1,7})+(?![\w.])")


def products(text: str) -> list[Product]:
    return [
        Product(tuple(int(size) for size in re.findall(r"\d+", match[0])), match[0], match.start(), match.end())
        for match in _PRODUCT.finditer(text)
    ]
