"""Members of a team: added or invited by a link, given a role, removed.  A team never loses its last administrator."""

from __future__ import annotations

import re
from datetime import timedelta

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from accounts.models import Invitation, Membership, Role, SignInLink, Team, User
from accounts.refusals import Refused
from accounts.services import create_sign_in_link, hash_of, new_token
from accounts.text import one_line
from audit import trail
from audit.models import Action

LINK_VALID_FOR = timedelta(days=7)


class MemberError(Refused):
    """The change cannot be made."""


def account_name(text: str) -> str:
    """The name as the sign-in form reads it, so that no two accounts differ only in how their names are encoded."""
    return User.normalize_username(text.strip())


@transaction.atomic
def add(team: Team, username: str, role: str, full_name: str = "", *, by: User) -> Membership | None:
    """A new user of this name in the team with the role.

    None where somebody has the name already: a name proves nothing about a person, so they are asked (`invite`).
    """
    username = account_name(username)
    if not re.fullmatch(r"[\w.@+-]{1,150}", username):
        raise MemberError("A user name has letters, digits and @ . + - _ only, such as ana or ana@example.org.")
    if role not in Role.values:
        raise MemberError("Choose one of the four roles.")
    first, _, last = one_line(full_name, 300).partition(" ")
    user, created = User.objects.get_or_create(
        username=username, defaults={"first_name": first[:150], "last_name": last.strip()[:150]}
    )
    if not created:
        return None
    user.set_unusable_password()
    user.save(update_fields=["password"])
    trail.record(Action.MEMBER_ADDED, team, by, about=user.pk, name=username, role=str(role))
    return Membership.objects.create(user=user, team=team, role=role)


@transaction.atomic
def invite(team: Team, username: str, role: str, *, by: User) -> str:
    """The token of a new invitation for the user of this name, valid for a week; earlier ones end."""
    user = User.objects.get(username=account_name(username))
    if Membership.objects.filter(user=user, team=team).exists():
        raise MemberError(f"{user} is already in this team; change the role in the list.")
    token, token_hash = new_token()
    Invitation.objects.update_or_create(
        user=user,
        team=team,
        defaults={"role": role, "token_hash": token_hash, "expires_at": timezone.now() + LINK_VALID_FOR},
    )
    trail.record(Action.MEMBER_INVITED, team, by, about=user.pk, name=user.get_username(), role=str(role))
    return token


def open_invitations(team: Team) -> QuerySet[Invitation]:
    """Those that can still be accepted, by user name."""
    open_ones = Invitation.objects.filter(team=team, expires_at__gt=timezone.now())
    return open_ones.select_related("user").order_by("user__username")


@transaction.atomic
def withdraw(team: Team, pk: int, *, by: User) -> Invitation | None:
    """End an invitation of the team; None where it was accepted, replaced or withdrawn before."""
    invitation = Invitation.objects.select_related("user").filter(team=team, pk=pk).first()
    if invitation is None or not Invitation.objects.filter(pk=pk).delete()[0]:
        return None
    user = invitation.user
    trail.record(Action.INVITATION_WITHDRAWN, team, by, about=user.pk, name=user.get_username(), role=invitation.role)
    return invitation


def open_invitation(token: str) -> Invitation | None:
    """The invitation, if it can be accepted; None if it is unknown, accepted, replaced or expired."""
    invitations = Invitation.objects.select_related("user", "team")
    return invitations.filter(token_hash=hash_of(token), expires_at__gt=timezone.now()).first()


@transaction.atomic
def accept(invitation: Invitation, user: User) -> Membership:
    """Join the team.  Refused in a session that was made for one team: others may hold such a link."""
    if user.pk != invitation.user_id:
        raise MemberError(f"This invitation is for {invitation.user}, and you are signed in as {user}.")
    if user.confined_to is not None:
        raise MemberError(
            "You signed in with a link from your team's administrator, which is limited to that team. To join another "
            "team, sign in with your password or with a link from the operator (manage.py sign_in_link)."
        )
    deleted, _ = Invitation.objects.filter(pk=invitation.pk, token_hash=invitation.token_hash).delete()
    if not deleted:
        raise MemberError("This invitation has been accepted or replaced.")
    membership, created = Membership.objects.get_or_create(
        user=user, team=invitation.team, defaults={"role": invitation.role}
    )
    if created:
        name, role = user.get_username(), invitation.role
        trail.record(Action.MEMBER_ADDED, invitation.team, user, about=user.pk, name=name, role=role, invited=True)
    return membership


@transaction.atomic
def change_role(membership: Membership, role: str, *, by: User) -> None:
    """Sign-in links made for the earlier role end: who holds one was given that role's rights."""
    if role not in Role.values:
        raise MemberError("Choose one of the four roles.")
    if role != Role.ADMINISTRATOR:
        _keep_an_administrator(membership)
        _end_links_of_administrator(membership, by)
    changed = Membership.objects.select_for_update().filter(pk=membership.pk).exclude(role=role)
    before = changed.values_list("role", flat=True).first()
    if before is not None and changed.update(role=role):
        membership.sign_in_links.filter(used_at=None).delete()
        _record(Action.ROLE_CHANGED, membership, by, before=before, role=str(role))


@transaction.atomic
def remove(membership: Membership, *, by: User) -> None:
    _keep_an_administrator(membership)
    _end_links_of_administrator(membership, by)
    removed, _ = Membership.objects.filter(pk=membership.pk).delete()
    if removed:
        _record(Action.MEMBER_REMOVED, membership, by, role=membership.role)


def link_for(membership: Membership, *, by: User) -> str:
    """A new one-time sign-in token for the member, valid for a week; it opens this team only.

    Refused for a member of other teams: they sign in by themselves.
    """
    if Membership.objects.filter(user=membership.user).exclude(team=membership.team).exists():
        raise MemberError(
            f"{membership.user} belongs to other teams too and signs in with a password or with a link from the "
            "operator (manage.py sign_in_link)."
        )
    return create_sign_in_link(membership.user, LINK_VALID_FOR, membership, by=by)


def _record(action: Action, membership: Membership, by: User, **data: str | int) -> None:
    user = membership.user
    trail.record(action, membership.team, by, about=user.pk, name=user.get_username(), **data)


def _end_links_of_administrator(membership: Membership, by: User) -> None:
    """Who is no administrator any more may have kept a link to sign in as another member: unused ones end."""
    if Membership.objects.filter(pk=membership.pk, role=Role.ADMINISTRATOR).exists():
        ended, _ = SignInLink.objects.filter(membership__team=membership.team_id, used_at=None).delete()
        if ended:
            _record(Action.LINK_REVOKED, membership, by, links_of_all_members=ended)


def _keep_an_administrator(membership: Membership) -> None:
    """To be called in a transaction, before anything else of the team is locked: changes of one team wait here."""
    Team.objects.select_for_update(no_key=True).get(pk=membership.team_id)
    administrators = Membership.objects.filter(team=membership.team_id, role=Role.ADMINISTRATOR)
    if list(administrators.values_list("pk", flat=True)) == [membership.pk]:
        raise MemberError("This is the team's only administrator; make another member an administrator first.")
