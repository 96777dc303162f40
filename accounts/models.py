"""Who works here: users, teams, and what each may do.  Every object of the product belongs to a team."""

from __future__ import annotations

from django.contrib.auth.models import AbstractUser
from django.db import models


class Role(models.TextChoices):
    """What a member of a team may do; each includes what stands before it."""

    VIEWER = "viewer", "Viewer"
    ENGINEER = "engineer", "Engineer"  # uploads, configures, asks for proposals
    REVIEWER = "reviewer", "Reviewer"  # approves and rejects
    ADMINISTRATOR = "administrator", "Administrator"  # members and settings

    @property
    def level(self) -> int:
        return list(Role).index(self)


class User(AbstractUser):
    """A person who signs in.  Rights come from memberships, not from Django's flags.

    confined_to: the one membership, by primary key, that this request's session or token opens; None: all of the
    user's.  Not stored: `accounts.confinement` sets it while it authenticates.
    """

    confined_to: int | None = None


class Team(models.Model):
    """keep_payloads_days: how long what agents sent to models and tools, and what they got, stays on record; None: for
    as long as its experiment."""

    name = models.CharField(max_length=100, unique=True)
    keep_payloads_days = models.PositiveSmallIntegerField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """One user's role in one team."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=20, choices=Role, default=Role.VIEWER)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "team"], name="one_membership_per_user_and_team")]

    def __str__(self) -> str:
        return f"{self.user} in {self.team}: {self.role}"

    def may(self, role: Role | str) -> bool:
        return Role(self.role).level >= Role(role).level


class SignInLink(models.Model):
    """A link that signs one user in, once.  Only the hash of its token is stored.

    membership: that of the team whose administrator made it, and the only one that it opens; None: the operator made
    it, it signs in with all rights of the user.
    """

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="sign_in_links")
    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, null=True, related_name="sign_in_links")
    token_hash = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)


class Invitation(models.Model):
    """A team asks somebody who has an account already to join; they answer by a link, of which the hash is stored."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="invitations")
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="invitations")
    role = models.CharField(max_length=20, choices=Role)
    token_hash = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "team"], name="one_invitation_per_user_and_team")]


class TokenConfinement(models.Model):
    """An API token made in a session that opens one membership opens no more; with the membership its rights end."""

    token = models.OneToOneField("knox.AuthToken", on_delete=models.CASCADE, related_name="confinement")
    membership = models.ForeignKey(Membership, on_delete=models.SET_NULL, null=True, related_name="+")


class TokenScope(models.Model):
    """What an API token may do, where that is not all that its user may: it is refused everywhere else.

    scope: who asks for it knows the word, such as `launch:12`.  label: what the list of tokens calls it.
    """

    token = models.OneToOneField("knox.AuthToken", on_delete=models.CASCADE, related_name="scoped")
    scope = models.CharField(max_length=60, db_index=True)
    label = models.CharField(max_length=100)


class SignInAttempt(models.Model):
    """A password that was tried and not found right.  about: whose, or from where, as `accounts.attempts` counts."""

    about = models.CharField(max_length=100)
    at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        indexes = [models.Index(fields=["about", "at"])]
