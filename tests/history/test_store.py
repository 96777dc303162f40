from __future__ import annotations

import dataclasses
import json

import pytest
from django.core.exceptions import PermissionDenied

from history import seeds
from history.models import HistoryRecord
from history.record import RECORD
from history.services import store
from tests.history.records import record


def test_a_record_comes_back_as_it_was_given(people):
    given = record("a", caveats=("one run only", "batch unchanged"), licence="ours", parameters=8.03e9)
    assert store.to_record(store.add(given, people.team, people.engineer)) == given


def test_adding_twice_keeps_the_first(people):
    first = store.add(record("a"), people.team)
    again = store.add(record("a", title="Another title"), people.team)
    assert again.pk == first.pk and again.title == "Sequence sharding traded for data parallelism"
    assert HistoryRecord.objects.count() == 1


def test_a_contradiction_is_refused_with_a_sentence(people):
    with pytest.raises(store.RecordError, match=r"outcome: is 'slower', but a speed-up of 1\.2"):
        store.add(record("a", outcome="slower"), people.team)


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """Writes the file of shipped records anew, as another version of the product would bring it."""
    monkeypatch.setattr(seeds, "FOLDER", tmp_path)

    def write(*records):
        rows = [{"licence": "ours", "url": "https://example.org/", **without_blanks(value)} for value in records]
        (tmp_path / "some.json").write_text(json.dumps(rows), encoding="utf-8")
        seeds.records.cache_clear()

    yield write
    seeds.records.cache_clear()


def without_blanks(value):
    return {name: item for name, item in RECORD.write(value).items() if item not in ("", None)}


def test_seeds_are_loaded_once_and_follow_their_files(db, shipped):
    shipped(record("kept"), record("changed"), record("gone"))
    assert store.seed() == 3
    before = dict(HistoryRecord.objects.values_list("key", "pk"))
    assert store.seed() == 0

    shipped(record("kept"), record("changed", title="A better title", chip="v6e"), record("new"))
    assert store.seed() == 3
    found = {row.key: row for row in HistoryRecord.objects.all()}
    assert set(found) == {"kept", "changed", "new"}
    assert found["changed"].pk == before["changed"] and found["changed"].title == "A better title"
    assert (found["changed"].version, found["kept"].version) == (2, 1)
    assert found["changed"].content_hash != found["kept"].content_hash  # so that it gets another vector
    assert store.seed() == 0


def test_every_shipped_record_is_stored_without_loss(db):
    store.seed()
    stored = {row.key: store.to_record(row) for row in HistoryRecord.objects.all()}
    for shipped in seeds.records():
        value = stored[shipped.id]
        assert dataclasses.replace(value, model_family=shipped.model_family) == shipped
        assert list(value.before.mesh or {}) == list(shipped.before.mesh or {})


def test_shipped_records_are_not_deleted(people):
    store.seed()
    row = HistoryRecord.objects.filter(team=None).first()
    with pytest.raises(PermissionDenied, match="ships with the product"):
        store.delete(row, by=people.administrator)
    own = store.add(record("own"), people.team)
    store.delete(own, by=people.administrator)
    assert not HistoryRecord.objects.filter(key="own").exists()


def test_a_record_points_only_at_its_own_teams_experiments(people, ready):
    row = store.add(record("linked"), people.team, experiment_after=ready.experiment, profile_after=ready.run.profile)
    assert row.experiment_after == ready.experiment
    with pytest.raises(store.RecordError, match="its own team"):
        store.add(record("foreign"), people.outsider.memberships.get().team, experiment_before=ready.experiment)
