"""The form of a team's launch settings as the values that `launches.services.choices` reads."""

from __future__ import annotations

from typing import Any

from django.http import QueryDict

from accounts.text import whole_number
from launches.services.choices import TeamValues


def values_of(form: QueryDict) -> dict[str, Any]:
    """What was typed; fields left empty are left out, and what is no number is passed on as typed."""
    found: dict[str, Any] = {}
    for name, field in TeamValues.model_fields.items():
        text = form.get(name, "").strip()
        if not text:
            continue
        if name == "node_selector":
            pairs = [part.partition("=") for part in text.replace(",", " ").split()]
            found[name] = {key: value for key, _, value in pairs}
        elif field.annotation in (int, int | None):
            number = whole_number(text)
            found[name] = text if number is None else number
        else:
            found[name] = text
    return found
