"""What of the history is read for a run: within its team, failures included, and not only the nearest few."""

from __future__ import annotations

from dataclasses import replace

from history.case import Case, cases_of
from history.record import Record
from history.services import store
from proposals.services import precedents
from tests.history.records import record, side

TRAINING = {"global_batch": 512, "seq_len": 4096, "micro_batch": 8, "remat": "none"}
RAN = Case(
    chip="v5p", chips=512, model_name="llama3.1-8b", parameters=8e9, batch=512, seq_len=4096, bottleneck="communication"
)


def change(key: str, **values: object) -> Record:
    held = {"parameters": 8e9, "before": side(training=TRAINING), "after": side(data=16, seq=4, training=TRAINING)}
    return record(key, **{**held, **values})


def failed(key: str, failure: str, **training: object) -> Record:
    after = side(data=16, seq=4, training={**TRAINING, **training})
    return change(key, after=after, speedup=None, outcome="failed", failure=failure, measure="")


def test_failures_of_every_telling_kind_are_read(people):
    """A crash without a cause counts where the model has it run out of memory."""
    full = failed("a crash", "other", global_batch=65536, micro_batch=1024)
    full = replace(full, changes=("mesh", "batch"), model_name="llama3.1-405b", parameters=None)
    [case] = cases_of([full])
    assert case.mechanism is not None and case.mechanism.fits < 0.5
    store.add_many([full, failed("oom", "out_of_memory"), failed("hung", "hang")], people.team, None)
    assert set(precedents.of_run(people.team.pk, RAN).keys) == {"a crash", "oom", "hung"}


def test_a_like_record_is_read_though_a_hundred_look_nearer(people):
    """Its bottleneck is not known, as published ones often do not say."""
    others = [change(f"near-{n}") for n in range(100)]
    store.add_many([change("like", bottleneck=""), *others], people.team, None)
    assert "like" in precedents.of_run(people.team.pk, RAN).keys


def test_the_precedents_of_a_team_are_its_own_and_the_shipped_ones(people):
    other = people.outsider.memberships.get().team
    store.add(change("one id", title="ours"), people.team)
    store.add(change("one id", title="theirs"), other)
    store.to_row(change("one id", title="shipped later"), None).save()
    for known in (precedents.of_run(people.team.pk, RAN), precedents.of_keys(people.team.pk, ["one id"])):
        assert "theirs" not in {item.record.title for item in known.values}
    assert [item.record.title for item in precedents.of_keys(people.team.pk, ["one id"]).values] == ["ours"]
