"""A question through a real broker to a real worker with threads, killed where it hurts."""

from __future__ import annotations

import pytest

from dialogue.models import Message
from dialogue.services import answering, asking
from experiments.models import Event
from tests.agent.server import ScriptedServer, text
from tests.backend.broker import broker
from tests.backend.services import eventually, redis_server, worker
from tests.dialogue.test_threads import _dead_process

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

OPTIONS = ("--pool", "threads", "--concurrency", "4", "--queues", "dialogue")


@pytest.fixture(scope="module")
def redis():
    with redis_server() as server:
        yield server


def ended(answer):
    def look():
        answer.refresh_from_db()
        return Message.Status(answer.status).is_final

    eventually(look, 90, "the answer has ended")
    return answer


def test_questions_wait_for_a_worker_and_survive_a_dead_one(redis, people, ready, thread, data_folder):
    replies = [text("Proposal 1 comes first.")] * 6
    with pytest.MonkeyPatch.context() as patch, ScriptedServer(replies) as server, broker(redis.url):
        patch.setenv("OPENAI_BASE_URL", server.url)
        with worker(redis.url, data_folder, *OPTIONS) as first:
            answer = ended(asking.ask(thread, people.engineer, "Which do you recommend first?"))
            assert (answer.status, answer.provider) == ("done", "scripted"), (answer.note, first.log)
            first.kill()
        # Nobody is there: the question waits; and one that a dead process had begun waits too.
        waiting = asking.ask(thread, people.engineer, "How sure are you?")
        other = asking.open_thread(ready.experiment, people.viewer)
        begun = asking.ask(other, people.engineer, "How sure are you?")
        assert answering.claim(begun.pk, f"{_dead_process()}/1")
        # Before a worker is there: the question's own message still waits, and a worker might take it before the sweep.
        assert begun.pk in asking.ANSWERS.sweep()
        with worker(redis.url, data_folder, *OPTIONS):
            assert ended(waiting).status == "done" and ended(begun).status == "done"
        assert begun.attempts == 2
    finals = Event.objects.filter(kind="final", data__message__in=[answer.pk, waiting.pk, begun.pk])
    assert finals.count() == 3
