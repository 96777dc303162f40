"""The language model of this installation, as its environment names it; None where there is none."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

from agent.limits import Limits
from agent.provider.settings import Settings, SettingsError

if TYPE_CHECKING:
    from agent.provider.openai import OpenAIProvider

_PREFIXES = ("OPENAI_", "ASAP_LLM_")


def settings() -> Settings:
    """Raises SettingsError, one sentence, where a variable cannot be used."""
    return _settings(_relevant())


def provider(agent: str) -> OpenAIProvider | None:
    """The model that speaks for an agent; None where none is configured, or its settings cannot be used."""
    try:
        known = _provider(_relevant())
    except SettingsError:
        return None
    return known.for_agent(agent) if known is not None else None


def limits() -> Limits:
    """Bounds of one run of an agent, as configured."""
    try:
        return settings().limits
    except SettingsError:
        return Limits()


def _relevant() -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, value) for key, value in os.environ.items() if key.startswith(_PREFIXES)))


@lru_cache(maxsize=2)
def _settings(environment: tuple[tuple[str, str], ...]) -> Settings:
    return Settings.from_env(dict(environment))


@lru_cache(maxsize=2)
def _provider(environment: tuple[tuple[str, str], ...]) -> OpenAIProvider | None:
    """One per process: it remembers what the endpoint does not support."""
    settings = _settings(environment)
    if not settings.configured:
        return None
    from agent.provider.openai import OpenAIProvider  # the SDK takes 35 MB of every process that loads it

    return OpenAIProvider(settings)
