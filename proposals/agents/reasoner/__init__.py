"""The built-in reasoner: answers in a conversation without a language model, from the tools that models use.

It reads a message by rules, and by its meaning where they do not reach (`understand`), calls the tools, and writes from
what they return; what it can not read it quotes and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from perfmodel.config import ConfigError
from proposals.agents.conversation import Ask, Said
from proposals.agents.reasoner.answers import (
    comparing,
    fitting,
    known,
    measured,
    plans,
    retelling,
    standing,
    talk,
    what_if,
    why_not,
)
from proposals.agents.reasoner.desk import Answer, Desk
from proposals.agents.reasoner.thread import after, carried, focus, ranked_anew, spelled_out
from proposals.agents.reasoner.understand import Asked, Knows, understand
from proposals.agents.workbench import Workbench

__all__ = ["answer"]

_ANSWERS: dict[str, Callable[[Desk, Asked], Answer]] = {
    "recommend": standing.recommend,
    "confidence": standing.confidence,
    "prefer": standing.prefer,
    "pressure": standing.hold,
    "hold": standing.hold,
    "what_if": what_if.what_if,
    "why_not": why_not.why_not,
    "compare": comparing.compare,
    "memory": fitting.memory,
    "change_mind": plans.change_mind,
    "measure": plans.measure,
    "explain": plans.explain,
    "risks": plans.risks,
    "launch": plans.launch,
    "list": plans.overview,
    "rejected": plans.rejected,
    "search": plans.search,
    "why_slow": measured.why_slow,
    "op": measured.op,
    "ops": measured.ops,
    "communication": measured.communication,
    "figures": measured.figures,
    "improve": measured.improve,
    "run": measured.run,
    "similar": known.similar,
    "knowledge": known.knowledge,
    "accuracy": known.accuracy,
    "held": retelling.held,
    "add": talk.add,
    "chips": talk.chips,
    "greeting": talk.greeting,
    "help": talk.helping,
    "thanks": talk.thanks,
    "bye": talk.bye,
    "yes": talk.yes,
    "no": talk.no,
    "chip": talk.chip,
    "result": known.result,
    "act": talk.act,
    "injection": talk.injection,
}


def answer(workbench: Workbench, ask: Ask) -> Iterator[Said]:
    """Answers a message: tool calls with their results, text in small pieces, effects, and one Final (`fallback`).

    What the thread holds fast and was told applies to everything that is computed.
    """
    knows = Knows(workbench.config, {op.name for op in workbench.profile.ops}, ask.constraints, ask.facts)
    before = focus(ask.earlier, knows)
    try:
        bench = workbench.under(ask.facts, ask.constraints)
    except ConfigError as error:
        desk = Desk(workbench, ask, before)
        yield from desk.say(
            f"What this conversation holds does not fit this run: {error}. Take it back, and ask again."
        )
        yield from desk.final()
        return
    desk = Desk(bench, ask, before)
    read = understand(spelled_out(ask.text, before), knows)
    if read.told:
        yield from retelling.retell(desk, read.told)
        desk.focus = ranked_anew(desk.focus)
    for item in (carried(each, desk.focus) for each in read.asked):
        if item.guessed:
            yield from talk.guessed(desk, item)
        yield from _ANSWERS[item.intent](desk, item)
        desk.focus = after(desk.focus, item, knows)
    if read.unclear:
        yield from talk.unclear(desk, read.unclear, bool(read.asked or read.told))
    if not desk.text:
        yield from talk.pardon(desk)
    yield from desk.final()
