"""How often the cause of a failed run is right: `make accuracy` writes docs/accuracy-failures.md.

Signatures were written from the half that is `seen` and from the source of the programs; the other half is measured.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path

from evaluation.failures.labelled import Labelled, labelled
from proposals.failures import CAUSES, read_failure
from proposals.failures.failure import OF_CONFIGURATION, SURE
from proposals.failures.signatures import table

DOCUMENT = Path(__file__).parents[2] / "docs" / "accuracy-failures.md"
BEGIN, END = "<!-- measured by evaluation/failures/evaluate.py -->", "<!-- end -->"
#: Cause and verdict.
Answer = tuple[str, str]


def analysed(text: str) -> Answer:
    failure = read_failure(BytesIO(text.encode()))
    return failure.cause, failure.verdict


def last_error(text: str) -> Answer:
    """A baseline: the known message, if any, of the last line that contains "error"."""
    lines = [line for line in text.splitlines() if "error" in line.lower()]
    return analysed(lines[-1]) if lines else ("unknown", "retry")


def says_memory(text: str) -> Answer:
    """A baseline: out of memory wherever the log says "memory"."""
    return ("out_of_memory", "forbid") if "memory" in text.lower() else ("unknown", "retry")


METHODS: dict[str, Callable[[str], Answer]] = {
    "first error": analysed,
    "last line with “error”": last_error,
    "keyword “memory”": says_memory,
}


def shares(items: Sequence[Labelled], method: Callable[[str], Answer]) -> tuple[int, int]:
    """How many have the right cause, and how many the right verdict."""
    answers = [method(item.text) for item in items]
    causes = sum(answer[0] == item.cause for item, answer in zip(items, answers, strict=True))
    return causes, sum(answer[1] == item.verdict for item, answer in zip(items, answers, strict=True))


def report() -> str:
    unseen = [item for item in labelled() if not item.seen]
    seen = [item for item in labelled() if item.seen]
    lines = [
        f"{len(labelled())} logs, {len(seen)} for development and {len(unseen)} held out; "
        f"{len(table().signature)} signatures.",
        "",
        "| method | cause, held out | verdict, held out | cause, development | verdict, development |",
        "|---|---|---|---|---|",
    ]
    for name, method in METHODS.items():
        cells = [f"{right} of {len(items)}" for items in (unseen, seen) for right in shares(items, method)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    wrong = [(item, analysed(item.text)) for item in unseen]
    forbade = sum(answer[1] == "forbid" and item.verdict == "retry" for item, answer in wrong)
    missed = sum(answer[1] == "retry" and item.verdict == "forbid" for item, answer in wrong)
    lines += [
        "",
        f"Held out: {forbade} forbidden although a retry would be right; {missed} retried although the run fails "
        "again.",
    ]
    lines += ["", "| cause | held-out logs | found |", "|---|---|---|"]
    for cause, count in Counter(item.cause for item in unseen).most_common():
        confused = sum(answer[0] == cause for item, answer in wrong if item.cause == cause)
        lines.append(f"| {CAUSES[cause].lower()} | {count} | {confused} |")
    lines += ["", "Wrong in the held-out half:", ""]
    lines += [
        f"- `{item.name}`: {CAUSES[item.cause].lower()}, {item.verdict}; found {CAUSES[answer[0]].lower()}, {answer[1]}"
        for item, answer in wrong
        if answer != (item.cause, item.verdict)
    ] or ["- none"]
    causes = ", ".join(CAUSES[cause].lower() for cause in OF_CONFIGURATION)
    sure = f"The configuration is forbidden, above {SURE:g} confidence, for: {causes}."
    return "\n".join([*lines, "", sure])


def main() -> None:
    written = report()
    print(written)
    text = DOCUMENT.read_text("utf-8")
    filled = re.sub(f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}\n{written}\n{END}", text, flags=re.DOTALL)
    DOCUMENT.write_text(filled, "utf-8")


if __name__ == "__main__":
    main()
