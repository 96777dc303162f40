"""Reads everything that a hostile endpoint sends, in a process that may take little more memory than it has.

`python -m tests.hostile.bounded MORE_BYTES` ends with status 0 where each reply ended as it must, within that, and
nothing showed the key.
"""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path

from agent.control import Clock
from agent.limits import Limits
from agent.loop import run
from agent.messages import UserMessage
from agent.provider.openai import OpenAIProvider
from agent.provider.settings import Settings
from tests.agent.conftest import drive
from tests.agent.server import ScriptedServer
from tests.hostile.attack import KEY, Attack, Behaviour, shows_key
from tests.hostile.transport import CONNECTIONS, SHAPES
from tests.hostile.words import SPELLINGS

#: Does not wait between two requests.
HASTE = Clock(sleep=lambda seconds_s, cancel: None)
MOST_REQUESTS = 40
MOST_NOTE_CHARS = 600


def read(behaviour: Behaviour, elsewhere: ScriptedServer) -> None:
    with ScriptedServer(behaviour.script(Attack(elsewhere.url, (), ()))) as server:
        env = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url, "ASAP_LLM_MODEL": "scripted", **behaviour.more}
        provider = OpenAIProvider(Settings.from_env(env))
        events, outcome = drive(
            run(provider, [UserMessage("Why?")], limits=Limits(time_s=behaviour.time_s), clock=HASTE)
        )
        assert 0 < len(server.requests) <= MOST_REQUESTS
    if behaviour.stands != "either":
        assert (outcome.stopped is None) == (behaviour.stands == "model"), outcome.stopped
    if outcome.stopped is not None:
        assert re.search(behaviour.says, outcome.stopped.sentence), outcome.stopped
        assert len(outcome.stopped.sentence) <= MOST_NOTE_CHARS and "\n" not in outcome.stopped.sentence
    assert outcome.cost_usd is None or outcome.cost_usd >= 0
    said = "".join(event.text for event in events if event.kind == "text_delta")
    for words in behaviour.absent:
        assert words not in said
    assert not shows_key(said) and not shows_key(repr((events, outcome, [each.body for each in server.requests])))


def main() -> None:
    everything = (*CONNECTIONS, *SHAPES, *SPELLINGS)
    with ScriptedServer() as elsewhere:
        read(everything[0], elsewhere)  # what is loaded at first
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        most = used + int(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        for behaviour in everything:
            try:
                read(behaviour, elsewhere)
            except BaseException as error:
                error.add_note(behaviour.name)
                raise
        assert not elsewhere.requests
    print(len(everything))


if __name__ == "__main__":
    main()
