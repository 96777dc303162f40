"""`manage.py remove_leftovers`: files in the data folder that nothing names; the worker does it every half hour."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from experiments.services import leftovers


class Command(BaseCommand):
    help = "Remove files in the data folder that a killed process left and nothing in the database names."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--older-than-s", type=float, default=leftovers.OLDER_THAN.total_seconds(), metavar="S")
        parser.add_argument("--list", action="store_true", help="name them, remove nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        older_than = timedelta(seconds=options["older_than_s"])
        for path in (leftovers.find if options["list"] else leftovers.remove)(older_than):
            self.stdout.write(path)
