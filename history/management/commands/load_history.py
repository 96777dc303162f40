from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from history.services import seed


class Command(BaseCommand):
    help = "Bring the shipped records of the optimization database in line with their files."

    def handle(self, *args: Any, **options: Any) -> None:
        if changed := seed():
            self.stdout.write(f"{changed} records of the optimization database are new or changed")
