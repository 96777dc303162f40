"""Numbers in sentences find their evidence, and text from profiles stays text."""

from __future__ import annotations

from django.template import Context, Template

from diagnosis.report import Evidence
from experiments.templatetags.quantities import citations


def sentence(text: str, *evidence: Evidence) -> str:
    template = Template('{% load quantities %}{% cited text evidence "finding-0" %}')
    return template.render(Context({"text": text, "evidence": evidence, "evidence_base": "/e/"}))


def test_a_number_opens_the_evidence_of_its_value_and_unit() -> None:
    html = sentence(
        "Takes 28.3 % of the step, 520 ms.",
        Evidence("time", 0.52, "s", "measured"),
        Evidence("share", 0.2826, "share", "computed"),
    )
    assert 'href="/e/finding-0-1/"' in html and ">28.3 %</a>" in html
    assert 'href="/e/finding-0-0/"' in html and ">520 ms</a>" in html


def test_a_number_without_evidence_stays_text() -> None:
    other = Evidence("x", 0.5, "share", "computed")
    assert "<a" not in sentence("Takes 61.0 % of it.", other)


def test_of_two_equal_numbers_the_label_tells() -> None:
    html = sentence(
        "Duty cycle is 100 %, and the collectives take 100 %.",
        Evidence("share of the largest ops", 1.0, "share", "computed", text="100 %"),
        Evidence("duty cycle", 1.0, "share", "measured", text="100 %"),
    )
    assert html.index("finding-0-1") == html.index("finding-0-")


def test_hostile_text_is_shown_and_not_run() -> None:
    html = sentence(
        "<script>alert(1)</script> `<b>` takes 5.0 %",
        Evidence('"><img src=x>', 0.05, "share", "measured"),
    )
    assert "<script>" not in html and "<b>" not in html and "<img" not in html
    assert "<code>&lt;b&gt;</code>" in html


def test_a_number_is_not_found_at_the_beginning_of_a_longer_one() -> None:
    text = "Make model smaller (1); 12.7 % of it at train.py:116, 1.5 % elsewhere."
    evidence = [Evidence("a smaller axis", 1, "count", "computed", text="1")]
    assert [text[start:end] for start, end, _ in citations(text, evidence)] == ["1"]
