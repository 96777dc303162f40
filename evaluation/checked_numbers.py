"""What the check of an answer's numbers lets through and what it catches, on recorded answers of language models.

    python -m evaluation.checked_numbers dialogues.json

dialogues.json: per message `question`, `earlier` (texts of the thread), `results` (of the tools, in order), `tries`
(the model's texts, each with how many results it had seen) and `final`.  Complaints are counted on first tries.  In
each final answer every number with a unit is changed once, at random by 3 to 30 %; where the sentence names a proposal,
it is exchanged for the same quantity of another one; and the words measured and predicted are swapped.  Of each kind
the share is counted that the check then complains of.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.events import ToolReturned
from proposals.agents.grounding import Evidence, check

_NUMBER = re.compile(
    r"(?<![\w.,/#\-\[`])(?P<digits>\d+(?:,\d{3})*(?:\.\d+)?)(?=(?P<unit>\s?(?:%|×|ms|µs|s|[kMGT]i?B(?:/s)?|[MGTPE]FLOP(?:s|/s)?))(?![\w/]))"
    r"(?!\s?%[ -](?:\w+ )?(?:interval|range))"
)
_PROPOSAL = re.compile(r"\bproposal (\d)\b", re.IGNORECASE)
_MEASURED = re.compile(r"\bmeasured\b|\bpredicted\b(?! to)")
#: As `3.41 s` is printed: what a result's value is in the unit, by the end of its key.
_SCALES = {"ms": 1e3, "s": 1.0, "µs": 1e6, "GB": 1e-9, "MB": 1e-6, "%": 100.0, "×": 1.0}


@dataclass(frozen=True)
class Change:
    """A text with one thing made wrong, at start."""

    kind: str
    text: str
    start: int
    what: str


def evidence(item: dict[str, Any], after: int | None = None, before: Sequence[dict[str, Any]] = ()) -> Evidence:
    """before: the messages of the same thread."""
    asked = [text for at, text in enumerate(item["earlier"]) if at % 2 == 0]
    earlier = [row for each in before for row in each["results"]]
    return Evidence.of(
        returned(item["results"][:after]), list(dict.fromkeys((*asked, item["question"]))), returned(earlier)
    )


def returned(rows: Sequence[dict[str, Any]]) -> list[ToolReturned]:
    return [
        ToolReturned(1, f"r{n}", f"c{n}", row["name"], row["ok"], row["arguments"], row["result"])
        for n, row in enumerate(rows, 1)
    ]


def changes(item: dict[str, Any], rng: random.Random) -> Iterator[Change]:
    text = item["final"]
    for match in _NUMBER.finditer(text):
        digits = match["digits"]
        decimals = len(digits.partition(".")[2])
        value = float(digits.replace(",", ""))
        if not value:
            continue
        for _ in range(20):
            factor = 1 + rng.choice((-1, 1)) * rng.uniform(0.03, 0.3)
            new = f"{value * factor:,.{decimals}f}" if "," in digits else f"{value * factor:.{decimals}f}"
            off = abs(float(new.replace(",", "")) / value - 1)
            if off >= 0.03:
                kind = "changed by 5 % or more" if off >= 0.05 else "changed by 3 to 5 %"
                yield Change(kind, _put(text, match.span("digits"), new), match.start(), f"{digits} to {new}")
                break
        if other := _of_another(item, text, match, rng):
            yield Change(
                "of another configuration",
                _put(text, match.span("digits"), other),
                match.start(),
                f"{digits} to {other}",
            )
    for match in _MEASURED.finditer(text):
        new = "measured" if match[0].lower() == "predicted" else "predicted"
        yield Change(f"said to be {new}", _put(text, match.span(), new), match.start(), f"{match[0]} to {new}")


def _put(text: str, span: tuple[int, int], new: str) -> str:
    return text[: span[0]] + new + text[span[1] :]


def _of_another(item: dict[str, Any], text: str, match: re.Match[str], rng: random.Random) -> str | None:
    """A number that only other proposals have, where the line, or sentence, names one proposal and has its number."""
    start = max(text.rfind("\n", 0, match.start()), text.rfind(". ", 0, match.start())) + 1
    ends = [place for place in (text.find("\n", match.end()), text.find(". ", match.end())) if place >= 0]
    named = {int(number) for number in _PROPOSAL.findall(text[start : min(ends, default=len(text))])}
    scale = _SCALES.get(match["unit"].strip())
    if len(named) != 1 or scale is None:
        return None
    listed = [each["result"] for each in item["results"] if each["name"] == "proposals" and each["ok"]]
    decimals = len(match["digits"].partition(".")[2])
    printed = {
        row["number"]: {f"{value * scale:.{decimals}f}": key for value, key in _values(row)}
        for result in listed
        for row in result.get("proposals", ())
    }
    own = printed.get(next(iter(named)), {})
    key = own.get(match["digits"])
    if key is None:
        return None
    apart = [of for number, of in printed.items() if number not in named]
    others = sorted({digits for of in apart for digits, name in of.items() if name == key and digits not in own})
    return rng.choice(others) if others else None


def _values(row: dict[str, Any]) -> Iterator[tuple[float, Any]]:
    for key in ("speedup_per_token", "confidence_share", "memory_headroom_bytes"):
        if isinstance(row.get(key), int | float):
            yield abs(row[key]), key
    for key in ("step_time_s", "breakdown_s", "hbm_per_chip_bytes"):
        for name, value in (row.get(key) or {}).items() if isinstance(row.get(key), dict) else ():
            yield abs(value), (key, name if key != "breakdown_s" else "")


def measure(dialogues: Sequence[dict[str, Any]], seed: int, show: bool) -> dict[str, tuple[int, int]]:
    """(complaints, numbers) of first tries and of final answers, and (caught, tried) per kind of change."""
    counts: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    for item in dialogues:
        if not item["tries"]:
            continue
        rng = random.Random(f"{seed} {item['id']} {item['message']}")
        before = [
            other for other in dialogues
            if len(item["earlier"]) > 1 and other["final"] == item["earlier"][1]
        ]  # fmt: skip
        first = item["tries"][0]
        for name, text, of in (
            ("complaints on first tries", first["text"], evidence(item, first["after_results"], before)),
            ("complaints on final answers", item["final"], evidence(item, None, before)),
        ):
            wrong = check(text, of)
            counts[name] += len(wrong)
            counts[f"{name}: answers"] += bool(wrong)
            tried[name] += len(_NUMBER.findall(text))
            tried[f"{name}: answers"] += 1
            if show and "first" in name:
                for complaint in wrong:
                    print(f"{item['id']} | {complaint.message} | {complaint.sentence[:260]}")
        of = evidence(item, None, before)
        base = Counter(c.message for c in check(item["final"], of))
        for change in changes(item, rng):
            more = Counter(c.message for c in check(change.text, of)) - base
            tried[change.kind] += 1
            counts[change.kind] += bool(more)
            if show and not more:
                around = change.text[max(0, change.start - 120) : change.start + 80]
                print(f"MISSED {change.kind}: {item['id']} {change.what} | {around!r}")
    return {name: (counts[name], tried[name]) for name in tried}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dialogues", type=Path)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--show", action="store_true", help="print each complaint and each change that was missed")
    options = parser.parse_args()
    for name, (caught, tried) in measure(
        json.loads(options.dialogues.read_text("utf-8")), options.seed, options.show
    ).items():
        print(f"{name:40} {caught:5} of {tried:5}  {100 * caught / max(tried, 1):5.1f} %")


if __name__ == "__main__":
    main()
