"""The built-in reasoner: answers in a conversation without a language model, from the capabilities that the palette
has.

A message is read (`understand`), each request is computed by its capability, and what is not certain enough is offered
as questions to click instead of being answered.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.tools import ToolError
from perfmodel.config import ConfigError
from proposals.agents.capabilities import Desk, arguments, registry
from proposals.agents.capabilities import answer as computed
from proposals.agents.conversation import Ask, ConstraintTold, FactTold, Question, Said
from proposals.agents.notation import Knows
from proposals.agents.reasoner.understand import Offer, Request, understand
from proposals.agents.workbench import Workbench

__all__ = ["answer", "knows_of", "stated"]

#: Characters of a clause that are quoted where it was not understood.
QUOTED = 120


def knows_of(bench: Workbench) -> Knows:
    """What words are read against, over a workbench."""
    numbers = tuple(item.proposal.rank for item in bench.rows) or (1, 2, 3)
    return Knows(bench.config, frozenset(op.name for op in bench.profile.ops), numbers)


def answer(workbench: Workbench, ask: Ask) -> Iterator[Said]:
    """Answers a message: tool calls with their results, text in small pieces, effects, and one Final (`fallback`).

    What the thread holds applies to everything that is computed.
    """
    try:
        desk = Desk(workbench.under(ask.facts, ask.constraints))
    except ConfigError as error:
        desk = Desk(workbench)
        yield from desk.say(
            f"What this conversation holds does not fit this run: {error}. Take it back, and ask again."
        )
        yield from desk.final()
        return
    found = understand(ask.text, knows_of(workbench), ask.earlier)
    for item in found:
        yield from _offered(desk, item, len(found) > 1) if isinstance(item, Offer) else _computed(desk, item)
    if not found:
        yield from _offered(
            desk, Offer(ask.text, tuple(f"{registry()[key].title}:" for key in ("recommend", "bottleneck", "help")))
        )
    yield from desk.final()


def _computed(desk: Desk, item: Request) -> Iterator[Said]:
    held = desk.bench
    if item.supposed:
        try:
            desk.over(held.with_facts({**dict(held.facts), **item.supposed}))
        except ConfigError as error:
            yield from desk.say(f"That cannot be supposed of this run: {error}.")
            return
        yield from desk.say(f"Supposing that the model is {item.supposed['model.name']}:")
    try:
        given = arguments(item.of, item.values)
    except ToolError as error:
        yield from desk.say(f"**{item.of.title}:**", f"A value does not fit: {error}")
        return
    yield from computed(desk, item.of, given)
    if item.supposed:
        desk.over(held)


def _offered(desk: Desk, item: Offer, beside: bool = False) -> Iterator[Said]:
    """beside: another part of the message is answered."""
    what = (
        f"“{' '.join(item.text.split())[:QUOTED]}” asks, so nothing was computed for it"
        if beside
        else ("is asked, so nothing was computed")
    )
    yield from desk.say(
        f"It is not certain enough what {what}. Nearest are the questions below; *All that can be computed* lists the "
        "others, and only those can be answered here."
    )
    yield Question("Which of these is meant?", item.options)


def stated(workbench: Workbench, ask: Ask) -> Iterator[ConstraintTold | FactTold]:
    """What the message holds or takes back, and nothing else of the answer.  Raises ConfigError where it makes no
    sense."""
    desk = Desk(workbench.under(ask.facts, ask.constraints))
    for item in understand(ask.text, knows_of(workbench), ()):
        if isinstance(item, Request) and item.of.key in ("hold", "forget") and item.values:
            for said in _computed(desk, item):
                if isinstance(said, ConstraintTold | FactTold):
                    yield said
