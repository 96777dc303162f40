"""What the operator enables: a TOML file with a section per backend, and in it an entry per team.

[slurm]                     # this machine can submit to the cluster
folder = "/shared/asap"     # the same on the compute nodes; each team's launches lie in a folder of its account
run_as = "sudo -n -u {user} --"        # runs Slurm's commands as the account of a team
allow = {partition = ["train"]}        # what teams may name of partition, account, qos; `*` for any

[slurm.team.Vision]         # by the team's name
user = "asap-vision"
allow = {partition = ["train", "large"], account = ["vision"]}

[kubernetes]
kubeconfig = "/etc/asap/kubeconfig"    # left out: asap runs inside of the cluster
allow = {image = ["registry.example.com/train/*"]}     # also service_account, queue, node_selector

[kubernetes.team.Vision]
namespace = "asap-vision"
service_account = "trainer"

[command.xpk]
shared = true               # one account for all teams: they can read each other's launches
submit = "xpk workload create --workload {name} --command 'bash {script}' …"
status = "…"                # prints waiting, running, succeeded, failed or gone
cancel = "xpk workload delete --workload {name} --force"
environment = ["CLOUDSDK_CONFIG"]      # further variables of the server that its commands need

[command.here]
shared = true
submit = "bash {script}"
background = true           # the command is the job, on this machine
setup = "source /srv/venv/bin/activate"        # lines that every bundle begins with; command: of the tool `own`
team_lines = true           # a team's administrator may set these lines: they run here, as this server
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from jobs.child_environment import DEVICES, SLURM, SYSTEM, Need
from launches.backends.account import Account
from launches.backends.base import Backend, BackendError
from launches.backends.command import Command, check_template
from launches.backends.slurm import Slurm

#: Nothing is submitted: somebody runs the bundle, and it reports.
MANUAL = "manual"
Variables = tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], ...]
Patterns = dict[str, tuple[str, ...]]
Label = Annotated[str, Field(pattern=r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TeamEntry(_Strict):
    """What a team is at a backend.  user: its account on this machine; the rest replaces what the section has."""

    user: Annotated[str, Field(pattern=r"^([a-z_][a-z0-9_-]{0,31})?$")] = ""
    folder: str = ""
    namespace: Label = ""
    service_account: Annotated[str, Field(pattern=r"^[a-z0-9.-]{0,253}$")] = ""
    kubeconfig: str | None = None
    context: str | None = None
    setup: str | None = None
    command: str | None = None
    allow: Patterns = {}


class _Section(_Strict):
    """A backend.  shared: teams without an entry use it too, all under one identity.  allow: what a team may name, as
    patterns by setting.  restricted_names: settings that need one."""

    restricted_names: ClassVar[tuple[str, ...]] = ()
    shared: bool = False
    allow: Patterns = {}
    team: dict[str, TeamEntry] = {}

    @model_validator(mode="after")
    def _known_names(self) -> _Section:
        for allow in (self.allow, *(entry.allow for entry in self.team.values())):
            if unknown := sorted(set(allow) - set(self.restricted_names)):
                raise ValueError(f"allow.{unknown[0]} is not a setting with a list")
        return self

    def entry_of(self, team: str) -> TeamEntry | None:
        return self.team.get(team) or (TeamEntry() if self.shared else None)


class _OfAccounts(_Section):
    """A backend whose commands run on this machine.  run_as: words that run a command as the account of a team."""

    folder: str = ""
    run_as: str = ""
    environment: Variables = ()

    @model_validator(mode="after")
    def _accounts(self) -> _OfAccounts:
        for name, entry in self.team.items():
            if entry.user and ("{user}" not in self.run_as or not (entry.folder or self.folder)):
                raise ValueError(f"team.{name}.user needs run_as with {{user}}, and a folder of this section")
            if not entry.user and not self.shared:
                raise ValueError(f"team.{name}.user is missing; or set shared = true, one account for all teams")
        return self

    def account(self, entry: TeamEntry, needs: Need) -> Account:
        prefix = [word.format(user=entry.user) for word in shlex.split(self.run_as)] if entry.user else []
        return Account(needs + self.environment, tuple(prefix))

    def place(self, entry: TeamEntry, otherwise: Path) -> Path:
        """Return the folder of a team's launches: of an account of its own, one that only this account can enter."""
        shared = Path(self.folder) if self.folder else otherwise
        return Path(entry.folder) if entry.folder else shared / entry.user if entry.user else shared


class SlurmSection(_OfAccounts):
    restricted_names: ClassVar[tuple[str, ...]] = ("partition", "account", "qos")
    folder: str


class KubernetesSection(_Section):
    """restricted: pods run as `run_as_user`, without privileges (Pod Security Standard *restricted*)."""

    restricted_names: ClassVar[tuple[str, ...]] = ("image", "service_account", "queue", "node_selector")
    namespace: Label = ""
    kubeconfig: str | None = None
    context: str | None = None
    restricted: bool = True
    run_as_user: int = Field(default=1000, ge=1)

    @model_validator(mode="after")
    def _namespaces(self) -> KubernetesSection:
        named = [entry.namespace for entry in self.team.values()]
        if not self.shared and (not all(named) or len(set(named)) < len(named)):
            raise ValueError("every team needs a namespace of its own; or set shared = true, one for all teams")
        if self.shared and not self.namespace:
            raise ValueError("namespace is missing")
        return self


class CommandSection(_OfAccounts):
    """setup, command: lines of every bundle.  team_lines: a team's administrator may set lines of its own."""

    submit: str
    status: str = ""
    cancel: str = ""
    background: bool = False
    setup: str = ""
    command: str = ""
    team_lines: bool = False


class _File(_Strict):
    slurm: SlurmSection | None = None
    kubernetes: KubernetesSection | None = None
    command: dict[Annotated[str, Field(pattern=r"^[a-z0-9-]{1,40}$")], CommandSection] = {}


@dataclass(frozen=True)
class Enabled:
    """sections: by key (`slurm`, `kubernetes`, `command.xpk`).  folder: where bundles of commands are kept."""

    sections: dict[str, _Section] = field(default_factory=dict)

    @property
    def keys(self) -> tuple[str, ...]:
        return (MANUAL, *self.sections)

    def keys_of(self, team: str) -> tuple[str, ...]:
        """Return the backends that a team has an identity at."""
        return (MANUAL, *(key for key, section in self.sections.items() if section.entry_of(team) is not None))

    def entry(self, key: str, team: str) -> tuple[_Section, TeamEntry]:
        """Return section and identity of a team at a backend.  Raises BackendError where it has none."""
        section = self.sections.get(key)
        if section is None:
            raise BackendError(
                f"{key} is not enabled on this server; choose another backend under Settings, Launching."
            )
        entry = section.entry_of(team)
        if entry is None:
            raise BackendError(
                f"{key} has no identity for the team {team}: whoever operates this server adds "
                f'[{key}.team."{team}"] to its launch configuration (docs/launches.md).'
            )
        return section, entry

    def check(self, key: str, team: str, values: Mapping[str, Any]) -> None:
        """Raises BackendError where a team names what the operator does not let it use, or may not set lines."""
        if key == MANUAL:
            return
        self.check_names(key, team, values)
        section, _ = self.entry(key, team)
        if (
            isinstance(section, CommandSection)
            and not section.team_lines
            and any(map(values.get, ("setup", "command")))
        ):
            raise BackendError(
                f"setup, command: {key} runs them on this server, so that whoever operates it sets them in its launch "
                "configuration; leave both empty."
            )

    def check_names(self, key: str, team: str, values: Mapping[str, Any]) -> None:
        """Raises BackendError where a team names what the operator does not let it use."""
        section, entry = self.entry(key, team)
        for name in section.restricted_names:
            patterns = entry.allow.get(name, section.allow.get(name, ()))
            for value in _named(values.get(name)):
                if not any(fnmatchcase(value, pattern) for pattern in patterns):
                    known = ", ".join(patterns) or "none"
                    raise BackendError(f"{name}: {value[:100]} is not allowed to {team} at {key}; allowed: {known}.")

    def lines(self, key: str, team: str) -> dict[str, str]:
        """Return the operator's setup lines and command for a team, as far as there are any."""
        section, entry = self.entry(key, team)
        if not isinstance(section, CommandSection):
            return {}
        setup = section.setup if entry.setup is None else entry.setup
        command = section.command if entry.command is None else entry.command
        return {name: text for name, text in (("setup", setup), ("command", command)) if text}


def _named(given: Any) -> list[str]:
    """Return what a setting names: one word, or `name=value` of several labels."""
    if isinstance(given, Mapping):
        return [f"{name}={value}" for name, value in given.items()]
    return [given] if given else []


def read(path: Path | None) -> Enabled:
    """Raises BackendError with the line at fault where the operator's file is none."""
    if path is None:
        return Enabled()
    try:
        file = _File.model_validate(tomllib.loads(path.read_text()))
    except OSError as error:
        raise BackendError(f"{path} cannot be read: {error.strerror}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise BackendError(f"{path}: {place}: {first['msg'].lower()}.") from error
    except ValueError as error:
        raise BackendError(f"{path} is not valid TOML: {error}.") from error
    sections: dict[str, _Section] = {}
    if file.slurm is not None:
        sections["slurm"] = file.slurm
    if file.kubernetes is not None:
        sections["kubernetes"] = file.kubernetes
    for name, section in file.command.items():
        for key in ("submit", "status", "cancel"):
            check_template(f"{name} {key}" if key != "submit" else key, getattr(section, key))
        sections[f"command.{name}"] = section
    return Enabled(sections)


def backend(enabled: Enabled, key: str, team: str, folder: Path) -> Backend:
    """Return the backend under the identity of a team.

    folder: for the bundles of commands whose section has none.  Raises BackendError where the operator has not enabled
    it, or not for this team.
    """
    section, entry = enabled.entry(key, team)
    if isinstance(section, SlurmSection):
        return Slurm(section.place(entry, folder), section.account(entry, SYSTEM + SLURM))
    if isinstance(section, CommandSection):
        account = section.account(entry, SYSTEM + DEVICES)
        place = section.place(entry, folder)
        return Command(place, section.submit, section.status, section.cancel, section.background, account)
    assert isinstance(section, KubernetesSection)
    from launches.backends.kubernetes_jobs import Identity, Kubernetes  # its models take two seconds to import

    identity = Identity(
        entry.namespace or section.namespace, entry.service_account, section.run_as_user if section.restricted else None
    )
    kubeconfig, context = entry.kubeconfig or section.kubeconfig, entry.context or section.context
    return Kubernetes(identity, kubeconfig, context)
