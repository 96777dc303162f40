"""Django's `migrate`, which says so where a database is too old for it.

The first migrations of each app were many once.  What stands for them `replaces` the last: where that is recorded,
Django takes the new one as applied.  A database that stopped before has a part of its tables, which Django would make
again, or call inconsistent.
"""

from __future__ import annotations

from typing import Any

from django.core.management import CommandError
from django.core.management.commands import migrate
from django.db import connections
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        recorded = MigrationRecorder(connections[options["database"]]).applied_migrations().keys()
        known = MigrationLoader(None, load=False)
        known.load_disk()
        if any(key in recorded and not recorded >= set(one.replaces) for key, one in known.disk_migrations.items()):
            raise CommandError(
                "This database is too old for this version to upgrade: start it once with the version named in "
                "docs/operation.md, then with this one. Nothing was changed."
            )
        super().handle(*args, **options)
