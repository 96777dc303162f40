"""The form of a team's launch settings as the values that `launches.services.choices` reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict

from accounts.text import whole_number
from launches.services.choices import TeamValues

_LIMIT_HINT = "After this time a run is ended. Bundles run by hand have no limit."
_SERVER_HINT = "Default: the address in your browser."


@dataclass(frozen=True)
class Box:
    """A field of one line.  numeric: it takes a whole number."""

    name: str
    label: str
    placeholder: str = ""
    hint: str = ""
    numeric: bool = False


#: Fields of one line by what they belong to; those above any group first.
GROUPS = (
    (
        "",
        (
            Box("time_limit_min", "Time limit of a run (min)", hint=_LIMIT_HINT, numeric=True),
            Box("token_days", "Launch token lifetime (days)", numeric=True),
            Box("server", "Address of this server as seen from the cluster", "https://asap.example.com", _SERVER_HINT),
        ),
    ),
    (
        "Slurm",
        (
            Box("partition", "Partition"),
            Box("account", "Account"),
            Box("qos", "Quality of service"),
            Box("constraint", "Constraint"),
            Box("gres", "Generic resources", "gpu:8"),
            Box("gpus_per_node", "GPUs per node", numeric=True),
        ),
    ),
    (
        "Kubernetes",
        (
            Box("image", "Container image"),
            Box("resource", "Accelerator resource name", "google.com/tpu"),
            Box("node_selector", "Node selector", "cloud.google.com/gke-tpu-topology=4x4"),
            Box("service_account", "Service account"),
            Box("queue", "Kueue queue"),
        ),
    ),
)


def shown(values: Mapping[str, Any]) -> dict[str, Any]:
    """What the fields are filled with: the values, and the defaults of those that have one."""
    filled = TeamValues().model_dump(include={"time_limit_min", "token_days"}) | dict(values)
    selector = filled.get("node_selector")
    if isinstance(selector, Mapping):
        filled["node_selector"] = " ".join(f"{name}={value}" for name, value in selector.items())
    return filled


def values_of(form: QueryDict) -> dict[str, Any]:
    """What was typed; fields left empty are left out, and what is no number is passed on as typed."""
    values: dict[str, Any] = {}
    for name, field in TeamValues.model_fields.items():
        text = form.get(name, "").strip()
        if not text:
            continue
        if name == "node_selector":
            labels = [part.partition("=") for part in text.replace(",", " ").split()]
            values[name] = {key: value for key, _, value in labels}
        elif field.annotation in (int, int | None):
            number = whole_number(text)
            values[name] = text if number is None else number
        else:
            values[name] = text
    return values
