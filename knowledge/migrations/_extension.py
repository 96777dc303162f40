from typing import Any

from django.core.management import CommandError
from pgvector.django import VectorExtension

from knowledge.pgvector import complaint


class Pgvector(VectorExtension):
    """The extension, or one sentence on why it cannot be had."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        connection = schema_editor.connection
        connection.ensure_connection()
        if sentence := complaint(connection.connection):
            raise CommandError(sentence)
        super().database_forwards(app_label, schema_editor, from_state, to_state)
