from typing import Any

from django.apps import AppConfig
from django.core.management import CommandError
from django.db import connections
from django.db.models.signals import pre_migrate

from knowledge.pgvector import complaint


class KnowledgeConfig(AppConfig):
    name = "knowledge"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        pre_migrate.connect(_require_pgvector, sender=self)


def _require_pgvector(using: str, **options: Any) -> None:
    """Raise CommandError before any migration is applied where the extension cannot be had."""
    connection = connections[using]
    connection.ensure_connection()
    if sentence := complaint(connection.connection):
        raise CommandError(sentence)
