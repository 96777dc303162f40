"""Databases of before, whose apps had several first migrations: the last of them is the oldest that is upgraded."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.test.utils import CaptureQueriesContext

from accounts.models import Team

pytestmark = pytest.mark.django_db

#: As each app's rows were: the first, and the last.
LAST = {
    "accounts": "0005_token_scope",
    "campaigns": "0002_trial_keys_by_identity",
    "diagnosis": "0004_diagnosis_newest",
    "dialogue": "0002_answers_with_values",
    "experiments": "0002_saved_views",
    "history": "0002_no_counts",
    "knowledge": "0002_questions_without_index",
    "launches": "0003_launch_of_configuration",
    "proposals": "0002_mesh_key_by_placement",
}


@pytest.fixture
def recorder() -> MigrationRecorder:
    """Of a database that the last version with several migrations has made."""
    for app in ("campaigns", "diagnosis", "history"):  # whose tables have changed since
        call_command("migrate", app, "0001_initial", verbosity=0)
    recorder = MigrationRecorder(connection)
    recorder.migration_qs.filter(app__in=LAST).delete()
    for app, last in LAST.items():
        recorder.record_applied(app, "0001_initial")
        recorder.record_applied(app, last)
    recorder.record_applied("accounts", "0003_confinement")
    recorder.record_applied("experiments", "0006_sharding_memory")
    return recorder


def test_a_database_of_the_last_version_before_needs_no_step(recorder: MigrationRecorder) -> None:
    team = Team.objects.create(name="Kept")
    with CaptureQueriesContext(connection) as asked:
        call_command("migrate", verbosity=0)
    changed = [q["sql"] for q in asked if q["sql"].startswith(("CREATE TABLE", "DROP TABLE", "ALTER TABLE"))]
    tables = {"history_recordimport", "campaigns_campaign", "diagnosis_diagnosisrecord"}
    assert {sql.split('"')[1] for sql in changed} == tables
    assert Team.objects.get() == team
    assert ("accounts", "0002_tokens") in recorder.applied_migrations()
    call_command("migrate", check_unapplied=True, verbosity=0)


@pytest.mark.parametrize("app", LAST)
def test_an_older_one_is_refused_with_the_way_out(recorder: MigrationRecorder, app: str) -> None:
    recorder.record_unapplied(app, LAST[app])
    before = recorder.applied_migrations()
    with pytest.raises(CommandError, match=r"start it once with the version named in docs/operation\.md"):
        call_command("migrate", verbosity=0)
    assert recorder.applied_migrations().keys() == before.keys()


def test_one_from_before_whole_apps_is_refused_too(recorder: MigrationRecorder) -> None:
    """Where Django would call the history inconsistent."""
    recorder.migration_qs.filter(app__in=["launches", "dialogue"]).delete()
    recorder.record_unapplied("accounts", LAST["accounts"])
    with pytest.raises(CommandError, match="too old"):
        call_command("migrate", verbosity=0)
