"""When a start migrates."""

from __future__ import annotations

import pytest
from django.db import connection

from asapweb.launcher.fingerprints import applied_migrations, migrations


@pytest.mark.django_db
def test_a_restored_dump_of_an_older_version_lacks_migrations():
    with connection.cursor() as cursor:
        database = cursor.connection
        assert migrations() <= applied_migrations(database)
        cursor.execute("delete from django_migrations where app = 'launches'")
        assert {app for app, _ in migrations() - applied_migrations(database)} == {"launches"}
        cursor.execute("drop table django_migrations")
        assert applied_migrations(database) == set()
