"""The page of the language model: what is configured, what is missing, a test of the connection; never the key."""

from __future__ import annotations

import html
import json
import logging

import pytest

from tests.agent.server import ScriptedServer, calls, error, text

KEY = "sk-live-3f9c2b7a61d84e0faa55-secret"
PATH, TEST = "/settings/model/", "/settings/model/test/"


def page(people, who="administrator") -> str:
    response = people.client(who).get(PATH)
    assert response.status_code == 200
    return html.unescape(response.content.decode())


@pytest.fixture
def configured(monkeypatch):
    def to(server: ScriptedServer, **more: str) -> None:
        values = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url, "ASAP_LLM_MODEL": "scripted", **more}
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    return to


def test_without_a_model_it_says_what_is_missing_and_who_answers(people):
    shown = page(people)
    assert "No language model is configured: set ASAP_LLM_MODEL" in shown
    assert "questions are computed from the same numbers" in shown
    assert "Test the connection" in shown and "disabled" in shown


def test_it_shows_models_limits_and_prices_but_only_that_there_is_a_key(people, configured):
    with ScriptedServer() as server:
        prices = json.dumps({"scripted": {"input": 2.5, "output": 10}})
        configured(server, ASAP_LLM_MODEL_PROPOSER="larger", ASAP_LLM_COST_USD="1.5", ASAP_LLM_PRICES=prices)
        shown = page(people)
    for words in (server.url, "<dd>set</dd>", "scripted", "larger", "$1.50", "$2.50", "$10.00", "200,000"):
        assert words in shown, words
    assert KEY not in shown and KEY[:12] not in shown


def test_a_variable_that_cannot_be_used_is_said_in_a_sentence(people, monkeypatch):
    monkeypatch.setenv("ASAP_LLM_MODEL", "scripted")
    monkeypatch.setenv("OPENAI_API_KEY", KEY + "…")
    shown = page(people)
    assert "OPENAI_API_KEY contains invalid characters" in shown and KEY not in shown
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("ASAP_LLM_TIME_S", "soon")
    assert "ASAP_LLM_TIME_S must be a number above 0" in page(people)


def test_the_connection_test_says_that_it_works_and_what_it_found(people, configured):
    with ScriptedServer([calls(("report", {"value": 4})), text("ready")]) as server:
        configured(server)
        response = people.client("administrator").post(TEST, headers={"HX-Request": "true"})
        assert server.left == 0
    shown = html.unescape(response.content.decode())
    assert f"scripted at {server.url} answers" in shown and "Tool calls: yes" in shown
    assert "<html" not in shown


def test_without_htmx_the_result_stands_on_the_page(people, configured):
    with ScriptedServer([error(401, f"Incorrect API key provided: {KEY}")]) as server:
        configured(server)
        response = people.client("administrator").post(TEST)
    shown = html.unescape(response.content.decode())
    assert "does not accept the key; check OPENAI_API_KEY" in shown and "<html" in shown and KEY not in shown


def test_each_model_can_be_tested(people, configured):
    with ScriptedServer([error(404, "no such model")], models=["scripted", "small"]) as server:
        configured(server, ASAP_LLM_MODEL_PROPOSER="larger")
        assert 'value="proposer">larger' in page(people)
        response = people.client("administrator").post(TEST, {"agent": "proposer"}, headers={"HX-Request": "true"})
        asked = [each.body["model"] for each in server.requests if "model" in each.body]
    assert asked == ["larger"] and "It offers: scripted, small." in html.unescape(response.content.decode())


def test_the_key_is_in_no_log(people, configured, caplog):
    caplog.set_level(logging.DEBUG)
    with ScriptedServer([error(500, f"upstream said Bearer {KEY}"), error(401, f"bad key {KEY}")]) as server:
        configured(server)
        for _ in range(2):
            response = people.client("administrator").post(TEST)
            assert KEY not in response.content.decode()
        page(people)
    assert KEY not in caplog.text
