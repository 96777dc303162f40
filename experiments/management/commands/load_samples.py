from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from accounts.models import Team
from accounts.services import first_administrator
from experiments.services.shipped import load_into


class Command(BaseCommand):
    help = "Queue the profiles that ship with the product, where the team does not have them yet."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--team", default="", help="name of the team (default: the first administrator's)")

    def handle(self, *args: Any, team: str, **options: Any) -> None:
        if team:
            chosen = Team.objects.filter(name=team).first()
            if chosen is None:
                raise CommandError(f"There is no team named {team}.")
        else:
            memberships = first_administrator().memberships.select_related("team")
            chosen = memberships.filter(role="administrator").order_by("pk")[0].team
        for experiment in load_into(chosen):
            self.stdout.write(f"{experiment.name}: queued")
