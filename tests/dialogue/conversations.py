"""Conversations that are recorded with a scripted model and replayed by the tests.

`python -m tests.dialogue.conversations` writes them again, after a prompt, a tool or the built-in reasoner was changed
on purpose; the difference of the files then shows what became of the answers.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import django

FOLDER = Path(__file__).parent / "recorded"
_CLOCK = re.compile(r'("(?:duration_s|first_token_s)":) [0-9.e-]+')
#: Small, and nothing in it is read from a file.
RUN = "gradients over DCN"


@dataclass(frozen=True)
class Conversation:
    """One question to a run.  replies: what the scripted model says; None: no model is asked."""

    name: str
    question: str
    replies: tuple[object, ...] | None

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.jsonl"


def conversations() -> tuple[Conversation, ...]:
    from tests.agent.server import calls, error, text

    return (
        Conversation(
            "recommends",
            "Which do you recommend first?",
            (calls(("proposals", {"number": 1}), ("findings", {})), text("Proposal 1 stands first.")),
        ),
        Conversation(
            "mended",
            "How long does the step take?",
            (text("The step takes 123.45 s."), text("The tool results say it; I claim no number here.")),
        ),
        Conversation(
            "unreachable",
            "Are you sure of the first proposal?",
            (error(503, "overloaded"), error(401, "wrong key")),
        ),
        Conversation("built-in", "What should I measure next?", None),
    )


def record(conversation: Conversation) -> Iterator[str]:
    """The lines of its export."""
    from agent.provider.openai import OpenAIProvider
    from agent.provider.settings import Settings
    from evaluation.quality.evidence import bench
    from proposals.agents import chat, reasoner
    from proposals.agents.conversation import Ask
    from proposals.agents.recorded import STEP_KINDS, event_data
    from tests.agent.server import ScriptedServer

    of, ask = bench(RUN), Ask(conversation.question)
    if conversation.replies is None:
        said = list(reasoner.answer(of, ask))
    else:
        with ScriptedServer(conversation.replies) as server:  # type: ignore[arg-type]
            env = {"OPENAI_BASE_URL": server.url, "ASAP_LLM_MODEL": "scripted"}
            said = list(chat.answer(of, ask, None, OpenAIProvider(Settings.from_env(env))))
            port = str(server.url)
    events = [each for each in said if getattr(each, "kind", "") in STEP_KINDS]
    rows = [{"kind": "message", "actor": "user", "data": {"thread": 1, "message": 1, "text": ask.text}}]
    rows += [{"kind": each.kind, "actor": "coordinator", "data": event_data(each, 1, 2)} for each in events]  # type: ignore
    for line in (json.dumps(row, ensure_ascii=False) for row in rows):
        line = _CLOCK.sub(r"\1 0.0", line)  # so that a file changes only where an answer does
        yield line.replace(port, "http://localhost/v1") if conversation.replies is not None else line


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for conversation in conversations():
        lines = list(record(conversation))
        conversation.path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{conversation.path.name}: {len(lines)} lines")


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "asapweb.settings")
    django.setup()
    main()
