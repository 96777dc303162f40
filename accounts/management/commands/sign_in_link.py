from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from accounts.management.address import site_address
from accounts.models import User
from accounts.services import create_sign_in_link, first_administrator


class Command(BaseCommand):
    help = "Print a sign-in link that works once, for the first administrator unless a user is named."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username", nargs="?")
        parser.add_argument("--hours", type=float, default=24.0, help="how long the link is valid (default 24)")
        parser.add_argument(
            "--address",
            default="",
            help="base address of the link; default: that of the deployment or the running application",
        )

    def handle(self, *args: Any, username: str | None, hours: float, address: str, **options: Any) -> None:
        if username is None:
            user = first_administrator()
        else:
            active = User.objects.filter(username=username, is_active=True).first()
            if active is None:
                raise CommandError(f"There is no active user named {username}; create one with create_user.")
            user = active
        if not 0 < hours <= 24 * 365:
            raise CommandError("--hours must be more than 0 and at most 8760.")
        token = create_sign_in_link(user, timedelta(hours=hours))
        self.stdout.write(f"{(address or site_address()).rstrip('/')}/sign-in/{token}/")
