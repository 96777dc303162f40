"""The palette: a form for each capability, made from the model of its arguments, and the message that a form
becomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args, get_origin

from django import forms
from pydantic.fields import FieldInfo

from agent.tools import ToolError
from proposals.agents.capabilities import AREAS, Capability, arguments, command, registry

#: Fields that only reading a sentence fills.
HIDDEN = frozenset(("sentence",))
#: Labels of fields whose name says less than a person would.
LABELS = {
    "seq_len": "Sequence length", "micro_batches": "Micro-batches", "remat": "Rematerialisation",
    "xla_flags": "XLA flags", "no_flags": "No XLA flags", "step_time_s": "Step time (s)",
    "usd_per_chip_hour": "US dollars per chip-hour", "usable_hbm_gb": "Usable HBM (GB)",
    "memory_free_percent": "Memory kept free (%)", "keep_remat": "Keep rematerialisation",
    "keep_micro_batches": "Keep micro-batches", "model_name": "Model", "text": "In words",
}  # fmt: skip


class CapabilityForm(forms.Form):
    """The arguments of one capability as fields; `message` is what asks for them."""

    def __init__(self, of: Capability, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(data, auto_id=f"id_{of.key}_%s", use_required_attribute=False)
        self.of = of
        for name, info in of.arguments.model_fields.items():
            if name not in HIDDEN:
                self.fields[name] = field(name, info)

    def clean(self) -> dict[str, Any]:
        """Raises ValidationError with the sentence that the capability itself would give."""
        values = {name: value for name, value in super().clean().items() if value not in (None, "", [], False)}  # type: ignore[union-attr]
        try:
            arguments(self.of, values)
        except ToolError as error:
            raise forms.ValidationError(str(error)) from None
        return values

    @property
    def message(self) -> str:
        return command(self.of, self.cleaned_data)


class Several(forms.CharField):
    """Values separated by commas; meshes by semicolons, as they hold commas themselves."""

    def __init__(self, separator: str, **more: Any) -> None:
        super().__init__(**more)
        self.separator = separator

    def to_python(self, value: Any) -> Any:
        return [part.strip() for part in (super().to_python(value) or "").split(self.separator) if part.strip()]


def field(name: str, info: FieldInfo) -> forms.Field:
    """A form field for an argument: numbers, choices, flags, text and sequences."""
    said: dict[str, Any] = {
        "required": info.is_required(),
        "label": LABELS.get(name, name.replace("_", " ").capitalize()),
        "help_text": info.description or "",
    }
    kind = info.annotation
    kinds = {each for each in get_args(kind) if each is not type(None)} or {kind}
    if kind is bool:
        return forms.BooleanField(**said)
    if get_origin(kind) is tuple:
        separator = "|" if name == "meshes" else ","
        return Several(separator, **said, widget=forms.TextInput(attrs={"class": "input"}))
    if int in kinds:
        return forms.IntegerField(**said, widget=forms.NumberInput(attrs={"class": "input"}))
    if float in kinds:
        return forms.FloatField(**said, widget=forms.NumberInput(attrs={"class": "input", "step": "any"}))
    if choices := [each for each in get_args(kind) if isinstance(each, str)]:
        pairs = [(each, each or "unchanged") for each in choices]
        return forms.ChoiceField(**said, choices=pairs, widget=forms.Select(attrs={"class": "input"}))
    return forms.CharField(**said, max_length=400, widget=forms.TextInput(attrs={"class": "input"}))


def found(query: str) -> list[tuple[str, list[Capability]]]:
    """Capabilities with every word of the query in title, description or examples, by area."""
    wanted = query.lower().split()
    by: dict[str, list[Capability]] = {}
    for item in registry().values():
        text = " ".join([item.title, item.description, *item.examples, AREAS[item.area]]).lower()
        if all(word in text for word in wanted):
            by.setdefault(AREAS[item.area], []).append(item)
    return [(area, by[area]) for area in AREAS.values() if area in by]
