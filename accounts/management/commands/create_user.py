from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from accounts.management.address import site_address
from accounts.models import Role
from accounts.services import LOCAL_TEAM, create_sign_in_link, create_user


class Command(BaseCommand):
    help = "Create a user with a role in a team and print a sign-in link that works once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--team", default=LOCAL_TEAM)
        parser.add_argument("--role", choices=Role.values, default=Role.ENGINEER)
        parser.add_argument("--email", default="")

    def handle(self, *args: Any, username: str, team: str, role: str, email: str, **options: Any) -> None:
        try:
            user = create_user(username, team, Role(role), email=email)
        except ValueError as error:
            raise CommandError(str(error)) from error
        token = create_sign_in_link(user, timedelta(days=7))
        self.stdout.write(f"{site_address()}/sign-in/{token}/")
