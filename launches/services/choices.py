"""What a team sets once for all of its launches, and what is chosen for one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from django.conf import settings
from django.db import transaction
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from accounts.models import Role, Team, User
from accounts.permissions import membership_in, refusal
from audit import trail
from audit.models import Action
from experiments.services import secrets, storage
from launches import backends
from launches.models import LaunchSettings
from proposals.launch.file import one_line

#: Tools that run an arm, with their names.
TOOLS = {
    "maxtext": "MaxText",
    "megatron": "Megatron-LM",
    "trial": "Reference step (asap trial)",
    "own": "Custom command",
}
MOST_REPEATS, MOST_STEPS = 10, 10_000
_MOST_LINES = 40
Name = Annotated[str, Field(max_length=200, pattern=r"^[\w.:/@=,+-]*$")]


class ChoiceError(Exception):
    """A setting is not possible.  The text is a sentence for the user."""


class TeamValues(BaseModel):
    """setup: lines of shell that every bundle begins with (modules, virtual environment, checkout).  command: of the
    tool `own`.  server: our address as the cluster reaches it; empty: the one the browser uses.  token_days: how long a
    token of a launch works.  The rest goes to the backend that has it."""

    model_config = ConfigDict(extra="forbid")

    setup: str = Field(default="", max_length=4000)
    command: str = Field(default="", max_length=2000)
    server: str = Field(
        default="", max_length=300, pattern=r"^(https?://[\w.:\[\]-]+(/[\w./-]*)?)?$",
        title="Address of this server as seen from the cluster", description="Default: the address in your browser.",
        examples=["https://asap.example.com"],
    )  # fmt: skip
    token_days: int = Field(default=7, ge=1, le=30, title="Launch token lifetime (days)")
    time_limit_min: int = Field(
        default=60, ge=1, le=7 * 24 * 60, title="Time limit of a run (min)",
        description="After this time a run is ended. Bundles run by hand have no limit.",
    )  # fmt: skip
    partition: Name = ""
    account: Name = ""
    qos: Name = Field(default="", title="Quality of service")
    constraint: Name = ""
    gres: Name = Field(default="", title="Generic resources", examples=["gpu:8"])
    gpus_per_node: int | None = Field(default=None, ge=1, le=64, title="GPUs per node")
    image: Name = Field(default="", title="Container image")
    resource: Name = Field(default="", title="Accelerator resource name", examples=["google.com/tpu"])
    node_selector: dict[Name, Name] = Field(default={}, examples=["cloud.google.com/gke-tpu-topology=4x4"])
    service_account: Name = ""
    queue: Name = Field(default="", title="Kueue queue")

    @field_validator("setup", "command")
    @classmethod
    def _lines(cls, text: str) -> str:
        lines = [one_line(line, 1000) for line in text.splitlines()]
        if len(lines) > _MOST_LINES:
            raise ValueError(f"more than {_MOST_LINES} lines")
        return "\n".join(lines).strip()


def enabled() -> backends.Enabled:
    """What the operator's file enables.  Raises ChoiceError where it cannot be read."""
    try:
        return backends.read(Path(settings.LAUNCH_CONFIG) if settings.LAUNCH_CONFIG else None)
    except backends.BackendError as error:
        raise ChoiceError(str(error)) from error


def backend(key: str, team: Team) -> backends.Backend:
    """Return a backend under the identity of a team.  Raises BackendError where it has none, or it does not start."""
    try:
        return backends.backend(enabled(), key, team.name, storage.root() / "launches" / "bundles")
    except ChoiceError as error:
        raise backends.BackendError(str(error)) from error


def allowed_values(key: str, team: Team, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a team's values for one launch, with the operator's lines for it.

    Raises BackendError where the backend is not for this team or not with these values, ChoiceError where the
    operator's file cannot be read.
    """
    if key == backends.MANUAL:
        return dict(values)
    found = enabled()
    found.check(key, team.name, values)
    return {**values, **found.lines(key, team.name)}


def of_team(team: Team | int) -> LaunchSettings:
    """As it was saved; the defaults where nothing was."""
    team_id = team.pk if isinstance(team, Team) else team
    return LaunchSettings.objects.filter(team_id=team_id).first() or LaunchSettings(team_id=team_id)


def read(values: Mapping[str, Any]) -> TeamValues:
    """Raises ChoiceError with the field at fault."""
    try:
        return TeamValues.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][:2])
        said = "is not a possible value" if first["type"] == "string_pattern_mismatch" else first["msg"].lower()
        raise ChoiceError(f"{place}: {said}."[:300]) from error


def save(team: Team, user: User, key: str, values: Mapping[str, Any]) -> LaunchSettings:
    """Raises ChoiceError, and PermissionError below administrator."""
    membership = membership_in(user, team)
    if membership is None or not membership.may(Role.ADMINISTRATOR):
        raise PermissionError(refusal(Role.ADMINISTRATOR))
    if key not in enabled().keys:
        known = ", ".join(enabled().keys_of(team.name))
        raise ChoiceError(f"{key[:60]} is not enabled on this server; choose {known}.")
    checked = read(values).model_dump(exclude_defaults=True)
    try:
        enabled().check(key, team.name, checked)
    except backends.BackendError as error:
        raise ChoiceError(str(error)) from error
    with transaction.atomic():
        made, _ = LaunchSettings.objects.update_or_create(team=team, defaults={"backend": key, "values": checked})
        shown = {name: secrets.redact(value) if isinstance(value, str) else value for name, value in checked.items()}
        trail.record(Action.LAUNCH_SETTINGS_SAVED, team, user, name=key, values=shown)
    return made
