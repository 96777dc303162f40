"""Whatever an endpoint sends, the question ends: with the reason where the model's answer is none."""

from __future__ import annotations

import pytest

from agent.provider.openai import OpenAIProvider
from agent.provider.settings import Settings
from dialogue.models import Message
from dialogue.services import asking
from dialogue.services.answering import respond
from proposals.agents import chat
from tests.agent.server import Plain, ScriptedServer, Stream, calls, chunk, text

pytestmark = pytest.mark.django_db(transaction=True)

DEEP = 100_000
MISCOUNTED = chunk({}) | {"choices": [], "usage": {"prompt_tokens": 10**12, "completion_tokens": 10**12}}
INFINITE = chunk({}) | {"choices": [], "usage": {"prompt_tokens": float("inf"), "completion_tokens": 1}}


@pytest.mark.parametrize("replies", [
    [text("The step takes 17 ms.", counted=MISCOUNTED)] * 3,
    [text("The step takes 17 ms.", counted=INFINITE)] * 3,
    [Plain(200, b'{"choices": ' + b"[" * DEEP + b"]" * DEEP + b"}")] * 3,
    [Stream((b"data: " + b"[" * DEEP + b"\n\n",))] * 3,
    [calls(("price", '{"mesh": ' + "[" * 50_000 + "}")), calls(("price", '{"mesh": {"data": Infinity}}'))],
    [calls(*(("bounds", {}) for _ in range(500)))],
], ids=["miscounted", "infinite", "deep body", "deep chunk", "odd arguments", "500 calls"])  # fmt: skip
def test_a_reply_that_is_no_answer_ends_with_the_reason(people, ready, thread, replies):
    with ScriptedServer(replies) as server:
        env = {"OPENAI_API_KEY": "local-key", "OPENAI_BASE_URL": server.url, "ASAP_LLM_MODEL": "scripted"}
        provider = OpenAIProvider(Settings.from_env(env))
        answer = asking.ask(thread, people.engineer, "What limits this step?")
        respond(answer.pk, lambda of, ask, cancel=None: chat.answer(of, ask, cancel, provider))
        assert server.requests
    answer.refresh_from_db()
    assert (answer.status, answer.text) == (Message.Status.FAILED, "")
    assert answer.note
    page = people.client("engineer").get(f"/experiments/{ready.experiment.pk}/dialogue/")
    assert page.status_code == 200 and len(page.content) < 300_000
