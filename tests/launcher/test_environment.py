import pytest
from django.db import connection


@pytest.mark.django_db
def test_the_test_database_is_a_real_postgresql_18() -> None:
    with connection.cursor() as cursor:
        cursor.execute("show server_version")
        assert cursor.fetchone()[0].startswith("18.")
