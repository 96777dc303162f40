"""Who answers in a thread: the configured language model, else the built-in reasoner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from agent.control import Cancel
from agent.events import ToolReturned
from proposals.agents import grounding, reasoner
from proposals.agents.conversation import Ask, Said
from proposals.agents.workbench import Workbench

BUILT_IN = "built-in"


def provider_name() -> str:
    """The model that answers, as it is shown; `BUILT_IN` where none is configured."""
    return BUILT_IN


def answer(bench: Workbench, ask: Ask, cancel: Cancel | None = None) -> Iterator[Said]:
    """What is said and done to answer; a set `cancel` ends it."""
    yield from reasoner.answer(bench, ask)


def supports(text: str, results: Sequence[ToolReturned]) -> list[dict[str, Any]]:
    """Per sentence the ids of the results that back it."""
    return [asdict(link) for link in grounding.supports(text, results)]
