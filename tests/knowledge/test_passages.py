"""The shipped passages hold what knowledge/passages/README.md promises, and the questions refer to them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from evaluation.retrieval.evaluate import fresh_queries
from knowledge.passage_file import ShippedPassage, read_all

ROOT = Path(__file__).parents[2]
#: What the experts chose in the ASAP paper's experiments 2 and 3: the product must find it, not know it.
EXPERTS = ({"data": 4, "seq": 1, "model": 4}, {"data": 8, "seq": 16, "model": 2})

FILES = read_all()
ALL = [passage for file in FILES for passage in file.passages]


def _everything(passage: ShippedPassage) -> str:
    return " ".join((passage.title, passage.text, passage.formula, passage.applies_when, passage.counter_indications))


def test_there_are_many_and_no_two_say_the_same() -> None:
    assert len(ALL) >= 150
    assert len({p.title for p in ALL}) == len(ALL)
    assert len({p.text for p in ALL}) == len(ALL)


@pytest.mark.parametrize("passage", ALL, ids=lambda p: p.id)
def test_a_passage_stands_alone(passage: ShippedPassage) -> None:
    assert passage.source.strip() and passage.section.strip()
    assert passage.url.startswith("https://")
    assert passage.tags and len(set(passage.tags)) == len(passage.tags)
    assert passage.bottlenecks
    assert "\n\n" not in passage.text
    assert 150 <= len(passage.text) <= 1000
    assert 2 <= len(re.findall(r"[.!?](?=\s|$)", passage.text)) <= 7


def _axis_sizes(text: str) -> list[dict[str, set[int]]]:
    """Sizes named for each axis within one sentence: `model 4`, `'model': 4`, `model=4`, `4-way model`."""
    found = []
    for sentence in re.split(r"(?<=[.;])\s", text):
        sizes: dict[str, set[int]] = {"data": set(), "seq": set(), "model": set()}
        for role, names in (("data", "data|fsdp"), ("seq", "seq|sequence"), ("model", "model|tensor")):
            for after, before in re.findall(
                rf"(?:{names})[\"']?\s*(?:axis|parallelism)?\s*(?:of|=|:)?\s*(\d+)|(\d+)[- ]way (?:{names})", sentence
            ):
                sizes[role].add(int(after or before))
        found.append(sizes)
    return found


@pytest.mark.parametrize("text", ["{'replica': 1, 'data': 4, 'seq': 1, 'model': 4}", "data=4 seq=1 model=4"])
def test_the_guard_would_see_an_answer(text: str) -> None:
    assert any(all(size in sizes[axis] for axis, size in EXPERTS[0].items()) for sizes in _axis_sizes(text))


def test_no_passage_holds_the_answer_of_experiment_2_or_3() -> None:
    for passage in ALL:
        for sizes in _axis_sizes(_everything(passage)):
            for answer in EXPERTS:
                assert not all(size in sizes[axis] for axis, size in answer.items()), passage.id


def test_passages_come_with_what_people_ask_of_them() -> None:
    asked = [passage.questions for passage in ALL if passage.questions]
    assert len(asked) >= 0.95 * len(ALL)
    assert all(len(set(questions)) == len(questions) >= 5 for questions in asked)


def test_no_question_that_measures_is_one_that_is_indexed() -> None:
    """By the letter: those who wrote the indexed ones saw none that measures."""
    indexed = {question.casefold() for passage in ALL for question in passage.questions}
    files = [ROOT / "evaluation" / "retrieval" / name for name in ("questions.toml", "blind_questions.toml")]
    measured = [row["question"] for file in files for row in tomllib.loads(file.read_text("utf-8"))["question"]]
    measured += [query for _, query, _ in fresh_queries()]
    assert not indexed & {question.casefold() for question in measured}


def test_questions_cover_every_topic_and_name_existing_passages() -> None:
    ids = {p.id for p in ALL}
    questions = tomllib.loads((ROOT / "evaluation" / "retrieval" / "questions.toml").read_text("utf-8"))["question"]
    assert len(questions) >= 70
    assert len({q["question"] for q in questions}) == len(questions)
    for question in questions:
        assert question["expected"] and set(question["expected"]) <= ids, question["question"]
    expected = {id for question in questions for id in question["expected"]}
    for file in FILES:
        assert expected & {p.id for p in file.passages}, file.name
