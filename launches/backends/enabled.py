"""What the operator enables: a TOML file with a section per backend.

[slurm]                     # this machine can submit to the cluster
folder = "/shared/asap"     # the same on the compute nodes

[kubernetes]
namespace = "training"
kubeconfig = "/etc/asap/kubeconfig"    # left out: asap runs inside of the cluster

[command.xpk]
submit = "xpk workload create --workload {name} --command 'bash {script}' …"
status = "…"                # prints waiting, running, succeeded, failed or gone
cancel = "xpk workload delete --workload {name} --force"
environment = ["CLOUDSDK_CONFIG"]      # further variables of the server that its commands need

[command.here]
submit = "bash {script}"
background = true           # the command is the job, on this machine
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from jobs.child_environment import DEVICES, SLURM, SYSTEM
from launches.backends.account import Account
from launches.backends.base import Backend, BackendError
from launches.backends.command import Command, check_template
from launches.backends.slurm import Slurm

#: Nothing is submitted: somebody runs the bundle, and it reports.
MANUAL = "manual"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid")


Variables = tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], ...]


class SlurmSection(_Section):
    folder: str
    environment: Variables = ()


class KubernetesSection(_Section):
    namespace: str
    kubeconfig: str | None = None
    context: str | None = None


class CommandSection(_Section):
    submit: str
    status: str = ""
    cancel: str = ""
    background: bool = False
    environment: Variables = ()


class _File(_Section):
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


def backend(enabled: Enabled, key: str, folder: Path) -> Backend:
    """folder: for the bundles of commands.  Raises BackendError where the operator has not enabled it."""
    section = enabled.sections.get(key)
    if isinstance(section, SlurmSection):
        return Slurm(Path(section.folder), Account(SYSTEM + SLURM + section.environment))
    if isinstance(section, KubernetesSection):
        from launches.backends.kubernetes_jobs import Kubernetes  # its models take two seconds to import

        return Kubernetes(section.namespace, section.kubeconfig, section.context)
    if isinstance(section, CommandSection):
        account = Account(SYSTEM + DEVICES + section.environment)
        return Command(folder, section.submit, section.status, section.cancel, section.background, account)
    raise BackendError(f"{key} is not enabled on this server; choose another backend under Settings, Launching.")
