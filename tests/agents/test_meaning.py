"""What is read by its meaning: messages that nobody who wrote the rules or the examples has seen, guards, and limits.

heldout_wordings.jsonl was written from the names of the intents alone.  Do not add to the examples from it.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from evaluation import fit_meaning
from knowledge.embedding.base import EmbeddingError
from perfmodel.config_file import parse_config
from proposals.agents import reasoner
from proposals.agents.reasoner import meaning, told
from proposals.agents.reasoner.answers import talk
from proposals.agents.reasoner.understand import Knows, understand

HELD_OUT = Path(__file__).with_name("heldout_wordings.jsonl")
CONFIG, _ = parse_config(
    {
        "hardware": {"chip": "v5p", "topology": [4, 4, 4]},
        "mesh": {"ici": {"data": 4, "seq": 4, "model": 4}},
        "model": "llama3-70b",
        "training": {"global_batch": 64, "seq_len": 8192},
    }
)


def read(text: str) -> list[str]:
    """What is asked and told, as the examples name it."""
    found = understand(text, Knows(CONFIG))
    asked = [meaning.ALIKE.get(item.intent, item.intent) for item in found.asked]
    held = [f"tell:{'memory_tight' if key == 'memory_margin' else key}" for key in found.told.constraints]
    return [name for name in (*asked, *held, *found.told.facts) if name != meaning.NOTHING]


@pytest.mark.slow
def test_messages_of_others_are_mostly_read_right_and_seldom_wrong() -> None:
    marks: Counter[str] = Counter()
    for line in HELD_OUT.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        wanted, got = meaning.ALIKE.get(row["intent"], row["intent"]), read(row["text"])
        if wanted == meaning.NOTHING:
            marks["idle, left alone" if not got else "idle, taken for something"] += 1
        else:
            marks["right" if wanted in got else "wrong" if got else "unread"] += 1
    asks = marks["right"] + marks["wrong"] + marks["unread"]
    assert asks == 324
    assert marks["right"] / asks > 0.8, marks
    assert marks["wrong"] / asks < 0.1, marks
    assert marks["idle, left alone"] > 2 * marks["idle, taken for something"], marks


def test_shipped_weights_were_learnt_from_the_examples_that_stand_there() -> None:
    numbers = json.loads(fit_meaning.NUMBERS.read_text())
    assert numbers["of"] == fit_meaning.digest(), "run python -m evaluation.fit_meaning"
    texts = [text for text, _ in fit_meaning.examples()]
    assert len(set(map(str.lower, texts))) == len(texts) == numbers["examples"]
    assert numbers["meaning"]["right"] > 2 * numbers["rules"]["right"]
    assert numbers["meaning"]["wrong"] < numbers["rules"]["wrong"]


def test_every_intent_has_an_answer_and_words_for_what_it_is_about() -> None:
    for intent in meaning.shipped().intents:
        if intent.startswith(meaning.TELLS):
            assert told.held_fast(intent.removeprefix(meaning.TELLS), "said").constraints
        elif intent != meaning.NOTHING:
            assert intent in reasoner._ANSWERS and intent in talk._ASKS


@pytest.mark.parametrize("intent", sorted(intent for intent, (_, question) in talk._ASKS.items() if question))
def test_what_is_offered_instead_of_an_answer_is_read_by_a_rule(intent: str) -> None:
    asked = understand(talk._ASKS[intent][1], Knows(CONFIG)).asked
    assert [(item.intent, item.guessed) for item in asked] == [(intent, False)]


def test_of_what_is_not_read_the_right_question_is_mostly_offered_and_small_talk_is_not() -> None:
    marks: Counter[str] = Counter()
    for line in HELD_OUT.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        found = understand(row["text"], Knows(CONFIG))
        if found.unclear and not (found.asked or found.told):
            offered = meaning.perhaps(found.unclear[0])
            assert len(offered) <= meaning.OFFERED
            if row["intent"] == meaning.NOTHING:
                marks["small talk, offered" if offered else "small talk"] += 1
            else:
                marks["right one offered" if row["intent"] in offered else "not offered"] += 1
    assert marks["right one offered"] > marks["not offered"], marks
    assert marks["small talk, offered"] < 0.1 * marks["small talk"], marks


@pytest.mark.parametrize("rule", sorted(meaning.FIRM))
def test_guards_stand_whatever_the_words_seem_to_mean(rule: str) -> None:
    assert meaning.decide(rule, "which one should we take?", {"recommend": 0.99, "none": 0.01}) == meaning.Read(rule)


def test_little_certainty_changes_nothing() -> None:
    assert meaning.decide("memory", "x", {"risks": meaning.OVER_A_RULE - 0.01, "none": 0.1}).intent == "memory"
    assert meaning.decide("", "x", {"risks": meaning.LEAST - 0.01, "none": 0.1}).intent == ""
    assert meaning.decide("memory", "x", {"risks": 0.9, "none": 0.1}) == meaning.Read("risks", guessed=True)


def test_a_question_holds_nothing_fast() -> None:
    sure = {"tell:keep_batch": 0.99, "none": 0.01}
    assert meaning.decide("", "our batch is sacrosanct, isn't it?", sure).intent == ""
    assert meaning.decide("", "our batch is sacrosanct", sure).intent == "tell:keep_batch"


def test_what_is_meant_is_held_and_can_be_taken_back() -> None:
    found = understand("Nobody here will sign off on a different number of sequences per step.", Knows(CONFIG))
    assert found.told.constraints == {"keep_batch": True}
    assert "sequences per step" in found.told.sentences["keep_batch"]


def test_without_the_embedder_the_rules_stand_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def embed(self, texts: list[str]) -> None:
            raise EmbeddingError("the wheel is gone")

    monkeypatch.setattr(meaning, "_embedder", Gone)
    assert read("Which do you recommend first, seeing that the wheel is gone?") == ["recommend"]
    assert understand("I wonder whose head rolls should it flop without a wheel", Knows(CONFIG)).unclear
