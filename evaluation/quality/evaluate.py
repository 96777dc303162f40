"""How good answers are: `python -m evaluation.quality.evaluate` marks the built-in reasoner and writes docs/quality.md.

With `--endpoint` it marks the language model that OPENAI_* and ASAP_LLM_* name, `--repeats` times, and enters it in a
section of its own, dated.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.provider.base import Provider
from evaluation.quality.cases import PROFILES, Case, cases, otherwise
from evaluation.quality.evidence import bench
from evaluation.quality.score import Answer, Mark, mark
from proposals.agents import chat, endpoint, reasoner
from proposals.agents.conversation import Ask, ConstraintTold, FactTold, Said, Turn
from proposals.agents.workbench import Workbench
from proposals.constraints import Constraints

REPORT = Path(__file__).parents[2] / "docs" / "quality.md"
Answerer = Callable[[Workbench, Ask], Iterator[Said]]


@dataclass(frozen=True)
class Marked:
    """A case, and how it did each time."""

    case: Case
    marks: tuple[Mark, ...]

    @property
    def passed(self) -> int:
        return sum(item.passed for item in self.marks)

    @property
    def standing(self) -> str:
        """`stable` where every repeat passed, `failing` where none did, `flaky` between."""
        return "stable" if self.passed == len(self.marks) else "flaky" if self.passed else "failing"


def converse(case: Case, answerer: Answerer) -> Mark:
    """The conversation up to the case's message, and how its answer did; what the thread holds is held as in one."""
    of = bench(case.profile)
    turns: list[Any] = []
    constraints, facts = Constraints(), dict[str, Any]()
    for text in (*case.earlier, case.text):
        said = list(answerer(of, Ask(text, tuple(turns), constraints, dict(facts))))
        answer = Answer.of(said)
        for effect in answer.effects:
            if isinstance(effect, FactTold):
                facts[effect.path] = effect.value
            elif isinstance(effect, ConstraintTold):
                kept = {k: v for k, v in constraints.to_json().items() if k not in effect.dropped}
                constraints = Constraints.from_json({**kept, **effect.constraint})
        turns += [Turn("user", text), Turn("assistant", answer.text)]
    return mark(answer, case.wanted, of, [*case.earlier, case.text])


def evaluate(
    answerer: Answerer,
    profiles: Sequence[str] = PROFILES,
    kinds: Sequence[str] = (),
    repeats: int = 1,
    of: Callable[[str], Iterable[Case]] = cases,
) -> Iterator[Marked]:
    for profile in profiles:
        for case in of(profile):
            if not kinds or any(kind in case.kind for kind in kinds):
                yield Marked(case, tuple(converse(case, answerer) for _ in range(repeats)))


def built_in(of: Workbench, ask: Ask) -> Iterator[Said]:
    return reasoner.answer(of, ask)


def with_model(provider: Provider) -> Answerer:
    return lambda of, ask: chat.answer(of, ask, provider=provider)


@dataclass(frozen=True)
class Total:
    """Of several answers.  stances: kept and asked for; the rest are shares and counts of answers."""

    answers: int
    passed: int
    claims: int
    grounded: float
    needed: int
    found: float
    forbidden: int
    stances: tuple[int, int]
    tools: float
    length: float
    words: float
    by_model: float

    @classmethod
    def of(cls, marks: Iterable[Mark]) -> Total:
        every = list(marks)
        claims, needed = sum(m.claims for m in every), sum(m.needed for m in every)
        taken = [m.stance for m in every if m.stance is not None]
        return cls(
            len(every),
            sum(m.passed for m in every),
            claims,
            1 - sum(len(m.ungrounded) for m in every) / claims if claims else 1.0,
            needed,
            1 - sum(len(m.missing) for m in every) / needed if needed else 1.0,
            sum(len(m.forbidden) for m in every),
            (sum(taken), len(taken)),
            sum(m.tools for m in every) / len(every),
            sum(m.length for m in every) / len(every),
            sum(m.words for m in every) / len(every),
            sum(m.answer.source == "model" for m in every) / len(every),
        )

    def cells(self) -> list[str]:
        kept, asked = self.stances
        return [
            f"{self.passed} of {self.answers}", _percent(self.grounded), _percent(self.found), str(self.forbidden),
            f"{kept} of {asked}" if asked else "–", _percent(self.tools), _percent(self.length), f"{self.words:.0f}",
        ]  # fmt: skip


#: Failures listed one by one; of more, one of each kind.
MOST_LISTED = 40
HEAD = ("right", "grounded", "facts", "forbidden", "side", "tools", "length", "words")


def _percent(value: float) -> str:
    # Never rounded up to all: 99.96 % of the numbers is not every number.
    text = f"{value * 100:.1f}"
    return f"{'100' if value == 1 else '99.9' if text == '100.0' else text} %"


def _table(found: Sequence[Marked], of: Callable[[Marked], str], title: str) -> list[str]:
    groups: dict[str, list[Mark]] = defaultdict(list)
    for item in found:
        groups[of(item)] += item.marks
    lines = [f"| {title} | {' | '.join(HEAD)} |", f"|---|{'--:|' * len(HEAD)}"]
    lines += [f"| {name} | {' | '.join(Total.of(marks).cells())} |" for name, marks in groups.items()]
    return lines


def section(title: str, found: Sequence[Marked], note: str = "") -> str:
    total = Total.of(mark for item in found for mark in item.marks)
    lines = [
        f"## {title}",
        "",
        *([note] if note else []),
        f"{len(found)} cases, {total.answers} answers: {total.claims:,} claims in them, {total.needed:,} facts wanted.",
        "",
        f"| | {' | '.join(HEAD)} |",
        f"|---|{'--:|' * len(HEAD)}",
        f"| all | {' | '.join(total.cells())} |",
        "",
    ]
    repeats = max(len(item.marks) for item in found)
    if repeats > 1:
        counts = {name: sum(item.standing == name for item in found) for name in ("stable", "flaky", "failing")}
        lines += [f"Of {repeats} repeats each: " + ", ".join(f"{n} {name}" for name, n in counts.items()) + ".", ""]
    if total.by_model:
        lines += [f"The model's own answer stood in {_percent(total.by_model)}; else the built-in reasoner's.", ""]
    lines += [*_table(found, lambda item: re.sub(r"^why not .*", "why not an axis of 1", item.case.kind), "asked"), ""]
    lines += [*_table(found, lambda item: item.case.profile, "profile"), ""]
    failed = [item for item in found if item.standing != "stable"]
    if len(failed) > MOST_LISTED:
        kinds = {item.case.kind: item for item in reversed(failed)}
        lines += ["### What failed", "", "One of each kind of question.", "", *map(_failure, reversed(kinds.values()))]
    else:
        lines += ["### What failed", "", *map(_failure, failed)] if failed else ["Nothing failed."]
    return "\n".join([*lines, ""])


def _failure(item: Marked) -> str:
    wrong = list(dict.fromkeys(text for mark in item.marks for text in mark.wrong))
    said = "; ".join(" ".join(text.split()).replace("|", "/") for text in wrong[:3])
    how = "" if len(item.marks) == 1 else f" ({item.standing}, {item.passed} of {len(item.marks)} passed)"
    return f"- {item.case.name}, “{item.case.text}”{how}: {said}"


COLUMNS = {
    "grounded": "share of the numbers, ops, axes, meshes, records and passages claimed that a tool result of the same "
    "answer, or the user, holds",
    "facts": "share of the required facts that it says: the bottleneck as labelled, meshes, speed-ups, confidences, "
    "times and bytes to the digits printed, what is held fast",
    "forbidden": "sentences that claim a deed, certainty, or another bottleneck than the labelled; broken text",
    "side": "where a mesh is argued over: conceded if it is predicted clearly faster and is no less sure, else "
    "defended; ties ask for neither",
    "tools": "one of the tools that the question needs was called",
    "length": "between the bounds of its kind of question; *words*: on average",
}
PREFACE = """# Quality of answers

Written by `make quality` (`python -m evaluation.quality.evaluate`); `--endpoint` marks the language model that
`OPENAI_*` and `ASAP_LLM_*` name and enters it below.

Cases are messages of conversations over the shipped samples and over generated steps whose bottleneck is known. What is
true comes from these labels, from the tools called directly, and from arithmetic on what they return; nothing of the
reasoner. An answer is *right* if nothing of this is wrong:

| column | means |
|---|---|
""" + "".join(f"| {name} | {meaning} |\n" for name, meaning in COLUMNS.items())
NO_ENDPOINT = (
    "\nNo endpoint was available where this was written: no language model has been marked, and nothing here says how "
    "one would do.\n"
)


SEEN = (
    "The reasoner was corrected by these very cases until they passed: what they say is that nothing of them is open, "
    "and that it stays so. The next section says how it fares where it was not.\n"
)
UNSEEN = (
    "Some of the same questions in words that were written afterwards and corrected nothing by themselves. What it "
    "does not understand it says, which counts as wrong here. How it reads 384 further messages: "
    "[reasoner.md](reasoner.md).\n"
)


def report(builtin: Sequence[Marked], others: Sequence[str], unseen: Sequence[Marked] = ()) -> str:
    parts = [PREFACE, section("The built-in reasoner", builtin, SEEN)]
    if unseen:
        parts.append(section("The built-in reasoner, in other words", unseen, UNSEEN))
    parts += others or [f"## Language models\n{NO_ENDPOINT}"]
    return "\n".join(parts)


def kept(text: str) -> dict[str, str]:
    """Sections about models of an earlier report, by title."""
    parts = re.split(r"(?m)^(?=## )", text)[1:]
    return {part.splitlines()[0].removeprefix("## "): part for part in parts if re.match(r"## Model ", part)}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", action="store_true", help="mark the configured language model too")
    parser.add_argument("--repeats", type=int, default=3, help="of each case, with --endpoint (3)")
    parser.add_argument("--profiles", nargs="*", default=PROFILES, help="only these, with --endpoint")
    parser.add_argument("--kinds", nargs="*", default=(), help="only questions whose kind holds one of these texts")
    asked = parser.parse_args(arguments)
    models = kept(REPORT.read_text()) if REPORT.exists() else {}
    if asked.endpoint:
        settings = endpoint.settings()
        provider = endpoint.provider(chat.AGENT)
        if provider is None:
            parser.error("no model is configured: set ASAP_LLM_MODEL, and OPENAI_BASE_URL or OPENAI_API_KEY")
        found = []
        for item in evaluate(with_model(provider), asked.profiles, asked.kinds, asked.repeats):
            found.append(item)
            print(f"{item.standing:8} {item.case.name}", flush=True)
        title = f"Model {settings.model}, {datetime.now(UTC):%Y-%m-%d}"
        models[title] = section(title, found)
    builtin = list(evaluate(built_in))
    unseen = list(evaluate(built_in, of=otherwise))
    REPORT.write_text(report(builtin, list(models.values()), unseen))
    print(f"in other words: {Total.of(mark for item in unseen for mark in item.marks).cells()[0]} right")
    total = Total.of(mark for item in builtin for mark in item.marks)
    print(f"built-in: {', '.join(f'{name} {cell}' for name, cell in zip(HEAD, total.cells(), strict=True))}")
    for item in builtin:
        if item.standing != "stable":
            print(_failure(item))


if __name__ == "__main__":
    main()
