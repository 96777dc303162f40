"""Secrets never enter the Sharding Memory: whoever says the key, it is in no event, export, answer or page."""

from __future__ import annotations

import json

import pytest

from agent.provider.openai import OpenAIProvider
from agent.provider.settings import Settings
from dialogue.models import Held, Message
from dialogue.services import asking
from dialogue.services.answering import respond
from experiments.models import Event
from experiments.services import events
from proposals.agents import chat
from tests.agent.server import ScriptedServer, calls, error, text

pytestmark = pytest.mark.django_db(transaction=True)

KEY = "local-endpoint-key-5f0c7719d2"  # looks like no provider's key, so no pattern can find it
LIKE = "sk-proj-Zt81bQ0vN4aaWq9d77"


@pytest.fixture
def answer_with(monkeypatch, people, thread):
    """The answer to a question by a scripted model that is reached with the key."""

    def answered(question: str, *replies) -> Message:
        with ScriptedServer(replies) as server:
            for name, value in (
                ("OPENAI_API_KEY", KEY), ("OPENAI_BASE_URL", server.url), ("ASAP_LLM_MODEL", "scripted")
            ):  # fmt: skip
                monkeypatch.setenv(name, value)
            import os

            provider = OpenAIProvider(Settings.from_env(os.environ))
            answer = asking.ask(thread, people.engineer, question)
            respond(answer.pk, lambda of, ask, cancel=None: chat.answer(of, ask, cancel, provider))
            assert all(each.headers["authorization"] == f"Bearer {KEY}" for each in server.requests)
            assert server.requests
        answer.refresh_from_db()
        return answer

    return answered


def everything(people, ready) -> str:
    """All that is stored, exported and shown of the experiment."""
    client, pk = people.client("engineer"), ready.experiment.pk
    parts = [json.dumps(list(Event.objects.values("kind", "data", "brief", "model")), default=str)]
    parts.append(str(list(Event.objects.values_list("words", flat=True))))
    parts.append(json.dumps(list(Message.objects.values("text", "note", "steps", "effects", "supports")), default=str))
    parts.append(json.dumps(list(Held.objects.values("sentence", "value")), default=str))
    parts.append(b"".join(client.get(f"/experiments/{pk}/memory.jsonl").streaming_content).decode())
    for path in (f"/experiments/{pk}/memory/", f"/experiments/{pk}/dialogue/"):
        response = client.get(path)
        assert response.status_code == 200
        parts.append(response.content.decode())
    for message in Event.objects.exclude(message=None).values_list("message", flat=True).distinct():
        parts.append(client.get(f"/experiments/{pk}/replay/{message}/?step=all").content.decode())
    return "\n".join(parts)


WHERE = ("unauthorized", "server errors", "in the answer", "in arguments", "in a tool's name", "in the question")


@pytest.mark.parametrize(("question", "replies"), [
    ("Is it fast?", lambda: (error(401, f"Incorrect API key provided: {KEY}."),)),
    ("Is it fast?", lambda: (error(500, f"upstream refused Bearer {KEY}"), error(500, f"{KEY}"), error(400, KEY))),
    ("Is it fast?", lambda: (text(f"Your key is {KEY}, and proposal 1 stands first."),)),
    ("Is it fast?", lambda: (calls(("search_knowledge", {"query": f"what is {KEY}"})), text("Proposal 1."))),
    ("Is it fast?", lambda: (calls((f"tool_{KEY}", {}), ("op", {"name": KEY})), text("Proposal 1."))),
    (f"My key is {KEY}; is it fast?", lambda: (text(f"Do not tell {KEY}."), text("Proposal 1."))),
], ids=WHERE)  # fmt: skip
def test_the_key_is_nowhere_whoever_says_it(people, ready, answer_with, caplog, question, replies):
    answer_with(question, *replies())
    found = everything(people, ready)
    assert KEY not in found and KEY not in caplog.text
    assert "proposal" in found  # there was something to look through


def test_what_looks_like_a_key_in_a_question_is_hidden_too(people, ready, thread):
    answer = asking.ask(thread, people.engineer, f"Why is {LIKE} not accepted?")
    assert answer.question.text == "Why is [hidden] not accepted?"
    assert LIKE not in everything(people, ready)


def test_other_secrets_of_the_installation_are_left_out_as_well(people, ready, settings):
    settings.SECRET_KEY = "django-signing-secret-0123456789"
    data = {"text": f"signed with {settings.SECRET_KEY}", "deep": [{settings.SECRET_KEY: settings.SECRET_KEY}]}
    row = events.append(ready.experiment, "error", "worker", data=data)
    assert Event.objects.get(pk=row.pk).data == {"text": "signed with [hidden]", "deep": [{"[hidden]": "[hidden]"}]}


def test_a_word_that_local_servers_take_for_a_key_stays_readable(people, ready, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    row = events.append(ready.experiment, "message", "user", data={"text": "none of them"})
    assert Event.objects.get(pk=row.pk).data == {"text": "none of them"}
