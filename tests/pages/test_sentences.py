"""Sentences of words and values: as plain text, as HTML that opens the evidence, as they are stored."""

from __future__ import annotations

import copy
import json

import pytest
from django.template import Context, Template

from diagnosis.report import DIAGNOSIS, Bottleneck, Diagnosis, SourcedValue
from experiments.sentences import Sentence, Value, join, say, spans_of, values

SHARE = Value("exposed communication", 0.2826, "share", field="finding-0-1")
TIME = Value("step time", 5.234, "s", "predicted", field="predicted.step_time_s.estimate")


def html(text: str, **context: str) -> str:
    template = Template("{% load quantities %}{% sentence text %}")
    return template.render(Context({"text": text, "evidence_base": "/e/", **context}))


def test_as_text_values_have_the_digits_that_their_origin_allows() -> None:
    assert say("Takes {} of {}.", SHARE, TIME) == "Takes 28.3 % of 5.2 s."
    assert str(Value("peak", None, "bytes")) == "not measured"


def test_sentences_are_put_together_with_their_values() -> None:
    text = "At most " + say("{} per step", TIME) + join(" and ", ["", say("{}", SHARE)]) + "."
    assert text == "At most 5.2 s per step and 28.3 %."
    assert spans_of(text) == ("At most ", TIME, " per step and ", SHARE, ".")
    assert values(text, text) == [TIME, SHARE]
    assert spans_of(copy.deepcopy(text)) == spans_of(text)


def test_names_with_braces_are_words() -> None:
    assert say("{} takes {}", "fusion{0}", TIME) == "fusion{0} takes 5.2 s"
    with pytest.raises(ValueError, match="More parts"):
        say("{}", TIME, SHARE)


def test_a_value_opens_the_panel_that_it_names() -> None:
    found = html(say("Takes {}.", SHARE))
    assert 'href="/e/finding-0-1/"' in found and ">28.3\u00a0%</a>" in found
    assert 'href="/e/finding-0-1/?a=1"' in html(say("Takes {}.", SHARE), evidence_query="?a=1")


def test_a_value_without_a_panel_says_what_it_is() -> None:
    found = html(say("Takes {}.", TIME))
    assert "<a" not in found and 'title="Predicted: step time"' in found
    assert "<a" not in html(say("Takes {}.", SHARE), evidence_base="")


def test_of_two_equal_numbers_each_opens_its_own() -> None:
    one, two = (Value(name, 1.0, "share", field=f"bottleneck-{at}") for at, name in enumerate(("ops", "duty cycle")))
    found = html(say("Duty cycle is {}, and ops take {}.", two, one))
    assert found.index("bottleneck-1") < found.index("bottleneck-0")


def test_hostile_text_is_shown_and_not_run() -> None:
    value = Value('"><img src=x>', 0.05, "share", field="finding-0-0")
    found = html(say("<script>alert(1)</script> `<b>` takes {}", value))
    assert "<script>" not in found and "<b>" not in found and "<img" not in found
    assert "<code>&lt;b&gt;</code>" in found


def test_stored_sentences_are_read_with_their_values_and_those_of_earlier_versions_as_words() -> None:
    row = SourcedValue("busy", 0.96, "share", "measured", "busy ÷ step")
    verdict = Bottleneck("compute", 0.7, say("The device is busy {}.", row)).numbered()
    stored = json.loads(json.dumps(DIAGNOSIS.write(Diagnosis({}, {}, verdict, (), ()))))
    (value,) = values(DIAGNOSIS.read(stored).bottleneck.statement)
    assert (value.value, value.field) == (0.96, "bottleneck-0") == (row.value, verdict.evidence[0].field)
    stored["bottleneck"] = {"primary": "compute", "confidence": 0.7, "statement": "The device is busy 96 %."}
    old = DIAGNOSIS.read(stored).bottleneck.statement
    assert spans_of(old) == ("The device is busy 96 %.",) and isinstance(old, Sentence)
    stored["bottleneck"]["statement"] = ["busy ", {"unit": 3}]
    with pytest.raises(ValueError, match="statement"):
        DIAGNOSIS.read(stored)


def test_evidence_that_no_sentence_cites_is_listed_below() -> None:
    template = Template(
        '{% load quantities %}{% uncited rows "finding-0" text as more %}{% for at, row in more %}{{ at }} {% endfor %}'
    )
    rows = [SourcedValue("a", 0.5, "share", field="finding-0-0"), SourcedValue("b", 0.5, "share", field="finding-0-1")]
    assert template.render(Context({"rows": rows, "text": say("Takes {}.", SHARE)})).split() == ["finding-0-0"]
    old = [SourcedValue("a", 0.5, "share"), SourcedValue("b", None, "share")]
    assert template.render(Context({"rows": old, "text": "Takes 50 %."})).split() == ["finding-0-0"]
