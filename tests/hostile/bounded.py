"""Reads everything large that a hostile endpoint sends, in a process that may take little more memory than it has.

`python -m tests.hostile.bounded MORE_BYTES` ends with status 0 where each reply was refused within that.
"""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path

from agent.limits import Limits
from agent.loop import run
from agent.messages import UserMessage
from agent.provider.openai import OpenAIProvider
from agent.provider.settings import Settings
from tests.agent.conftest import NoWaiting, drive
from tests.agent.server import ScriptedServer
from tests.hostile.attack import KEY, Attack, Behaviour
from tests.hostile.transport import CONNECTIONS, SHAPES

LARGE = re.compile(r"bomb|endless (?!early)|100,000 deep|of 1 MB|of 10 MB|with status 500")


def read(behaviour: Behaviour) -> None:
    with ScriptedServer(behaviour.script(Attack("", (), ()))) as server:
        env = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url, "ASAP_LLM_MODEL": "scripted"}
        provider = OpenAIProvider(Settings.from_env(env))
        steps = run(provider, [UserMessage("Why?")], limits=Limits(time_s=120), clock=NoWaiting().clock())
        _, outcome = drive(steps)
    assert (outcome.source == "model") == (behaviour.stands == "model"), (behaviour.name, outcome.stopped)


def main() -> None:
    large = [each for each in (*CONNECTIONS, *SHAPES) if LARGE.search(each.name)]
    read(large[0])  # what is loaded at first
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    most = used + int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for behaviour in large:
        read(behaviour)
    print(len(large))


if __name__ == "__main__":
    main()
