"""The form of a team's launch settings: it reads and shows the values that `launches.services.choices` checks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django.forms import BoundField
from pydantic.fields import FieldInfo

from experiments.form_fields import Sheet, Text, Whole
from launches.services.choices import TeamValues


class Labels(Text):
    """Labels of Kubernetes, `name=value` with spaces or commas between them."""

    def to_python(self, value: str | None) -> Any:
        labels = [part.partition("=") for part in super().to_python(value).replace(",", " ").split()]
        return {name: text for name, _, text in labels}

    def prepare_value(self, value: Any) -> Any:
        return " ".join(f"{name}={text}" for name, text in value.items()) if isinstance(value, Mapping) else value


def _field(info: FieldInfo) -> Text:
    kind = Labels if info.default == {} else Text if info.default == "" else Whole
    return kind(
        label=info.title, help_text=info.description or "", attrs={"placeholder": (info.examples or [""])[0]}
    )  # fmt: skip


#: The form of `TeamValues`, with its titles, descriptions and examples.
SettingsForm: type[Sheet] = type(
    "SettingsForm", (Sheet,), {name: _field(info) for name, info in TeamValues.model_fields.items()}
)


def groups(form: Sheet, enabled: Collection[str]) -> list[tuple[str, list[BoundField]]]:
    """Fields of one line by what they belong to, those of any backend first; of a backend that is not enabled only
    where one has a value."""
    rows = [(legend, [form[name] for name in names.split()]) for legend, names in _GROUPS]
    return [
        (legend, fields)
        for legend, fields in rows
        if not legend or legend.lower() in enabled or any(field.value() for field in fields)
    ]


_GROUPS = (
    ("", "time_limit_min token_days server"),
    ("Slurm", "partition account qos constraint gres gpus_per_node"),
    ("Kubernetes", "image resource node_selector service_account queue"),
)


def filled(values: Mapping[str, Any]) -> Sheet:
    """The form with these values, and the defaults of those that have one."""
    defaults = TeamValues().model_dump(include={"time_limit_min", "token_days"})
    return SettingsForm(initial=defaults | dict(values))
