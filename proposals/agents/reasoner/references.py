"""What a message points at: proposals by number or by name, ops by name or by rank."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

_NUMBERS = r"\d{1,2}(?:\s?(?:,|and|&|or|vs|versus|with|to|against|than)\s?(?:proposal\s|the\s|#)?\d{1,2}(?![\w.]))*"
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "last": 3}
_NOUN = r"(?:proposals?|options?|suggestions?|recommendations?|numbers?|candidates?|no\.)"
_KINDS = {"safer": "safer", "safe": "safer", "safest": "safer", "bolder": "bolder", "bold": "bolder",
          "boldest": "bolder",           "aggressive": "bolder", "conservative": "safer"}  # fmt: skip
_BARE = re.compile(
    rf"\b(of|by|find|about|for|than|approve|reject|launch|run|with|start with|stick to|to|vs|versus|compare|"
    rf"between|prefer|like|with|choose|pick|take|try|on|does|is|are|do|why|show|explain|drop|exclude|out|"
    rf"and|think|reckon|say)\s({_NUMBERS})(?!\s?(?:chips?|hours?|steps|%|x|gb|mib|ms|s\b|way|days?|tokens|"
    rf"layers|times|micro|seq))(?![\w.])"
)
#: `Which is safer, 1 or 2?`; after a mesh or a setting such numbers are further sizes.
_ALONE = re.compile(r"(?<!>)[,:]\s(\d(?:,\s\d)*\s(?:or|and)\s\d)[\s?.!]*$")
_OTHERS = re.compile(
    r"\b(?:the )?(?:other|remaining) (?:two|2|one|ones|three|proposals?|options?|suggestions?|"
    r"candidates?)\b|\bthe others\b|\bothers\b|\bthe rest\b"
    r"|\bother 2\b|\balternatives\b|\bthe other\b"
)
_OP_NAME = re.compile(r"%?[A-Za-z][A-Za-z_\-]*[\w\-]*(?:\.[A-Za-z_]*\w+)+")
_RANKED = re.compile(
    r"\b(?:the\s)?(?:(?P<word>first|second|third|fourth|fifth|top|biggest|largest|longest|slowest|"
    r"costliest|hottest|heaviest|worst|most expensive|dominant|main)"
    r"(?:[- ](?:most )?(?:longest|slowest|largest|biggest|expensive|costliest|costly|"
    r"heaviest))?\s(?:single )?(?:op|operation|kernel|operator|collective|fusion)"
    r"|(?:op|operation|kernel)\s?(?:#|number |no\. )(?P<n>\d{1,4})|(?P<nth>\d{1,3})(?:st|nd|rd|th) (?:op|"
    r"operation|longest op|kernel))\b(?!s)"
)


@dataclass(frozen=True)
class Pointed:
    """numbers: of proposals; others: all but the recommended one; kind: `safer` or `bolder`; every: all of them."""

    numbers: tuple[int, ...] = ()
    others: bool = False
    kind: str = ""
    every: bool = False

    def __bool__(self) -> bool:
        return bool(self.numbers or self.others or self.kind or self.every)


def ops(text: str, known: Collection[str]) -> tuple[tuple[str, ...], str]:
    """Names of ops that a message holds (as the tool `op` takes them), and the text with `<op>` in their place."""
    found: list[str] = []

    def name(match: re.Match[str]) -> str:
        word = match[0].strip("`'\"%").rstrip(".,;:?!")
        if word in known or (word.lower() in known):
            found.append(word if word in known else word.lower())
            return f" <op> {match[0][len(match[0].rstrip('.,;:?!')) :]}"
        if match[0].startswith("`") and re.fullmatch(r"[A-Za-z][\w.\-]*", word) and not re.fullmatch(r"[a-z_]+", word):
            found.append(word)
            return " <op> "
        if _looks_like_op(word):
            found.append(word)
            return f" <op> {match[0][len(match[0].rstrip('.,;:?!')) :]}"
        return match[0]

    text = re.sub(r"`[^`]{1,300}`|%?[A-Za-z][\w\-]*(?:\.[\w\-]+)*[.?!,;:]?", name, text)
    ranked = _RANKED.search(text.lower())
    if ranked and not found:
        word = ranked["word"] or ""
        number = ranked["n"] or ranked["nth"] or str({"second": 2, "third": 3, "fourth": 4, "fifth": 5}.get(word, 1))
        found.append("collective" if "collective" in ranked[0] else f"#{number}")
        text = f"{text[: ranked.start()]} <op> {text[ranked.end() :]}"
    return tuple(dict.fromkeys(found)), text


def _looks_like_op(word: str) -> bool:
    """`fusion.12`, `all-reduce.3`, `jit_step.fused.1`; not `llama3.1-70b` nor `dcn.data`."""
    stem, _, rest = word.partition(".")
    return (
        bool(rest)
        and rest.split(".")[-1].isdecimal()
        and not re.search(r"\d$", stem)
        and stem.lower() not in ("v", "no", "fig")
    )


def proposals(text: str) -> tuple[Pointed, str]:
    """The proposals that plain words point at, and the words with `<prop>` in their place."""
    numbers: list[int] = []
    others = every = False
    kind = ""
    for pattern in (
        rf"\b{_NOUN}\s?#?\s?({_NUMBERS})(?![\w.])", rf"(?<![\w<])#({_NUMBERS})(?![\w.])",
        (rf"\b({_NUMBERS})(?= (?:look|looks|seem|seems|sound|sounds|is|are|would be) (?:more |much |way |a |"
        rf"the )?(?:promising|better|best|good|faster|safer|risky|nicer|interesting|riskier))"),
    ):  # fmt: skip
        for match in list(re.finditer(pattern, text)):
            numbers += [int(n) for n in re.findall(r"\d+", match[1])]
        text = re.sub(pattern, " <prop> ", text)
    ordinal = re.compile(
        rf"\b(first|second|third|fourth|last)\s(?:one|{_NOUN})\b|\b{_NOUN}\s(one|two|three|four)\b|\bnumber "
        rf"(one|two|three)\b"
    )
    for match in list(ordinal.finditer(text)):
        word = match[1] or match[2] or match[3]
        numbers.append(_ORDINALS.get(word) or {"one": 1, "two": 2, "three": 3, "four": 4}[word])
    text = ordinal.sub(" <prop> ", text)
    for match in list(_BARE.finditer(text)):
        numbers += [int(n) for n in re.findall(r"\d+", match[2])]
    text = _BARE.sub(r"\1 <prop> ", text)
    alone = _ALONE.search(text)
    if alone:
        numbers += [int(n) for n in re.findall(r"\d+", alone[1])]
        text = f"{text[: alone.start()]} <prop> {text[alone.end() :]}"
    if _OTHERS.search(text):
        others, text = True, _OTHERS.sub(" <prop> ", text)
    named = re.search(rf"\b(?:the |your )?({'|'.join(_KINDS)})\s(?:one|{_NOUN})\b", text)
    if named:
        kind, text = _KINDS[named[1]], f"{text[: named.start()]} <prop> {text[named.end() :]}"
    mine = re.search(
        (
            r"\b(?:your|the) (?:top |first )?(?:recommendation|recommended (?:one|proposal|mesh)|top pick|"
            r"favou?rite)\b|\brecommended (?:one|proposal)\b"
        ),
        text,
    )
    if mine:
        numbers.append(1)
        text = f"{text[: mine.start()]} <prop> {text[mine.end() :]}"
    if re.search(
        (
            r"\b(?:all|the|these|your) (?:three |3 |of the )?(?:proposals|options|suggestions)\b|\ball (?:three|of "
            r"them)\b"
        ),
        text,
    ):
        every = True
        text = re.sub(
            (
                r"\b(?:all|the|these|your) (?:three |3 |of the )?(?:proposals|options|suggestions)\b|\ball "
                r"(?:three|of them)\b"
            ),
            " <prop> ",
            text,
        )
    numbers = [n for n in numbers if n < 100]
    return Pointed(tuple(dict.fromkeys(numbers)), others, kind, every), re.sub(r"\s+", " ", text).strip()
