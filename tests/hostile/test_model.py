"""A language model that means harm, behind a real HTTP endpoint, and one that obeys whatever it reads.

Whatever it does, the question ends answered or failed with a reason; nothing secret, nothing of another team and
nothing that a page would run is shown at any moment; nothing changes beside the answer; and what is kept is bounded.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from django.test import override_settings

from dialogue.models import Message
from dialogue.services.answering import respond
from experiments.models import Event
from proposals.agents import chat
from tests.agent.server import ScriptedServer
from tests.hostile.attack import KEY, THEIRS, Behaviour, shows_key
from tests.hostile.bounded import HASTE, MOST_NOTE_CHARS, MOST_REQUESTS
from tests.hostile.house import House, active, built, events_of, seen, sent, tables
from tests.hostile.transport import CONNECTIONS, SHAPES
from tests.hostile.words import CALLS, CLAIMS, MARKUP, ORDERS, SECRETS, SPELLINGS

pytestmark = pytest.mark.slow

#: What an endpoint sends is read in a process of its own, below; of each end that this may come to, one is followed to
#: the answer, the page and what is kept.
ENDS = {
    (each.says, each.stands, each.absent, *each.more): each for each in reversed((*CONNECTIONS, *SHAPES, *SPELLINGS))
}
TABLE = (*ENDS.values(), *CALLS, *SECRETS, *MARKUP, *CLAIMS, *ORDERS)
PROJECT = Path(__file__).resolve().parents[2]
MOST_EVENTS = 160
MOST_EVENT_CHARS = 6_000_000
MOST_PAGE_BYTES = 600_000


@pytest.fixture(scope="module")
def house(committed_rows: None, tmp_path_factory) -> Iterator[House]:
    with override_settings(ASAP_HOME=tmp_path_factory.mktemp("hostile")), built() as made:
        yield made
        check_what_is_kept(made)


def check_what_is_kept(house: House) -> None:
    """The Sharding Memory, its export, the replay and the steps are neither secret nor active, after all tests."""
    pk = house.ready.experiment.pk
    export = b"".join(house.client.get(f"/experiments/{pk}/memory.jsonl").streaming_content).decode()
    assert not shows_key(export) and f"{THEIRS} " not in export
    answers = Message.objects.filter(thread__experiment=pk, role="assistant", provider__gt="")
    paths = [f"/experiments/{pk}/memory/", f"/experiments/{pk}/dialogue/"]
    paths += [f"/experiments/{pk}/memory/{event}/" for event in Event.objects.values_list("pk", flat=True)[::90]]
    threads = answers.values_list("thread", flat=True)[::20]
    paths += [f"/experiments/{pk}/dialogue/{thread}/" for thread in threads]
    for path in paths:
        page = house.client.get(path).content.decode()
        assert not active(page) and not shows_key(page) and len(page) <= MOST_PAGE_BYTES, path


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.mark.nightly(of=6)
@pytest.mark.parametrize("behaviour", TABLE, ids=lambda each: each.name[:60])
def test_whatever_a_model_does(
    behaviour: Behaviour, house: House, elsewhere: ScriptedServer, monkeypatch, caplog
) -> None:
    thread = house.thread()
    earlier = list(thread.messages.values())
    with ScriptedServer(behaviour.script(house.attack(elsewhere.url))) as server:
        environment = {
            "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url, "ASAP_LLM_MODEL": "scripted",
            "ASAP_LLM_TIME_S": str(behaviour.time_s), **behaviour.more,
        }  # fmt: skip
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        answer = house.ask(thread)
        respond(answer.pk, partial(chat.answer, clock=HASTE))
        asked = sent(server.requests)
        assert 0 < len(server.requests) <= MOST_REQUESTS
    answer.refresh_from_db()

    # It ends, and says why where there is no answer.
    assert answer.status in (Message.Status.DONE, Message.Status.FAILED), answer.note
    answered = answer.status == Message.Status.DONE
    if behaviour.stands != "either":
        assert answered == (behaviour.stands == "model"), (answer.text[:200], answer.note)
    if answered:
        assert answer.text.strip() and answer.provider
    else:
        assert answer.note and re.search(behaviour.says, answer.note), answer.note
    assert len(answer.note) <= MOST_NOTE_CHARS and "\n" not in answer.note
    assert answer.cost_usd is None or answer.cost_usd >= 0
    for words in behaviour.absent:
        assert words not in answer.text
    assert behaviour.read in asked

    # What is kept and shown is bounded, and holds nothing that it may not.
    kept, versions = events_of(answer), seen(answer)
    shown = house.client.get(f"/answers/{answer.pk}/", headers={"HX-Request": "true"})  # as each page includes it
    assert shown.status_code == 200
    page = shown.content.decode()
    assert kept.count("\n") <= MOST_EVENTS and len(kept) <= MOST_EVENT_CHARS
    assert len(page) <= MOST_PAGE_BYTES
    assert not active(page)
    assert not any(shows_key(version) for version in versions)
    assert not shows_key(kept) and not shows_key(page) and not shows_key(asked)
    assert KEY not in caplog.text
    for shown in (*versions, kept, page, asked):
        assert f"{THEIRS} " not in shown and f"{THEIRS}.md" not in shown

    # Nothing else happened.
    assert tables() == house.before
    assert list(thread.messages.values())[: len(earlier)] == earlier
    assert thread.messages.count() == len(earlier) + 2
    assert not elsewhere.requests


@pytest.mark.nightly
def test_whatever_an_endpoint_sends_is_read_in_little_memory() -> None:
    """Connections, encodings, shapes of JSON and spellings of the key; bombs, replies without end, and depth, each of
    gigabytes if it were taken: within 200 MB in all."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.bounded", "200000000"], capture_output=True, text=True, cwd=PROJECT
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) == len((*CONNECTIONS, *SHAPES, *SPELLINGS))
    assert not shows_key(done.stderr)
