"""How the model is configured, and what the settings page finds out about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agent.check_connection import check_connection
from agent.limits import Price
from agent.messages import Usage
from agent.provider.settings import DEFAULT_BASE_URL, Settings, SettingsError
from tests.agent.conftest import KEY, settings_for
from tests.agent.server import Reply, ScriptedServer, calls, error, text

Serve = Callable[..., ScriptedServer]


def test_settings_are_read_from_the_environment() -> None:
    settings = Settings.from_env(
        {
            "OPENAI_API_KEY": f" {KEY}\n",
            "OPENAI_BASE_URL": "http://localhost:8000/v1",
            "ASAP_LLM_MODEL": "small",
            "ASAP_LLM_MODEL_PROPOSER": "large",
            "ASAP_LLM_TIME_S": "90",
            "ASAP_LLM_TOKENS": "50000",
            "ASAP_LLM_COST_USD": "0.5",
            "ASAP_LLM_READ_TIMEOUT_S": "20",
            "ASAP_LLM_PRICES": json.dumps({"small": {"input": 0.5, "output": 2}, "large": {"input": 3, "output": 15}}),
        }
    )
    assert settings.api_key == KEY and settings.base_url == "http://localhost:8000/v1"
    assert [settings.model_for(agent) for agent in (None, "analyzer", "proposer")] == ["small", "small", "large"]
    assert (settings.limits.time_s, settings.limits.tokens, settings.limits.cost_usd) == (90, 50000, 0.5)
    assert settings.read_timeout_s == 20
    assert settings.prices["large"].cost_usd(Usage(1_000_000, 1_000_000)) == pytest.approx(3 + 15)
    assert settings.prices["small"] == Price(input=0.5, output=2)
    assert settings.configured and settings.missing() is None


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({}, "set ASAP_LLM_MODEL"),
        ({"OPENAI_API_KEY": KEY}, "set ASAP_LLM_MODEL"),
        ({"ASAP_LLM_MODEL": "m"}, "set OPENAI_API_KEY, or OPENAI_BASE_URL"),
        ({"ASAP_LLM_MODEL": "", "OPENAI_API_KEY": ""}, "set ASAP_LLM_MODEL"),
    ],
)
def test_what_is_missing_is_said(env: dict[str, str], says: str) -> None:
    settings = Settings.from_env(env)
    assert not settings.configured and settings.base_url == DEFAULT_BASE_URL
    assert says in str(settings.missing())
    report = check_connection(settings)
    assert not report.ok and report.sentence == settings.missing()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OPENAI_BASE_URL", "localhost:8000"),
        ("OPENAI_BASE_URL", "ftp://host/v1"),
        ("OPENAI_BASE_URL", "https://host:port/v1"),
        ("OPENAI_BASE_URL", "https://me:secret@host/v1"),
        ("OPENAI_BASE_URL", "https://host/v1?key=secret"),
        ("OPENAI_API_KEY", "sk-ä"),
        ("OPENAI_API_KEY", "two words"),
        ("ASAP_LLM_TIME_S", "a minute"),
        ("ASAP_LLM_TIME_S", "-1"),
        ("ASAP_LLM_TOKENS", "nan"),
        ("ASAP_LLM_PRICES", "2.5"),
        ("ASAP_LLM_PRICES", '{"m": {"input": 1}}'),
        ("ASAP_LLM_PRICES", '{"m": {"input": 1, "output": -2}}'),
        ("ASAP_LLM_PRICES", '{"m": {"input": 1, "output": 2, "cached": 3}}'),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_in_one_sentence(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name) as caught:
        Settings.from_env({"ASAP_LLM_MODEL": "m", name: value})
    assert "\n" not in str(caught.value) and "secret" not in str(caught.value)


def test_the_key_is_never_shown() -> None:
    settings = Settings.from_env({"OPENAI_API_KEY": KEY, "ASAP_LLM_MODEL": "m"})
    assert KEY not in repr(settings) + str(settings)
    assert settings.redact(f"at {KEY}, sk-proj-****abcd and Bearer xyz") == "at [hidden], [hidden] and Bearer [hidden]"
    assert replace(settings, api_key="none").redact("none of them") == "none of them"


def capable(body: dict[str, Any]) -> Reply:
    return calls(("report", {"value": 4})) if "tools" in body else text("ready")


def test_a_connection_that_works_says_what_it_understands(serve: Serve) -> None:
    server = serve(capable)
    report = check_connection(settings_for(server))
    assert report.ok and report.tools
    assert report.model == "scripted" and report.base_url == server.url
    assert report.first_token_s is not None and report.first_token_s > 0
    assert report.sentence.startswith(f"scripted at {server.url} answers; first word after ")


def test_a_plain_server_is_found_out(serve: Serve) -> None:
    def plain(body: dict[str, Any]) -> Reply:
        for name in ("stream_options", "max_completion_tokens"):
            if name in body:
                return error(400, f"unknown parameter {name}")
        return text("ready")

    report = check_connection(settings_for(serve(plain)))
    assert report.ok and report.tools is False
    assert "did not call a tool" in report.sentence


def test_an_unknown_model_is_answered_with_those_that_are_offered(serve: Serve) -> None:
    server = serve(lambda _: error(404, "The model does not exist", "model_not_found"), models=["qwen3", "llama3.1"])
    report = check_connection(settings_for(server), agent="proposer")
    assert not report.ok and report.sentence.endswith("It offers: llama3.1, qwen3.")


def test_a_wrong_key_is_said_without_the_key(serve: Serve) -> None:
    report = check_connection(settings_for(serve([error(401, f"Incorrect API key provided: {KEY}")])))
    assert not report.ok and "does not accept the key" in report.sentence and KEY not in repr(report)
