"""Fields of forms that fill in the JSON of a stricter check: a form refuses nothing, and what is no number is passed on
as it was typed, for the check to name it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any

from django import forms


class Text(forms.Field):
    """Text without the white space around it."""

    def __init__(self, **options: Any) -> None:
        attrs = {"class": "input", "autocomplete": "off", **options.pop("attrs", {})}
        super().__init__(required=False, **{"widget": forms.TextInput(attrs), **options})

    def to_python(self, value: str | None) -> Any:
        return (value or "").strip()


class Whole(Text):
    """A whole number, with or without thousands separators."""

    def __init__(self, **options: Any) -> None:
        attrs = {"inputmode": "numeric", "class": "input size", **options.pop("attrs", {})}
        super().__init__(**options, attrs=attrs)

    def to_python(self, value: str | None) -> Any:
        return whole(super().to_python(value))


def whole(text: str) -> Any:
    digits = text.strip().replace(",", "").replace("_", "")
    return int(digits) if re.fullmatch(r"[+-]?\d{1,15}", digits) else text.strip()


class Quantity(Text):
    """A number with a unit, in SI units.  units: factor by name, the first one without a name."""

    def __init__(self, units: Mapping[str, float], **options: Any) -> None:
        self.units = units
        super().__init__(**options)

    def to_python(self, value: str | None) -> Any:
        text = super().to_python(value)
        number = r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,2})?)\s*([a-z%]*)"
        match = re.fullmatch(number, text.replace(",", "").lower())
        if match is None or match[2] not in self.units:
            return text
        return float(f"{float(match[1]) * self.units[match[2]]:.15g}")


class Choice(Text):
    """One of some words, or none."""

    def __init__(self, words: Iterable[str], none: str = "current", **options: Any) -> None:
        choices = [("", none), *((word, word) for word in words)]
        super().__init__(widget=forms.Select({"class": "input"}, choices), **options)


class Words(Text):
    """Texts with spaces between them."""

    def to_python(self, value: str | None) -> Any:
        return super().to_python(value).split()

    def prepare_value(self, value: Any) -> str:
        return " ".join(value or ())


class Tick(forms.BooleanField):
    def __init__(self, label: str) -> None:
        super().__init__(required=False, label=label)


class Rows(forms.Field):
    """Inputs that come once per row: tuples of the text in each column; what a row does not have is empty."""

    class _Columns(forms.Widget):
        names: tuple[str, ...]

        def value_from_datadict(self, data: Any, files: Any, name: str) -> list[tuple[str, ...]]:
            return list(zip_longest(*(data.getlist(column) for column in self.names), fillvalue=""))

    def __init__(self, *columns: str) -> None:
        super().__init__(required=False, widget=self._Columns)
        self.widget.names = columns


class Sheet(forms.Form):
    """A form that only reads."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **{"label_suffix": "", **options})

    def filled_values(self) -> dict[str, Any]:
        """What was filled in, by field."""
        self.is_valid()
        return {name: value for name, value in self.cleaned_data.items() if value or type(value) in (int, float)}
