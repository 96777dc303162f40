"""When a start migrates: the schema that a database was last migrated to, and the one that it has."""

from __future__ import annotations

import pytest
from django.db import connection

from asapweb.launcher import fingerprints


@pytest.mark.django_db
def test_a_restored_dump_of_an_older_version_is_migrated_although_the_database_was_current():
    with connection.cursor() as cursor:
        database = cursor.connection
        assert fingerprints.recorded_schema(database) != fingerprints.schema_in(database)
        fingerprints.record_schema(database)
        assert fingerprints.recorded_schema(database) == fingerprints.schema_in(database)
        cursor.execute("delete from django_migrations where app = 'launches'")
        assert fingerprints.recorded_schema(database) not in ("", fingerprints.schema_in(database))
        cursor.execute("drop table django_migrations")
        assert fingerprints.schema_in(database) == f"{fingerprints.schema_fingerprint()} "
