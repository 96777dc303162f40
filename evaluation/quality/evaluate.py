"""Answers to a set of questions, to be marked: `python -m evaluation.quality.evaluate QUESTIONS RUNS ANSWERS`.

QUESTIONS: a JSON list of {id, run, before, text, right, wrong}.  RUNS: JSON, a run's name → {"config": path,
"profiles": [path, …]}; without profiles from its measured step time or the performance model alone.  ANSWERS:
written, one JSON object a line: the question with the first results of the palette, and the answer of the first.  Who
marks adds `"mark"`: right, partly, wrong, offered (among the results, not first) or refused; `--summary ANSWERS` counts
them.
`--endpoint` asks the language model that OPENAI_* and ASAP_LLM_* name instead.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from agent.events import Final
from agent.provider.base import Provider
from dialogue.computations import run
from dialogue.computations.matching import matches
from experiments.ingest import read_profile
from experiments.without_profile import without_profile
from perfmodel.config_file import read_config
from proposals.agents import chat, endpoint
from proposals.agents.conversation import Ask, Turn
from proposals.agents.workbench import Workbench

#: Results of the palette that are looked at.
FIRST = 3
MARKS = ("right", "partly", "wrong", "offered", "refused")


@cache
def bench(config: str, profiles: tuple[str, ...]) -> Workbench:
    """The workbench of a run outside any database."""
    read, _ = read_config(Path(config))
    profile = read_profile(list(profiles)) if profiles else without_profile(read)
    return Workbench.of_values(profile, read)


def answered(of: Workbench, question: Mapping[str, Any], provider: Provider | None) -> dict[str, Any]:
    """The question with what it leads to: a model's answer, or the first results of the palette, the first answered."""
    if provider is None:
        found = matches(of, question["text"])[:FIRST]
        listed = [{"key": each.computation.key, "arguments": each.arguments} for each in found]
        text = run(of, found[0].computation.key, found[0].arguments).rendered.plain if found else ""
        return {**question, "answer": text, "results": listed}
    turns: list[Turn] = []
    text = ""
    for message in (*question.get("before", ()), question["text"]):
        said = list(chat.answer(of, Ask(message, tuple(turns)), provider=provider))
        text = next((str(each.answer) for each in said if isinstance(each, Final)), "")
        turns += [Turn("user", message), Turn("assistant", text)]
    return {**question, "answer": text}


def answers(questions: Path, runs: Path, provider: Provider | None = None) -> Iterator[dict[str, Any]]:
    known = json.loads(runs.read_text("utf-8"))
    for question in json.loads(questions.read_text("utf-8")):
        run = known.get(question["run"])
        if run is not None:
            yield answered(bench(run["config"], tuple(run.get("profiles", ()))), question, provider)


def summary(marked: Path) -> str:
    """Counts and shares of the marks."""
    marks = Counter(json.loads(line).get("mark", "not marked") for line in marked.read_text("utf-8").splitlines())
    total = sum(marks.values())
    return "\n".join(f"{name:12}{marks[name]:5} {marks[name] / total:6.1%}" for name in (*MARKS, "not marked"))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="QUESTIONS RUNS ANSWERS; with --summary only ANSWERS")
    parser.add_argument("--endpoint", action="store_true", help="ask the configured language model")
    parser.add_argument("--summary", action="store_true", help="count the marks of ANSWERS")
    asked = parser.parse_args(arguments)
    if asked.summary:
        print(summary(asked.files[0]))
        return
    if len(asked.files) != 3:
        parser.error("give QUESTIONS, RUNS and ANSWERS")
    provider = endpoint.provider(chat.AGENT) if asked.endpoint else None
    if asked.endpoint and provider is None:
        parser.error("no model is configured: set ASAP_LLM_MODEL, and OPENAI_BASE_URL or OPENAI_API_KEY")
    questions, runs, written = asked.files
    with written.open("w", encoding="utf-8") as file:
        for row in answers(questions, runs, provider):
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
