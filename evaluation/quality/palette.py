"""Measure how often the palette offers a computation that answers a question, and with its arguments.

`python -m evaluation.quality.palette evaluation/questions/live_second.json` prints the shares of the questions with a
wanted computation for which it is first and among the first three; runs whose profiles are absent are left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from dialogue.computations.matching import Match, matches
from evaluation.quality.evaluate import bench
from perfmodel.config import ExperimentConfig
from proposals.agents.settings import axis_of
from proposals.agents.workbench import Workbench

RUNS = Path("evaluation/questions/runs.json")


@cache
def bench_of(run: str) -> Workbench:
    """Return a run of evaluation/questions."""
    of = json.loads(RUNS.read_text("utf-8"))[run]
    return bench(of["config"], tuple(of.get("profiles", ())))


def ranks(questions: list[Mapping[str, Any]]) -> Iterator[tuple[int, int]]:
    """Yield for each question the rank of the first computation that is wanted (0: absent), and of the first with the
    arguments that somebody who read the question named."""
    runs = json.loads(RUNS.read_text("utf-8"))
    for question in questions:
        run = runs[question["run"]]
        profiles = tuple(run.get("profiles", ()))
        if not question["wanted"] or not all(Path(file).exists() for file in profiles):
            continue
        of = bench_of(question["run"])
        found = matches(of, question["text"], question.get("before", ()))
        wanted = [n for n, match in enumerate(found, start=1) if match.computation.key in question["wanted"]]
        right = [n for n in wanted if _has(found[n - 1], question, of.config)]
        yield next(iter(wanted), 0), next(iter(right), 0)


def _has(found: Match, question: Mapping[str, Any], config: ExperimentConfig) -> bool:
    """Return True unless it is the computation wanted most and lacks a named argument; what a configuration does not
    name is as in the run."""
    if found.computation.key != question["wanted"][0]:
        return True
    training = {key: value for key, value in vars(config.training).items() if value is not None}
    now: dict[str, dict[str, Any]] = {"mesh": dict(config.mesh.ici), "changes": training}
    for key, value in question.get("arguments", {}).items():
        given = found.arguments.get(key)
        if key in now:
            wanted = {axis_of(config.mesh, name) or name: size for name, size in value.items()}
            if not wanted.items() <= {**now[key], **(given or {})}.items():
                return False
        elif given != value:
            return False
    return True


if __name__ == "__main__":
    for file in sys.argv[1:]:
        measured = list(ranks(json.loads(Path(file).read_text("utf-8"))))
        for name, some in zip(("", " with its arguments"), zip(*measured, strict=True), strict=True):
            first, three = (sum(0 < rank <= most for rank in some) / len(measured) for most in (1, 3))
            print(f"{file}: {len(measured)} questions, first{name} {first:.0%}, among three {three:.0%}")
