"""Comparing two stored diagnoses: the same answer as the pure comparison, its pages, who may see them."""

from __future__ import annotations

import html
import re

import pytest

from diagnosis import comparing
from diagnosis.compare import compare
from diagnosis.models import DiagnosisRecord
from perfmodel.config_file import parse_config
from tests.backend.factories import make_experiment
from tests.backend.test_diagnosis_pages import sample, stored

pytestmark = pytest.mark.slow

BEFORE, AFTER = "cpu-data8", "cpu-data2-seq2-model2"


@pytest.fixture
def pair(people):
    comparing._kept.cache_clear()
    return stored(people, BEFORE), stored(people, AFTER)


def query(pair):
    return f"a={pair[0].run.profile_id}&b={pair[1].run.profile_id}"


def reload(record):
    return DiagnosisRecord.objects.select_related("run__profile", "run__experiment").get(pk=record.pk)


def test_from_rows_as_from_the_profiles_themselves(pair):
    sides = [(parse_config(config)[0], found) for _, found, config in map(sample, (BEFORE, AFTER))]
    truth = compare(*sides)
    rows = comparing.full(*map(reload, pair))
    assert rows.statement == truth.statement
    assert rows.comparability == truth.comparability and rows.comparability.comparable is True
    assert rows.configuration == truth.configuration
    assert rows.speedup == pytest.approx(truth.speedup)
    assert [(op.label, op.matched_by) for op in rows.ops] == [(op.label, op.matched_by) for op in truth.ops]
    assert [op.change for op in rows.ops] == pytest.approx([op.change for op in truth.ops])


def test_without_ops_everything_else_is_the_same(pair):
    quick, whole = comparing.summary(*map(reload, pair)), comparing.full(*map(reload, pair))
    assert (quick.kpis, quick.breakdown, quick.collectives) == (whole.kpis, whole.breakdown, whole.collectives)
    assert quick.ops == ()
    assert whole.evidence[: len(quick.evidence)] == quick.evidence
    assert set(quick.statement) < set(whole.statement)


def test_the_other_way_round_every_change_turns_its_sign(pair):
    one, two = comparing.full(*map(reload, pair)), comparing.full(*map(reload, reversed(pair)))
    assert one.speedup == pytest.approx(1 / two.speedup)
    assert {row.term: row.change for row in one.breakdown} == pytest.approx(
        {row.term: -row.change for row in two.breakdown}
    )


def test_pages_of_changes_hold_each_once_and_in_order(pair):
    found = comparing.full(*map(reload, pair))
    pages = [comparing.ops_page(found, "all", "", str(number), 20)[0] for number in range(1, 7)]
    rows = [row for page in pages for row in page]
    assert len(rows) == found.ops_total == pages[0].paginator.count
    sizes = [abs(row.change) for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    gained, lost = (comparing.ops_page(found, show, "", "1", 500)[0] for show in ("gained", "lost"))
    assert all(row.change < 0 for row in gained) and all(row.change > 0 for row in lost)
    assert not comparing.ops_page(found, "all", "no such op", "1")[0]


def test_the_page_says_first_whether_the_two_compare(pair, people):
    page = people.client("viewer").get(f"/compare/?{query(pair)}").content.decode()
    order = [page.index(words) for words in ("Comparable: same workload", "Configuration", "Key figures",
                                             "Step-time breakdown", "Collectives per axis", "Op by op")]  # fmt: skip
    assert order == sorted(order)
    assert "mesh.ici.data" in page and "training.global_batch" not in page  # only what differs


def test_every_number_of_its_sentences_opens(pair, people):
    client = people.client("viewer")
    page = client.get(f"/compare/?{query(pair)}").content.decode()
    found = {html.unescape(href) for href in re.findall(r'href="(/compare/evidence/[^"]+)"', page)}
    assert len(found) >= 6
    for href in found:
        assert client.get(href).status_code == 200, href
    assert client.get(f"/compare/evidence/999/?{query(pair)}").status_code == 404


def test_unlike_runs_are_told_apart_and_still_compared_as_shares(people):
    one, two = stored(people, BEFORE), stored(people, "asap-experiment-3")
    page = people.client("viewer").get(f"/compare/?a={one.run.profile_id}&b={two.run.profile_id}").content.decode()
    assert "Not directly comparable" in page
    assert "only shares of the step" in page.lower()
    assert "as fast" not in page  # no speed-up is claimed


def test_large_profiles_get_their_ops_after_the_page(pair, people, monkeypatch):
    from diagnosis import views_compare

    monkeypatch.setattr(views_compare, "OPS_AT_ONCE", 10)
    client = people.client("viewer")
    page = client.get(f"/compare/?{query(pair)}").content.decode()
    assert 'hx-trigger="load"' in page and "Changes op by op" not in page
    part = client.get(f"/compare/ops/?{query(pair)}", headers={"HX-Request": "true"}).content.decode()
    assert "Changes op by op" in part and "<html" not in part
    assert "<html" in client.get(f"/compare/ops/?{query(pair)}&show=lost&page=2&find=attention").content.decode()


def test_two_profiles_of_one_experiment_are_told_apart_in_the_chooser(pair, people):
    one, two = pair
    type(two.run).objects.filter(pk=two.run_id).update(experiment=one.run.experiment_id)
    type(two.run.profile).objects.filter(pk=two.run.profile_id).update(experiment=one.run.experiment_id)
    page = people.client("viewer").get(f"/compare/?{query(pair)}").content.decode()
    assert page.count("profile of ") >= 2
    assert "Comparable" in page


@pytest.mark.parametrize(
    ("address", "words"),
    [("/compare/", "Nothing to compare yet"), ("/compare/?q=nothing", "No experiment matches “nothing”")],
)
def test_an_empty_chooser_says_what_to_do(address, words, people):
    assert words in people.client("viewer").get(address).content.decode()


def test_one_side_and_the_same_side_twice(pair, people):
    client, pk = people.client("viewer"), pair[0].run.profile_id
    assert "Choose the other profile" in client.get(f"/compare/?a={pk}").content.decode()
    assert "Same profile twice" in client.get(f"/compare/?a={pk}&b={pk}").content.decode()


def test_a_profile_without_a_diagnosis_is_named(pair, people):
    waiting = make_experiment(people, "still reading").profiles.get()
    page = people.client("viewer").get(f"/compare/?a={waiting.pk}&b={pair[0].run.profile_id}").content.decode()
    assert "No diagnosis to compare yet" in page and "still reading" in page
    answer = people.api("viewer").get(f"/api/compare/?a={waiting.pk}&b={pair[0].run.profile_id}")
    assert answer.status_code == 409


def test_the_api_prints_what_the_command_prints(pair, people):
    data = people.api("viewer").get(f"/api/compare/?{query(pair)}&top=3").json()
    assert len(data["ops"]) == 3 < data["ops_total"]
    assert data["comparability"]["comparable"] is True
    assert data["bottleneck"] == {"before": "communication", "after": "communication"}
    assert people.api("viewer").get("/api/compare/?a=1").status_code in (400, 404)
    assert people.api("viewer").get("/api/compare/").status_code == 400
