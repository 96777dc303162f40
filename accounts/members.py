"""Members of a team: invited by a link, given a role, removed.  A team never loses its last administrator."""

from __future__ import annotations

import re
from datetime import timedelta

from django.db import transaction

from accounts.models import Membership, Role, Team, User
from accounts.services import create_sign_in_link

LINK_VALID_FOR = timedelta(days=7)


class MemberError(Exception):
    """The change cannot be made.  The text is a sentence for the user."""


@transaction.atomic
def add(team: Team, username: str, role: str, full_name: str = "") -> Membership:
    """A new user of this name, or one who exists already, in the team with the role."""
    username = username.strip()
    if not re.fullmatch(r"[\w.@+-]{1,150}", username):
        raise MemberError("A user name has letters, digits and @ . + - _ only, such as ana or ana@example.org.")
    if role not in Role.values:
        raise MemberError("Choose one of the four roles.")
    user = User.objects.filter(username=username).first()
    if user is None:
        user = User.objects.create_user(username=username)
        user.set_unusable_password()
        first, _, last = full_name.strip().partition(" ")
        user.first_name, user.last_name = first[:150], last.strip()[:150]
        user.save()
    elif Membership.objects.filter(user=user, team=team).exists():
        raise MemberError(f"{username} is in this team already; change the role in the list.")
    return Membership.objects.create(user=user, team=team, role=role)


@transaction.atomic
def change_role(membership: Membership, role: str) -> None:
    if role not in Role.values:
        raise MemberError("Choose one of the four roles.")
    if role != Role.ADMINISTRATOR:
        _keep_an_administrator(membership)
    Membership.objects.filter(pk=membership.pk).update(role=role)


@transaction.atomic
def remove(membership: Membership) -> None:
    _keep_an_administrator(membership)
    membership.delete()


def link_for(membership: Membership) -> str:
    """A new one-time sign-in token for the member, valid for a week.

    Refused for a member of another team too: a link would open that team's door as well.
    """
    if Membership.objects.filter(user=membership.user).exclude(team=membership.team).exists():
        raise MemberError(
            f"{membership.user} is in other teams too, so no link is made here; "
            "the operator can make one with manage.py sign_in_link."
        )
    return create_sign_in_link(membership.user, LINK_VALID_FOR)


def _keep_an_administrator(membership: Membership) -> None:
    others = Membership.objects.select_for_update().filter(team=membership.team, role=Role.ADMINISTRATOR)
    if membership.role == Role.ADMINISTRATOR and not others.exclude(pk=membership.pk).exists():
        raise MemberError("This is the team's only administrator; make another member one first.")
