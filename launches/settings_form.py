"""The form of a team's launch settings: it reads and shows the values that `launches.services.choices` checks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django.forms import BoundField

from experiments.form_fields import Sheet, Text, Whole
from launches.services.choices import TeamValues


class Labels(Text):
    """Labels of Kubernetes, `name=value` with spaces or commas between them."""

    def to_python(self, value: str | None) -> Any:
        labels = [part.partition("=") for part in super().to_python(value).replace(",", " ").split()]
        return {name: text for name, _, text in labels}

    def prepare_value(self, value: Any) -> Any:
        return " ".join(f"{name}={text}" for name, text in value.items()) if isinstance(value, Mapping) else value


def _text(label: str, placeholder: str = "", **options: Any) -> Text:
    return Text(label=label, attrs={"placeholder": placeholder}, **options)


class SettingsForm(Sheet):
    setup = Text()
    command = Text()
    time_limit_min = Whole(
        label="Time limit of a run (min)",
        help_text="After this time a run is ended. Bundles run by hand have no limit.",
    )
    token_days = Whole(label="Launch token lifetime (days)")
    server = _text(
        "Address of this server as seen from the cluster", "https://asap.example.com",
        help_text="Default: the address in your browser.",
    )  # fmt: skip
    partition = _text("Partition")
    account = _text("Account")
    qos = _text("Quality of service")
    constraint = _text("Constraint")
    gres = _text("Generic resources", "gpu:8")
    gpus_per_node = Whole(label="GPUs per node")
    image = _text("Container image")
    resource = _text("Accelerator resource name", "google.com/tpu")
    node_selector = Labels(label="Node selector", attrs={"placeholder": "cloud.google.com/gke-tpu-topology=4x4"})
    service_account = _text("Service account")
    queue = _text("Kueue queue")

    def groups(self, enabled: Collection[str]) -> list[tuple[str, list[BoundField]]]:
        """Fields of one line by what they belong to, those of any backend first; of a backend that is not enabled only
        where one has a value."""
        groups = [(legend, [self[name] for name in names.split()]) for legend, names in _GROUPS]
        return [
            (legend, fields)
            for legend, fields in groups
            if not legend or legend.lower() in enabled or any(field.value() for field in fields)
        ]


_GROUPS = (
    ("", "time_limit_min token_days server"),
    ("Slurm", "partition account qos constraint gres gpus_per_node"),
    ("Kubernetes", "image resource node_selector service_account queue"),
)


def filled(values: Mapping[str, Any]) -> SettingsForm:
    """The form with these values, and the defaults of those that have one."""
    defaults = TeamValues().model_dump(include={"time_limit_min", "token_days"})
    return SettingsForm(initial=defaults | dict(values))
