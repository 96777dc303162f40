"""Recorded answers, read step by step on their pages."""

from __future__ import annotations

import html
from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from agent.provider.openai import OpenAIProvider
from agent.provider.settings import Settings
from dialogue.models import Message
from dialogue.services import asking, recorded_answers
from dialogue.services.answering import respond
from experiments.models import Event
from proposals.agents import chat
from tests.agent.server import ScriptedServer, calls, text
from tests.dialogue.answerers import Scripted, final, tool

pytestmark = pytest.mark.django_db(transaction=True)


def answered(thread, user, answerer, question="Which do you recommend first?") -> Message:
    answer = asking.ask(thread, user, question)
    respond(answer.pk, answerer)
    answer.refresh_from_db()
    return answer


@pytest.fixture
def by_model(people, thread):
    """An answer of a scripted model with one tool call."""
    with ScriptedServer([calls(("look", {"part": "kpis"})), text("Proposal 1 stands first.")]) as server:
        provider = OpenAIProvider(Settings.from_env({"OPENAI_BASE_URL": server.url, "ASAP_LLM_MODEL": "scripted"}))
        yield answered(thread, people.engineer, lambda of, ask, cancel=None: chat.answer(of, ask, cancel, provider))


def first_look(step_time_s):
    return [replace(step, turn=0) for step in tool(1, "look", {}, {"step_time_s": step_time_s})]


def test_only_the_newest_attempt_is_shown(people, ready, thread):
    answer = answered(thread, people.engineer, Scripted(*first_look(1.0), final("First.")))
    long_ago = timezone.now() - timedelta(minutes=5)
    Message.objects.filter(pk=answer.pk).update(status="answering", worker="dead", heartbeat_at=long_ago)
    respond(answer.pk, Scripted(*first_look(2.0), final("Second.")))
    steps = recorded_answers.replayed(ready.experiment, message=answer.pk)
    assert len(steps) == 3 and steps[1].event.data["result"] == {"step_time_s": 2.0}


def test_pages_show_the_steps_with_all_messages(people, ready, by_model):
    client, address = people.client("engineer"), f"/experiments/{ready.experiment.pk}/replay/"
    memory = client.get(f"/experiments/{ready.experiment.pk}/memory/").content.decode()
    assert f'href="{address}{by_model.pk}/"' in memory
    steps = recorded_answers.replayed(ready.experiment, message=by_model.pk)
    requests = [step for step in steps if step.event.kind == "model_request"]
    assert len(requests[1].messages) == len(requests[0].messages) + len(requests[1].event.data["messages"])
    shown = html.unescape(client.get(f"{address}{by_model.pk}/?step={requests[1].number}").content.decode())
    assert f"Step {requests[1].number} of {len(steps)}" in shown and "Previous" in shown and "Next" in shown
    for step in ("0", "999", "x", "", "all"):
        assert client.get(f"{address}{by_model.pk}/?step={step}").status_code == 200


def test_engineers_read_them_viewers_and_strangers_do_not(people, ready, thread):
    answer = answered(thread, people.engineer, Scripted(final("Yes.")))
    address = f"/experiments/{ready.experiment.pk}/replay/"
    path = f"{address}{answer.pk}/"
    for who, status in (("engineer", 200), ("viewer", 403), ("outsider", 404), ("anonymous", 302)):
        assert people.client(who).get(path).status_code == status, (path, who)
    assert people.client("engineer").post(path).status_code == 405
    assert people.client("engineer").get(f"{address}999999/").status_code == 404


def test_removed_payloads_and_a_deleted_conversation_are_said(people, ready, thread):
    from experiments.services import retention

    answer = answered(thread, people.engineer, Scripted(tool(1, "look", {}, {"a": 1}), final("Yes.")))
    client, address = people.client("engineer"), f"/experiments/{ready.experiment.pk}/replay/{answer.pk}/"
    asking.delete(thread, people.engineer)
    assert client.get(address).status_code == 200
    Event.objects.update(created_at=timezone.now() - timedelta(days=9))
    people.team.keep_payloads_days = 5
    people.team.save()
    retention.sweep()
    assert "payloads of these steps were removed" in client.get(address).content.decode()
