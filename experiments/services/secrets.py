"""Secrets of this installation, kept out of what is stored: whoever puts one into a text, it is not written down."""

from __future__ import annotations

import os
from typing import Any

from django.conf import settings
from django.db import connection

from agent.provider.settings import Settings

_HIDDEN = "[hidden]"
#: Shorter than this it is no secret but a word such as `none`, which local servers are given for a key.
_LEAST_CHARACTERS = 8


def secrets() -> tuple[str, ...]:
    """The key of the language model, the key that signs sessions, the password of the database."""
    candidates = (
        os.environ.get("OPENAI_API_KEY", "").strip(),
        str(settings.SECRET_KEY or ""),
        str(connection.settings_dict.get("PASSWORD") or ""),
    )
    return tuple(secret for secret in candidates if len(secret) >= _LEAST_CHARACTERS)


def hide(value: Any) -> Any:
    """The same JSON value without these secrets, in keys too."""
    known = secrets()
    return _hide(value, known) if known else value


def redact(text: str) -> str:
    """What a person or a program wrote, without these secrets and without anything that looks like a credential."""
    redacted: str = Settings().redact(hide(text))
    return redacted


def _hide(value: Any, known: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        for secret in known:
            if secret in value:
                value = value.replace(secret, _HIDDEN)
        return value
    if isinstance(value, dict):
        return {_hide(key, known): _hide(item, known) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_hide(item, known) for item in value]
    return value
