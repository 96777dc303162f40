from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from knowledge.passage_file import PassageError
from knowledge.services.shipped import load_shipped


class Command(BaseCommand):
    help = "Bring the shipped passages in the database to what the files say; nothing where they agree already."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            loaded = load_shipped()
        except PassageError as error:
            raise CommandError(f"knowledge/passages/{error}") from None
        self.stdout.write(
            f"{loaded.passages} passages: {loaded.added} added, {loaded.changed} changed, {loaded.retired} retired"
        )
