"""How the model is reached, as a value read from an environment; the key is never shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, TypeAdapter, ValidationError

from agent.limits import Limits, Price
from agent.provider.credentials import without_credentials
from agent.provider.hiding import Hiding

DEFAULT_BASE_URL = "https://api.openai.com/v1"


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
            raise SettingsError("OPENAI_API_KEY contains invalid characters; copy it again.")
        base_url = values.get("OPENAI_BASE_URL", DEFAULT_BASE_URL)
        if not _plain_address(base_url):  # a password there would be in every request log
            raise SettingsError("OPENAI_BASE_URL must be an address such as https://host/v1, without user and query.")
        prefix = "ASAP_LLM_MODEL_"
        models = {name[len(prefix) :].lower(): value for name, value in values.items() if name.startswith(prefix)}
        times = _numbers(values, "connect_timeout_s", "read_timeout_s", "request_timeout_s")
        counts = {name: int(number) for name, number in _numbers(values, "tokens", "answer_tokens").items()}
        return cls(
            model=values.get("ASAP_LLM_MODEL", ""), base_url=base_url, api_key=key, models=MappingProxyType(models),
            limits=Limits(**_numbers(values, "time_s", "cost_usd"), **counts),  # type: ignore[arg-type]
            prices=_prices(values.get("ASAP_LLM_PRICES", "")), **times,
        )  # fmt: skip

    @property
    def configured(self) -> bool:
        """Whether there is a model to ask: its name, and a key or an endpoint of one's own."""
        return self.missing() is None

    def missing(self) -> str | None:
        """One sentence that says what to set, None if everything is set."""
        if not (self.model or self.models):
            return "No language model is configured: set ASAP_LLM_MODEL, and OPENAI_API_KEY or OPENAI_BASE_URL."
        if self.api_key or self.base_url != DEFAULT_BASE_URL:
            return None
        return "No endpoint is configured: set OPENAI_API_KEY, or OPENAI_BASE_URL for an endpoint of your own."

    def model_for(self, agent: str | None) -> str:
        """The model of this agent (`ASAP_LLM_MODEL_<AGENT>`), else that of all."""
        return self.models.get((agent or "").lower(), self.model)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be shown.

        Shorter than eight characters is no key but a word such as `none`, which local servers are given for one.
        """
        return (self.api_key,) if len(self.api_key) >= 8 else ()

    @cached_property
    def hiding(self) -> Hiding:
        """Hides these secrets in texts."""
        return Hiding(self.secrets)

    def redact(self, text: str) -> str:
        """The text without these secrets, and without anything that looks like a credential."""
        return without_credentials(self.hiding.hide(text))


def _plain_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port_fits = parts.port is None or parts.port > 0
    except ValueError:
        return False
    extra = parts.username or parts.password or parts.query or parts.fragment
    return port_fits and parts.scheme in ("http", "https") and bool(parts.hostname) and not extra


_ABOVE_0 = TypeAdapter(Annotated[float, Field(gt=0, allow_inf_nan=False)])


def _numbers(values: Mapping[str, str], *names: str) -> dict[str, float]:
    """Return the numbers above 0 that are given, by name: `time_s` of ASAP_LLM_TIME_S."""
    found: dict[str, float] = {}
    for name in names:
        if (text := values.get(variable := f"ASAP_LLM_{name.upper()}")) is not None:
            try:
                found[name] = _ABOVE_0.validate_strings(text)
            except ValidationError:
                raise SettingsError(f"{variable} must be a number above 0, not {text[:40]!r}.") from None
    return found


_PRICES = TypeAdapter(dict[str, Price])


def _prices(text: str) -> Mapping[str, Price]:
    try:
        return MappingProxyType(_PRICES.validate_json(text or "{}"))
    except ValidationError:
        raise SettingsError(
            'ASAP_LLM_PRICES must be JSON such as {"my-model": {"input": 2.5, "output": 10}}, '
            "in USD per million tokens."
        ) from None
