"""The built-in reasoner: answers in a conversation without a language model, from the capabilities that the palette
has.

A message is read (`understand`), each request is computed by its capability, and how likely that answers the message is
judged before anything is shown (`answer_confidence`).  What is not likely enough is offered as questions to click.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent.events import TextDelta
from agent.tools import ToolError
from perfmodel.config import ConfigError
from proposals.agents import words
from proposals.agents.capabilities import AnswerContext, Capability, arguments, command, registry
from proposals.agents.capabilities import answer as computed
from proposals.agents.capabilities.explaining import EXPLAINED, left_over
from proposals.agents.conversation import Ask, ConstraintStated, FactStated, Question, Said
from proposals.agents.notation import ParseContext
from proposals.agents.reasoner import answer_confidence
from proposals.agents.reasoner.understand import OFFERED, Offer, Outside, Request, commanded, understand
from proposals.agents.workbench import Workbench

__all__ = ["answer", "knows_of", "stated"]

#: Characters of a clause that are quoted where it was not understood.
QUOTED = 120


def knows_of(bench: Workbench) -> ParseContext:
    """What words are read against, over a workbench."""
    numbers = tuple(item.proposal.rank for item in bench.rows) or (1, 2, 3)
    return ParseContext(bench.config, frozenset(op.name for op in bench.profile.ops), numbers)


def answer(workbench: Workbench, ask: Ask) -> Iterator[Said]:
    """Answers a message: tool calls with their results, text in small pieces, effects, and one Final (`fallback`).

    What the thread holds applies to everything that is computed.
    """
    user_messages = (ask.text, *(turn.text for turn in reversed(ask.earlier) if turn.role == "user"))
    try:
        ctx = AnswerContext(workbench.under(ask.facts, ask.constraints), user_messages)
    except ConfigError as error:
        ctx = AnswerContext(workbench)
        yield from ctx.say(
            f"The constraints and facts of this conversation do not fit this run: {error}. Remove them and ask again."
        )
        yield from ctx.final()
        return
    understood = understand(ask.text, knows_of(workbench), ask.earlier)
    if not understood:
        nearest = tuple(f"{registry()[key].title}:" for key in ("recommend", "bottleneck", "help"))
        understood = [Offer(ask.text, nearest)]
    yield from _answered(ctx, understood, ask.text)
    yield from ctx.final()


def _answered(ctx: AnswerContext, understood: Sequence[Request | Offer | Outside], text: str) -> Iterator[Said]:
    """What is stated first; then what is asked, computed and judged together, in the order of the message."""
    asked = [item for item in understood if not (isinstance(item, Request) and item.stated)]
    for item in understood:
        if isinstance(item, Request) and item.stated:
            yield from _computed(ctx, item)
    requests = [item for item in asked if isinstance(item, Request)]
    before = (ctx.text, ctx.calls)
    said = [(item, list(_respond(ctx, item, len(asked) > 1))) for item in asked]
    for item in understood:  # what is held or offered by itself is no part of what is judged
        if item not in requests:
            text = text.replace(item.read.text if isinstance(item, Request) else item.text, " ")
    if commanded(text) is None and requests and not _likely(asked, said, text):
        ctx.text, ctx.calls = before
        yield from _offered(ctx, _instead(requests), bool(ctx.text))
        return
    for _, events in said:
        yield from events
    # After judging: a number that is named again because it was asked is no sign that the rest is right.
    if requests and all({item.of.area, item.of.key} & EXPLAINED for item in requests) and commanded(text) is None:
        yield from left_over(ctx)


def _respond(ctx: AnswerContext, item: Request | Offer | Outside, beside: bool) -> Iterator[Said]:
    if isinstance(item, Request):
        yield from _computed(ctx, item)
    elif isinstance(item, Offer):
        yield from _offered(ctx, item, beside)
    else:
        yield from ctx.say(
            f"“{_quoted(item.text)}” cannot be answered here: only questions about performance, memory, cost and "
            "sharding of this training run can."
        )


def _likely(asked: Sequence[Request | Offer | Outside], said: Sequence[tuple[object, list[Said]]], text: str) -> bool:
    """Whether the answer to all that is asked is likely enough to be right."""
    requests = [item for item in asked if isinstance(item, Request)]
    if len(requests) == len(asked) and all(
        item.implied for item in requests
    ):  # values, and nothing asked of them but their price
        return True
    whole = not answer_confidence.content(text) - answer_confidence.content(
        " ".join(item.read.text for item in requests)
    )
    if whole and all(answer_confidence.is_example(item.read.text, item.of.key) for item in requests):
        return True
    written = "".join(
        event.text for item, events in said if isinstance(item, Request) for event in events
        if isinstance(event, TextDelta)
    )  # fmt: skip
    given = [
        (name, value) for item in requests for name, value in item.values.items() if name not in ("text", "sentence")
    ]
    taken = " ".join(f"{name.replace('_', ' ')} {value}" for name, value in given)
    least = min(item.chance for item in requests)
    signs = answer_confidence.signs(text, [item.of for item in requests], f"{written} {taken}", least)
    return answer_confidence.probability(signs) >= answer_confidence.weights()[1]


def _instead(requests: Sequence[Request]) -> Offer:
    """What would have been answered, and what else the message may mean, to click."""
    mine = [command(item.of, item.values) for item in requests]
    others = [text for item in requests for text in item.others]
    text = " ".join(item.read.text for item in requests)
    return Offer(text, tuple(dict.fromkeys([*mine, *others]))[:OFFERED])


def _computed(ctx: AnswerContext, item: Request) -> Iterator[Said]:
    held = ctx.bench
    if item.supposed:
        try:
            ctx.over(held.with_facts({**dict(held.facts), **item.supposed}))
        except ConfigError as error:
            yield from ctx.say(f"That assumption does not fit this run: {error}.")
            return
        yield from ctx.say(f"Assuming that the model is {item.supposed['model.name']}:")
    try:
        given = arguments(item.of, item.values)
    except ToolError as error:
        yield from ctx.say(f"**{item.of.title}:**", f"A value does not fit: {error}")
        return
    yield from computed(ctx, item.of, given)
    if item.supposed:
        ctx.over(held)


def _offered(ctx: AnswerContext, item: Offer, beside: bool = False) -> Iterator[Said]:
    """beside: another part of the message is answered."""
    of = f"“{_quoted(item.text)}”" if beside else "this"
    why = f"No single computation takes {' and '.join(item.lost)} together with the rest, so" if item.lost else (
        f"No computation matches {of} with enough certainty, so"
    )  # fmt: skip
    yield from ctx.say(f"{why} nothing was computed for it. Closest matches, with the values read from it:")
    yield from ctx.bullets([_shown(text) for text in item.options])
    yield Question("Which of these do you mean?", item.options)


def _shown(text: str) -> str:
    """What an option would compute: `Does it fit in memory, with batch 128: Whether a configuration fits per chip`."""
    asked = commanded(text)
    assert asked is not None
    given = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in _plain(asked.of, text))
    says = asked.of.description.partition(":")[0].rstrip(".")
    return f"**{asked.of.title}**{f' with {given}' if given else ''}: {words.lower_first(says)}."


def _plain(of: Capability, text: str) -> Iterator[tuple[str, str]]:
    for part in text.partition(":")[2].split(";"):
        name, is_, value = (each.strip() for each in part.partition("="))
        if is_ and name != "text":
            yield name, value.replace("=", " ")


def _quoted(text: str) -> str:
    return " ".join(text.split())[:QUOTED]


def stated(workbench: Workbench, ask: Ask) -> Iterator[ConstraintStated | FactStated]:
    """What the message holds or takes back, and nothing else of the answer.  Raises ConfigError where it makes no
    sense."""
    ctx = AnswerContext(workbench.under(ask.facts, ask.constraints))
    for item in understand(ask.text, knows_of(workbench), ()):
        if isinstance(item, Request) and item.of.key in ("hold", "forget") and item.values:
            for said in _computed(ctx, item):
                if isinstance(said, ConstraintStated | FactStated):
                    yield said
