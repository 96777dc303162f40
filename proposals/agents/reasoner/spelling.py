"""A user's message as plain words: lower case, short forms written out, common misspellings mended.

What names something (an op, a flag, code in backticks) is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

#: Short forms that need no context.
_SHORT = {
    "what's": "what is", "whats": "what is", "wats": "what is", "wat": "what", "wht": "what", "that's": "that is",
    "it's": "it is", "isn't": "is not", "isnt": "is not", "don't": "do not", "dont": "do not", "didn't": "did not",
    "didnt": "did not", "doesn't": "does not", "doesnt": "does not", "can't": "can not", "cant": "can not",
    "cannot": "can not", "won't": "will not", "wont": "will not", "wouldn't": "would not", "wouldnt": "would not",
    "shouldn't": "should not", "shouldnt": "should not", "aren't": "are not", "arent": "are not", "wasn't": "was not",
    "mustn't": "must not", "you're": "you are", "youre": "you are", "i'm": "i am", "im": "i am", "i'd": "i would",
    "i'll": "i will", "we're": "we are", "we've": "we have", "i've": "i have", "let's": "let us", "lets": "let us",
    "where's": "where is", "wheres": "where is", "how's": "how is", "hows": "how is", "there's": "there is",
    "u": "you", "ur": "your", "r": "are", "pls": "please", "plz": "please", "thx": "thanks", "ty": "thanks",
    "prop": "proposal", "props": "proposals", "rec": "recommend", "reco": "recommend", "conf": "confidence",
    "mem": "memory", "gbs": "global batch", "bs": "batch", "seqlen": "sequence length", "w": "with", "wo": "without",
    "w/": "with", "w/o": "without", "versus": "vs", "vs.": "vs", "bcs": "because", "cuz": "because", "abt": "about",
    "cfg": "configuration", "config": "configuration", "perf": "performance", "comm": "communication",
    "comms": "communication", "diff": "difference", "gimme": "give me", "wanna": "want to", "gonna": "going to",
    "imo": "i think", "imho": "i think", "ppl": "people", "min": "minimum", "max": "maximum", "dp": "data",
    "ddp": "data", "tp": "tensor", "mp": "model", "pp": "pipeline", "ep": "expert", "sp": "seq", "cp": "context",
    "1st": "first", "2nd": "second", "3rd": "third", "remats": "remat", "rematerialization": "remat",
    "rematerialisation": "remat", "checkpointing": "remat", "checkpoint": "remat", "y": "why",
}  # fmt: skip

_DOMAIN = """
recommend recommended recommendation first start begin best prefer choose pick sure confident confidence certain
certainty likely probability trust proposal proposals promising better other others alternative alternatives still
hold stick without further input what which where when would change mind convince measure profile experiment next
explain operation largest biggest longest slowest similar past previous history precedent record records runs slow
bottleneck limits limiting problem diagnose memory headroom capacity fits accurate accuracy error
errors calibrated prediction
predictions risk risks risky downside downsides danger trade-off tradeoff tradeoffs caveats launch flags command script
maxtext megatron axlearn help hello thanks thank batch global sequence length remat minimal offload full none micro
gradient accumulation weights weight sharding sharded replicated optimizer precision tensor model data expert experts
pipeline context replica parallelism parallel mesh axis axes halve double doubling quadruple compare comparison
difference between against constraint constraints forget remove ignore drop keep fixed fix hold touch chips slices
usable tight limit near about above below because performance communication compute bandwidth approve reject accept
instructions rules assume suppose configuration evaluate predict estimate price faster slower speed-up speedup
throughput collectives collective overlap exposed utilization efficiency roofline different instead please really
anything everything something nothing summary summarize summarise should could might people
""".split()  # noqa: SIM905

#: Words that look like a misspelling of one above and are none.
_PLAIN = frozenset(
    """
    mode modes modal date dates sea seem seems seen seat mash mass most must much such what that than then them they
    these those there their here where were when whom whose which while with will well went want wants wish work works
    working better bitter butter both other another over under only once one ones two three four five six seven eight
    nine ten can could come comes came case cases cast cost costs close closer false fast faster fasten first fist fit
    fits fix fixed flag flags floor flow for form from full fully function further good great half halt hand hard has
    hash have having head heads heard help held her hi hide high higher him his how idea ideas if in into is it its job
    jobs just keep kept kind know known last later layer layers lead leads least leave left less let like line lines
    link list little long longer look looks lose loss lot low lower made main make makes many mark match matter may me
    mean means mention might mine miss more move moved moves much my name names near need needs never new nice no node
    nodes none nor not note now number numbers of off often ok okay old on open option options or order our out own part
    parts pass path per pick place plan plans point points pool pretty probably pull pure push put quick quickly quite
    rather rate rates read reads ready real reason reasons rest result results right role roll room row run runs running
    said same say says scale second see self send set sets setting settings shape share shard shards short show shows
    side simple since single size sizes slice small so some soon sort source space speak split spread stage stages stand
    state stay stays step steps stick stop story such sum swap system take takes talk team tell test tests text thank
    the thing things think third tie time times to today together told too took tool tools top total touch toward train
    trained training tried true truly try turn turns twice type types unit until up upon us use used uses using usual
    value values very view wait way ways we week weight why wide wider width win wire wires word words world worse worst
    worth write wrong year yes yet you your this lama llama gemma mistral mixtral qwen wrote done does doing during each
    early else end enough even ever every exact exactly example existing expect extra face fact facts fail failed far
    few file files find fine get gets give given gives go goes going gone got group grow guess lunch peach pride prize
    prince learn learned reach reached teach beach bath match patch catch latch hatch fetch batches watch launcher
    poem weather dinner recipe joke capital stock president story song movie picture paint football mush moist
    """.split()  # noqa: SIM905
)
_WORD = re.compile(r"[A-Za-z][A-Za-z'’/]*[A-Za-z/]|[A-Za-z]|1st|2nd|3rd")
_KEPT = re.compile(r"`[^`]*`|--[\w=\-]+|%?[A-Za-z][\w\-]*\.[\w.\-]+|[A-Za-z]\w*_\w+")


def plain(text: str) -> str:
    """The message in lower-case words, short forms written out, misspellings of this field's words mended."""
    text = text.replace("’", "'").replace("‘", "'").replace("“", '"').replace("”", '"').replace("\u00a0", " ")
    text = re.sub(r"\bw/o(?=\s)", "without", text)
    text = re.sub(r"\bw/(?=\s)", "with", text)
    pieces, at = [], 0
    for kept in _KEPT.finditer(text):
        pieces += [_mended(text[at : kept.start()]), kept[0]]
        at = kept.end()
    pieces.append(_mended(text[at:]))
    return re.sub(r"[ \t]+", " ", "".join(pieces)).strip()


def _mended(text: str) -> str:
    return _WORD.sub(lambda match: _word(match[0].lower()), text)


@cache
def _vocabulary() -> frozenset[str]:
    return frozenset(_DOMAIN)


@cache
def _word(word: str) -> str:
    if word in _SHORT:
        return _SHORT[word]
    if len(word) < 4 or word in _vocabulary() or word in _PLAIN or not word.isalpha():
        return word
    if any(_known(stem) for stem in _stems(word)):
        return word
    allowed = 1 if len(word) < 7 else 2
    near = [(edits(word, known, allowed), known) for known in _DOMAIN if abs(len(known) - len(word)) <= allowed]
    best = min((item for item in near if item[0] <= allowed and _alike(word, item[1])), default=None)
    return best[1] if best else word


def _known(word: str) -> bool:
    return word in _vocabulary() or word in _PLAIN


def _stems(word: str) -> Iterator[str]:
    """What a word may be a form of: `approved` of `approve`, `bigger` of `big`."""
    for ending in ("s", "es", "d", "ed", "ing", "ly", "r", "er", "est", "ment"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            stem = word[: -len(ending)]
            yield from (stem, stem + "e")
            if stem[-1:] == stem[-2:-1]:
                yield stem[:-1]


def _alike(word: str, known: str) -> bool:
    """A misspelling keeps its first letter, or swaps the first two."""
    return len(known) >= 4 and (word[0] == known[0] or word[:2] == known[1::-1])


def edits(one: str, other: str, most: int) -> int:
    """Letters inserted, left out, changed or swapped with a neighbour; more than `most` counts as `most + 1`."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        older, before, row = before, row, [i]
        for j, b in enumerate(other, start=1):
            cost = min(row[j - 1] + 1, before[j] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
    return row[-1]
