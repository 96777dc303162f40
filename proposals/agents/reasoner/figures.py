"""Figures as people write them: 16k, 70B, 14 GB, 1,024, half, 10 %, three."""

from __future__ import annotations

import re

_FACTORS = {"k": 1024, "m": 2**20, "": 1}
_BYTES = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40}
WORDS = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "ten": 10, "twelve": 12,
    "sixteen": 16, "a single": 1,
}  # fmt: skip
#: A count in text: `512`, `1,024`, `16k`, `1M`.
COUNT = r"(?:\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?)\s?(?:k|m)?(?![\w%])"

#: More than there is of anything that is counted here.
_MOST = 1e15


def count(text: str) -> int | None:
    """The whole number meant: `16k` tokens or sequences are 16 × 1,024 where that is what people mean.

    `16k`, `32k`, `128k` are powers of two; `10k` is ten thousand.  None where it is no whole number.
    """
    match = re.fullmatch(r"([\d,]+(?:\.\d+)?)\s?([km]?)", text.strip().lower())
    if match is None:
        return WORDS.get(text.strip().lower())
    value = float(match[1].replace(",", ""))
    if value > _MOST:
        return None
    factor = _FACTORS[match[2]]
    if factor > 1 and not _power_of_two(value):
        factor = 1000 if match[2] == "k" else 10**6
    found = value * factor
    return int(found) if found == int(found) else None


def size_bytes(text: str) -> float | None:
    """Bytes of `14 GB`, `95GiB`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s?([kmgt]i?b)", text.strip().lower())
    return float(match[1]) * _BYTES[match[2]] if match else None


def _power_of_two(value: float) -> bool:
    return value == int(value) and value > 0 and int(value) & (int(value) - 1) == 0
