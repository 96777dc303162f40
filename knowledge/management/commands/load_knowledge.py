from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from knowledge.passage_file import FOLDER, PassageError
from knowledge.services.shipped import load_shipped


class Command(BaseCommand):
    help = "Bring the shipped passages in the database to what the files say; nothing where they agree already."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--folder", type=Path, default=FOLDER, help="folder of the Markdown files")

    def handle(self, *args: Any, folder: Path, **options: Any) -> None:
        try:
            loaded = load_shipped(folder)
        except PassageError as error:
            raise CommandError(f"{folder}/{error}") from None
        self.stdout.write(
            f"{loaded.passages} passages: {loaded.added} added, {loaded.changed} changed, {loaded.retired} retired"
        )
