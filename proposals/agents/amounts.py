"""How much is asked for in a message: tokens, steps, days, chips, and a price per chip-hour in the currency stated."""

from __future__ import annotations

import re
from dataclasses import dataclass

from perfmodel.config import ExperimentConfig
from perfmodel.workload import chip_of

#: Currencies by how they are written; the key is shown before an amount.
_CURRENCIES = {
    "$": r"\$|usd|us dollars?|dollars?|bucks", "€": r"€|eur(?:os?)?", "£": r"£|gbp|pounds?", "¥": r"¥|jpy|yen",
    "CHF ": r"chf|francs?", "CNY ": r"cny|rmb|yuan", "₹": r"₹|inr|rupees?", "₩": r"₩|krw|won\b", "CAD ": r"cad",
    "AUD ": r"aud", "SEK ": r"sek", "NOK ": r"nok", "DKK ": r"dkk", "PLN ": r"pln", "SGD ": r"sgd",
}  # fmt: skip
_ANY = "|".join(f"(?:{pattern})" for pattern in _CURRENCIES.values())
_POWERS = {"k": 1e3, "thousand": 1e3, "m": 1e6, "mio": 1e6, "million": 1e6, "b": 1e9, "bn": 1e9, "billion": 1e9,
           "t": 1e12, "trillion": 1e12}  # fmt: skip
_NUMBER = r"(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?(?:e\d+)?)"
_POWER = rf"\s?({'|'.join(sorted(_POWERS, key=len, reverse=True))})?"
_PER = r"(?:\s*(?:/|per|a|an|for an?|each)\s*(?P<unit>[\w -]{0,24}?)\s*[-/]?\s*(?:per |an? |/ ?)?(?:hours?|hrs?|h)\b)"
_PRICE = (
    re.compile(rf"(?:{_ANY})\s?{_NUMBER}(?P<cents>)(?P<per>{_PER})?", re.IGNORECASE),
    re.compile(rf"(?<![\w.]){_NUMBER}\s?(?:(?P<cents>cents?|ct)|{_ANY})(?![a-z])(?P<per>{_PER})?", re.IGNORECASE),
)
_STEPS = re.compile(
    rf"(?<![\w.]){_NUMBER}{_POWER}\s(?:(?:more|further|training|optimi[sz]er|of these|such)\s)*(?:steps?|iterations?|"
    r"iters?|updates?)\b(?!\s?(?:per|/))",
    re.IGNORECASE,
)
_TOKENS = re.compile(rf"(?<![\w.]){_NUMBER}{_POWER}\s?(?:more )?(?:tokens?|tok)\b(?!\s?(?:/|per))", re.IGNORECASE)
_TIME = re.compile(rf"(?<![\w.$€£]){_NUMBER}\s?(days?|weeks?|months?|hours?|hrs?)\b(?!\s?(?:per|/))", re.IGNORECASE)
_DAYS = {"d": 1.0, "w": 7.0, "m": 365.25 / 12, "h": 1 / 24}
_CHIPS = re.compile(
    rf"(?<![\w.$€£]){_NUMBER}\s?[x×]?\s?(?:chips?|gpus?|tpus?|cards?|devices|accelerators|[abhgv]\d+\w*s?\b|mi\d+\w*)",
    re.IGNORECASE,
)
_SLICES = re.compile(rf"(?<![\w.]){_NUMBER}\s?(?:slices|pods)\b", re.IGNORECASE)
#: A price above this is of something larger than a chip for an hour.
DEAREST = 1000.0


@dataclass(frozen=True)
class Amounts:
    """What a message states; None where it does not.  price: per chip and hour in `currency`."""

    price: float | None = None
    currency: str = "$"
    tokens: float | None = None
    steps: float | None = None
    days: float | None = None
    chips: int | None = None


def read(text: str, config: ExperimentConfig) -> Amounts:
    """The amounts of a message.  A price of a host, a slice or the whole machine is shared out over its chips."""
    price, currency = _price(text, config)
    slices = _first_amount(_SLICES, text)
    chips = _first_amount(_CHIPS, text) or (slices and slices * config.hardware.chips_per_slice)
    days = _TIME.search(text)
    return Amounts(
        price, currency, _first_amount(_TOKENS, text), _first_amount(_STEPS, text),
        float(days[1].replace(",", "")) * _DAYS[days[2][0].lower()] if days else None,
        int(chips) if chips and chips >= 1 else None,
    )  # fmt: skip


def _first_amount(pattern: re.Pattern[str], text: str) -> float | None:
    match = pattern.search(text)
    if match is None:
        return None
    power = match[2].lower() if match.re.groups > 1 and match[2] else ""
    return float(match[1].replace(",", "")) * _POWERS.get(power, 1.0)


def _price(text: str, config: ExperimentConfig) -> tuple[float | None, str]:
    matches = [match for pattern in _PRICE for match in pattern.finditer(text)]
    matches.sort(key=lambda match: (match["per"] is None, match.start()))
    for match in matches:
        value = float(match[1].replace(",", "")) / (100 if match["cents"] else 1)
        unit = (match["unit"] or "").lower()
        if re.search(r"node|host|vm|server|box", unit):
            value /= chip_of(config.hardware).chips_per_host
        elif re.search(r"slice|pod\b", unit):
            value /= config.hardware.chips_per_slice
        elif re.search(r"cluster|all|everything|machine", unit):
            value /= config.hardware.chips
        if 0 < value <= DEAREST:
            sign = next((key for key, pattern in _CURRENCIES.items() if re.search(pattern, match[0], re.I)), "$")
            return value, sign
    return None, "$"
