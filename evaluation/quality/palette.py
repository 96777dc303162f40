"""Measure how often the palette offers a computation that answers a question, and with its arguments.

`python -m evaluation.quality.palette evaluation/questions/live_second.json` prints the shares of the questions with a
wanted computation for which it is first and among the first three; runs whose profiles are absent are left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dialogue.computations.matching import Match, matches
from evaluation.quality.evaluate import bench

RUNS = Path("evaluation/questions/runs.json")


def ranks(questions: list[Mapping[str, Any]]) -> Iterator[tuple[int, bool]]:
    """Yield for each question the rank of the first computation that is wanted (0: absent), and True if it has the
    arguments that somebody who read the question named."""
    runs = json.loads(RUNS.read_text("utf-8"))
    for question in questions:
        run = runs[question["run"]]
        profiles = tuple(run.get("profiles", ()))
        if not question["wanted"] or not all(Path(file).exists() for file in profiles):
            continue
        found = matches(bench(run["config"], profiles), question["text"])
        rank = next((n for n, match in enumerate(found, start=1) if match.computation.key in question["wanted"]), 0)
        yield rank, bool(rank) and _has(found[rank - 1], question)


def _has(found: Match, question: Mapping[str, Any]) -> bool:
    """Return True unless it is the computation wanted most and lacks a named argument."""
    named = question.get("arguments", {})
    return found.computation.key != question["wanted"][0] or all(
        found.arguments.get(key) == value
        or (isinstance(value, dict) and value.items() <= dict(found.arguments.get(key, {})).items())
        for key, value in named.items()
    )


if __name__ == "__main__":
    for file in sys.argv[1:]:
        measured = list(ranks(json.loads(Path(file).read_text("utf-8"))))
        for name, some in (("", measured), (" with its arguments", [(rank, has) for rank, has in measured if has])):
            first, three = (sum(0 < rank <= most for rank, _ in some) / len(measured) for most in (1, 3))
            print(f"{file}: {len(measured)} questions, first{name} {first:.0%}, among three {three:.0%}")
