"""The pages of a diagnosis on shipped profiles: every number opens its rows, ops are found, reports taken away."""

from __future__ import annotations

import html
import json
import re
from functools import cache
from pathlib import Path

import pytest

import formatting
from diagnosis import evidence, services
from diagnosis.analyzer import diagnose
from diagnosis.models import DiagnosisRecord
from diagnosis.presentation import sections
from evaluation.steps import shipped
from experiments.models import Run, RunStatus
from experiments.sentences import values
from experiments.services import profiles, runs
from tests.backend.factories import make_experiment

SAMPLES = Path(__file__).parents[2] / "experiments" / "samples"
NAMES = ("asap-experiment-3", "cpu-data8", "cpu-data2-seq2-model2")


@cache
def sample(name):
    profile, config = shipped.sample(name)
    return profile, diagnose(profile, config), json.loads((SAMPLES / name / "config.json").read_text())


def stored(people, name) -> DiagnosisRecord:
    """The sample as the Coordinator stores it."""
    profile, found, config = sample(name)
    experiment = make_experiment(people, name)
    type(experiment).objects.filter(pk=experiment.pk).update(config=config, mesh=config["mesh"])
    run = runs.newest(experiment)
    profiles.store(run.profile, profile, profiles.write(run, profile))
    Run.objects.filter(pk=run.pk).update(status=RunStatus.READY)
    type(experiment).objects.filter(pk=experiment.pk).update(state=RunStatus.READY)
    return services.store(run, found)


@pytest.fixture(params=NAMES)
def record(request, people):
    return stored(people, request.param)


@pytest.fixture
def paper(people):
    return stored(people, "asap-experiment-3")


def base(record):
    return f"/experiments/{record.run.experiment_id}/"


def links(page, inside):
    return {html.unescape(href) for href in re.findall(r'href="([^"]+)"', page) if inside in href}


@pytest.mark.slow
def test_every_value_of_the_diagnosis_has_a_panel_with_that_value(record):
    found = record.value
    said = [
        found.bottleneck.statement,
        *found.bottleneck.contradictions,
        *(x for _, lines in sections(found) for x in lines),
    ]
    said += [text for item in found.findings for text in (item.insight, item.action, item.impact)]
    assert len(values(*said)) > 20
    for value in values(*said):
        panel = evidence.find(record, value.field)
        assert panel is not None, value
        kind, _, term = value.field.partition("-")  # the panel of a term has its time
        shown = found.breakdown_share[term] if kind == "term" else panel.value
        assert shown == pytest.approx(value.value), value


@pytest.mark.slow
def test_every_evidence_link_of_page_and_report_leads_somewhere(record, people):
    client = people.client("viewer")
    pages = [client.get(base(record) + path) for path in ("", "report/")]
    assert {page.status_code for page in pages} == {200}
    found = set().union(*(links(page.content.decode(), "/evidence/") for page in pages))
    assert len(found) > 40
    for href in sorted(found):
        answer = client.get(href, headers={"HX-Request": "true"})
        assert answer.status_code == 200, href
        assert "Definition" in answer.content.decode() or "Contributing rows" in answer.content.decode(), href


@pytest.mark.slow
def test_the_panel_of_a_sum_adds_up(paper, people):
    panel = evidence.find(paper, "axis-model")
    assert panel.value == pytest.approx(sum(op.time_s for op in panel.ops))
    assert panel.ops_time_s == pytest.approx(panel.value)
    assert {op.mesh_axis for op in panel.ops} == {"model"}
    module = evidence.find(paper, "group-module-attention")
    assert module.ops_share == pytest.approx(sum(op.time_share for op in paper.ops.filter(module="attention")))


NOTHING = (
    "saving-99", "axis-none", "group-name-x", "group-module-nothing", "ceiling-1",
    "kpi-nothing", "finding-0-99", "finding-²-1", "collective-999999999999", "nonsense", "confidence-2",
)  # fmt: skip


def test_evidence_of_nothing_is_not_found(paper, people):
    client = people.client("viewer")
    for ref in NOTHING:
        assert client.get(f"{base(paper)}evidence/{ref}/").status_code == 404, ref


def test_groups_sum_what_their_filters_list(paper):
    for column in services.GROUPS:
        page = services.groups(paper, column, size=500)
        assert sum(row["count"] for row in page) == paper.ops.count()
        assert [row["share"] for row in page] == sorted((row["share"] for row in page), reverse=True)
        for row in page[:5]:
            listed = services.ops(paper, {column: row["value"] or services.NONE}, size=500)
            assert len(listed) == row["count"]
            assert sum(op.time_share for op in listed) == pytest.approx(row["share"])


def test_ops_are_summed_by_framework_path_whatever_the_layer(paper):
    some = paper.ops.filter(scope__regex=r"layer_\d")
    assert some.exists()
    rows = {row["value"]: row for row in services.groups(paper, "scope", size=500)}
    assert not any(re.search(r"\d", path) for path in rows)
    for path, row in rows.items():
        listed = services.ops(paper, {"scope": path or services.NONE}, size=500)
        assert len(listed) >= row["count"]  # and what is below the path


def test_source_lines_are_found_by_search(paper, people):
    page = people.client("viewer").get(base(paper)).content.decode()
    (href, *_) = sorted(links(page, "/ops/?q="))
    assert "assumed_transformer.py" in href
    answer = people.client("viewer").get(href).content.decode()
    assert "No op matches" not in answer


def test_an_op_shows_its_neighbours_and_its_collective(paper, people):
    op = paper.ops.exclude(collective="").order_by("rank").first()
    page = people.client("viewer").get(f"{base(paper)}ops/{op.rank}/").content.decode()
    assert "Participants" in page and "Exposed" in page and op.source in page
    assert f'Other ops in <code class="wrapany">{op.scope.rpartition("/")[0]}</code>' in page
    beside, _ = services.neighbours(op, 12)
    assert op not in beside and {other.scope.rpartition("/")[0] for other in beside} >= {op.scope.rpartition("/")[0]}


@pytest.mark.parametrize("query", ["scope=%5C%5C(", "scope=" + "a" * 5000, "group=nonsense", "group=source&page=999999",
                                   "sort=%00", "module=none", "q=%25", "scope=none", "size=10&page=2"])  # fmt: skip
def test_no_query_breaks_the_explorer(query, paper, people):
    assert people.client("viewer").get(f"{base(paper)}ops/?{query}").status_code == 200


def test_the_json_report_is_the_contract(paper, people):
    answer = people.client("viewer").get(base(paper) + "report.json")
    assert answer["Content-Type"].startswith("application/json")
    assert "attachment" in answer["Content-Disposition"]
    data = json.loads(answer.content)
    assert data == json.loads(json.dumps(services.contract(paper)))
    assert {"kpis", "top_ops", "bottleneck", "findings"} <= set(data)


def test_the_markdown_report_holds_every_finding_and_no_foreign_markup(paper, people):
    data = paper.data
    data["findings"][0]["title"] = "<script>alert(1)</script> [link](http://x) | pipe"
    DiagnosisRecord.objects.filter(pk=paper.pk).update(data=data)
    answer = people.client("viewer").get(base(paper) + "report.md")
    text = answer.content.decode()
    assert answer["Content-Type"].startswith("text/markdown")
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert "[link]" not in text.replace("\\[link\\]", "")
    for number, finding in enumerate(data["findings"], start=1):
        assert f"### {number}. " in text
        if number > 1:
            assert finding["title"].replace("`", "") in text.replace("`", "").replace("\\", "")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) >= 20
    assert str(formatting.seconds(data["kpis"]["step_time_s"])).replace(formatting.NBSP, " ") in text


def test_a_profile_without_steps_says_so(paper, people):
    data = paper.data
    data["timeline"], data["breakdown_s"], data["breakdown_share"] = {}, {}, {}
    data["not_measured"]["step_time_s"] = "the window held no whole step"
    data["kpis"]["step_time_s"] = None
    DiagnosisRecord.objects.filter(pk=paper.pk).update(data=data)
    page = people.client("viewer").get(base(paper)).content.decode()
    assert page.count("the window held no whole step") >= 2


def test_a_note_that_is_a_warning_is_shown_once(paper, people):
    severe, mild = "host-0: only 1 of 8 devices recorded any op.", "XProf's op tables cover the first 3 steps."
    DiagnosisRecord.objects.filter(pk=paper.pk).update(data=paper.data | {"warnings": [severe]})
    profile = paper.run.profile
    notes = [{"severity": "warning", "message": severe}, {"severity": "info", "message": mild}]
    profile.summary = (profile.summary or {}) | {"notes": notes}
    profile.save()
    page = people.client("viewer").get(base(paper)).content.decode()
    assert html.unescape(page).count(severe) == 2  # the summary line, and the list that it opens
    assert html.unescape(page).count(mild) == 1
    written = people.client("viewer").get(base(paper) + "report.md").content.decode()
    assert written.count("only 1 of 8 devices") == 1


def test_what_the_configuration_leaves_out_is_marked_as_default(people):
    record = stored(people, "asap-experiment-3")
    (line,) = (line for line in record.data["report"]["Experiment details"] if line.startswith("Training: "))
    assert "weights fsdp (default)" in line and "remat full (default)" in line
    experiment = record.run.experiment
    experiment.refresh_from_db()
    experiment.config["training"] |= {"weight_sharding": "fsdp"}
    experiment.save()
    _, found, _ = sample("asap-experiment-3")
    again = services.store(record.run, found)
    (line,) = (line for line in again.data["report"]["Experiment details"] if line.startswith("Training: "))
    assert "weights fsdp, remat full (default)" in line


def test_the_ops_table_says_what_its_shares_are_of_and_marks_more_than_the_roof(paper, people):
    client = people.client("viewer")
    page = client.get(base(paper) + "ops/").content.decode()
    assert "Shares are of the step." in page and "Above the roofline" not in page
    paper.ops.filter(rank=1).update(roofline_efficiency=1.65)
    assert "Above the roofline" in client.get(base(paper) + "ops/").content.decode()
    for path in ("ops/1/", "report/", "report.md"):
        assert "higher than the profile reports" in client.get(base(paper) + path).content.decode()
    paper.ops.update(time_s=None)
    assert "Shares are of device time." in client.get(base(paper) + "ops/").content.decode()


PATHS = [
    "",
    "ops/",
    "ops/?group=source",
    "?group=source",
    "ops/1/",
    "ops/?group=scope",
    "report/",
    "report.md",
    "report.json",
    "evidence/ceiling/",
]


def test_pages_ask_the_same_few_questions_whatever_they_show(paper, people, django_assert_max_num_queries):
    client = people.client("viewer")
    for path in ("", "ops/", "ops/?group=scope", "ops/1/", "report/"):
        with django_assert_max_num_queries(26):
            assert client.get(base(paper) + path).status_code == 200
