"""How the model is reached, as a value read from an environment; the key is never shown."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from agent.limits import Limits, Price

DEFAULT_BASE_URL = "https://api.openai.com/v1"

_KEY_LIKE = re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9*._-]{6,}|(?<=Bearer )\S+")
_HIDDEN = "[hidden]"


class SettingsError(ValueError):
    """A setting that cannot be used, as one sentence that names the variable."""


@dataclass(frozen=True)
class Settings:
    """How a model is reached.

    model: name of the model; models: by agent, where one has its own.  connect_timeout_s: until a connection stands;
    read_timeout_s: between two pieces of a response, the first included; request_timeout_s: one request as a whole.
    limits: of one run.  prices: by model; a model without one costs an unknown amount.
    """

    model: str = ""
    base_url: str = DEFAULT_BASE_URL
    api_key: str = field(default="", repr=False)
    models: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 60.0
    request_timeout_s: float = 180.0
    limits: Limits = field(default_factory=Limits)
    prices: Mapping[str, Price] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """Settings from `OPENAI_*` and `ASAP_LLM_*`.  SettingsError where a value cannot be used."""
        values = {key: value.strip() for key, value in env.items() if value.strip()}
        key = values.get("OPENAI_API_KEY", "")
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise SettingsError("OPENAI_API_KEY holds characters that no key has; copy it again.")
        base_url = values.get("OPENAI_BASE_URL", DEFAULT_BASE_URL)
        if (parts := _split(base_url)) is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingsError("OPENAI_BASE_URL must be an address such as https://host/v1.")
        prefix = "ASAP_LLM_MODEL_"
        cost = _number(values, "ASAP_LLM_COST_USD", None)
        usual = Limits()
        return cls(
            model=values.get("ASAP_LLM_MODEL", ""),
            base_url=base_url,
            api_key=key,
            models=MappingProxyType(
                {name[len(prefix) :].lower(): value for name, value in values.items() if name.startswith(prefix)}
            ),
            connect_timeout_s=_number(values, "ASAP_LLM_CONNECT_TIMEOUT_S", cls.connect_timeout_s),
            read_timeout_s=_number(values, "ASAP_LLM_READ_TIMEOUT_S", cls.read_timeout_s),
            request_timeout_s=_number(values, "ASAP_LLM_REQUEST_TIMEOUT_S", cls.request_timeout_s),
            limits=Limits(
                time_s=_number(values, "ASAP_LLM_TIME_S", usual.time_s),
                tokens=int(_number(values, "ASAP_LLM_TOKENS", usual.tokens)),
                answer_tokens=int(_number(values, "ASAP_LLM_ANSWER_TOKENS", usual.answer_tokens)),
                cost_usd=cost,
            ),
            prices=_prices(values.get("ASAP_LLM_PRICES", "")),
        )

    @property
    def configured(self) -> bool:
        """Whether there is a model to ask: its name, and a key or an endpoint of one's own."""
        return bool(self.model or self.models) and (bool(self.api_key) or self.base_url != DEFAULT_BASE_URL)

    def missing(self) -> str | None:
        """One sentence that says what to set, None where everything stands."""
        if self.configured:
            return None
        if not (self.model or self.models):
            return "No language model is configured: set ASAP_LLM_MODEL, and OPENAI_API_KEY or OPENAI_BASE_URL."
        return "No endpoint is configured: set OPENAI_API_KEY, or OPENAI_BASE_URL for an endpoint of your own."

    def model_for(self, agent: str | None) -> str:
        """The model of this agent (`ASAP_LLM_MODEL_<AGENT>`), else that of all."""
        return self.models.get((agent or "").lower(), self.model)

    @property
    def shown_base_url(self) -> str:
        """The endpoint without user, password and query."""
        parts = urlsplit(self.base_url)
        host = parts.hostname or ""
        host = f"[{host}]" if ":" in host else host
        return urlunsplit((parts.scheme, f"{host}:{parts.port}" if parts.port else host, parts.path, "", ""))

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be shown: the key, and what the endpoint's address carries of password and query.

        Shorter than eight characters is no secret but a word such as `none`, which local servers are given for a key.
        """
        parts = urlsplit(self.base_url)
        return tuple(secret for secret in (self.api_key, parts.password, parts.query) if secret and len(secret) >= 8)

    def hide(self, text: str) -> str:
        """The text without these secrets."""
        for secret in self.secrets:
            text = text.replace(secret, _HIDDEN)
        return text

    def redact(self, text: str) -> str:
        """The text without these secrets, and without anything that looks like a key."""
        return _KEY_LIKE.sub(_HIDDEN, self.hide(text))

    def __repr__(self) -> str:
        key = _HIDDEN if self.api_key else "none"
        where = self.shown_base_url
        return f"Settings(model={self.model!r}, base_url={where!r}, api_key={key}, models={dict(self.models)})"


def _split(url: str) -> Any:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts


def _number(values: Mapping[str, str], name: str, usual: Any) -> Any:
    text = values.get(name)
    if text is None:
        return usual
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise SettingsError(f"{name} must be a number above 0, not {text[:40]!r}.")
    return number


def _prices(text: str) -> Mapping[str, Price]:
    """`{"model": {"input": USD per million tokens, "output": …, "cached_input": …}}` as prices per token."""
    if not text:
        return MappingProxyType({})
    wanted = (
        'ASAP_LLM_PRICES must be JSON such as {"my-model": {"input": 2.5, "output": 10, "cached_input": 1.25}}, '
        "in USD per million tokens."
    )
    try:
        table = json.loads(text)
        found = {}
        for model, row in table.items():
            numbers = {key: float(row[key]) for key in row}
            if not {"input", "output"} <= set(numbers) <= {"input", "output", "cached_input"}:
                raise ValueError(model)
            if not all(math.isfinite(number) and number >= 0 for number in numbers.values()):
                raise ValueError(model)
            cached = numbers.get("cached_input")
            found[str(model)] = Price(
                numbers["input"] / 1e6, numbers["output"] / 1e6, None if cached is None else cached / 1e6
            )
    except (ValueError, TypeError, AttributeError):
        raise SettingsError(wanted) from None
    return MappingProxyType(found)
