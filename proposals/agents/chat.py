"""The configured language model answers in a thread: it calls tools and writes in references, which code prints."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from agent.control import Cancel, Clock
from agent.events import Complaint, Final, Retry, RunEvent, Stopped, TextDelta, ToolReturned
from agent.loop import Outcome, run
from agent.messages import AssistantMessage, Message, SystemMessage, UserMessage
from agent.provider.base import Provider
from proposals.agents import endpoint
from proposals.agents.conversation import AnswerStep, AnswerText, Ask, ConstraintStated, FactStated, MeshOffered
from proposals.agents.drafts import Sources, look, prompt
from proposals.agents.references import resolve
from proposals.agents.toolbox import Agent, toolbox
from proposals.agents.tools.shared import mesh_of
from proposals.agents.workbench import Workbench

AGENT: Agent = "coordinator"
#: Characters of an answer: some ten pages, which nobody reads in a dialogue.
LONGEST_ANSWER = 30_000
#: Characters of an open brace that are waited for: a reference is no longer.
LONGEST_REFERENCE = 400
#: Configurations offered to be added, of all that an answer speaks of.
MOST_OFFERED = 3
#: A row of `price` that an answer refers to.
_ROW = re.compile(r"\b(r\d+)\.configurations\[(\d+)\]")
NO_MODEL = "Free text needs a language model, and none is set up; an administrator does so under Settings."


def provider_name() -> str:
    """Return the model that answers; empty where none is configured."""
    provider = endpoint.provider(AGENT)
    return provider.model if provider is not None else ""


def answer(
    bench: Workbench,
    ask: Ask,
    cancel: Cancel | None = None,
    provider: Provider | None = None,
    clock: Clock | None = None,
) -> Iterator[AnswerStep]:
    """Yield what is said and done to answer; a set `cancel` ends it.  provider: default the configured one.

    Text comes printed.  An answer ends with AnswerText, its template with the values, and Final, its plain text; where
    the model fails, or nothing of its answer can be resolved, with a Stopped that says why.
    """
    provider = provider or endpoint.provider(AGENT)
    if provider is None:
        yield Stopped("fault", NO_MODEL)
        return
    bench = bench.under(ask.facts, ask.constraints)
    messages: list[Message] = [SystemMessage(prompt(AGENT))]
    messages += [UserMessage(t.text) if t.role == "user" else AssistantMessage(t.text) for t in ask.earlier]
    messages.append(UserMessage(ask.text))
    tools = toolbox(bench, AGENT)
    seen_messages, seen = yield from look(tools)
    messages += seen_messages
    words = [*(turn.text for turn in ask.earlier), ask.text]  # numbers of earlier answers were printed by code

    def sources(results: Sequence[ToolReturned]) -> Sources:
        return Sources.of((*seen, *results), words)

    def check(text: str, results: tuple[ToolReturned, ...]) -> list[str]:
        if len(text) > LONGEST_ANSWER:
            return [f"The answer has {len(text):,} characters, and may have {LONGEST_ANSWER:,}; answer more briefly."]
        return sources(results).complaints(text)

    limits = endpoint.limits()
    known = {item.result_id: item.result for item in seen}
    outcome = yield from _printed(
        run(provider, messages, tools=tools, check=check, limits=limits, cancel=cancel or Cancel(), clock=clock), known
    )
    template, stopped = outcome.answer, outcome.stopped
    found = sources(outcome.results)
    if template is None and stopped is not None and stopped.reason == "rejected":
        last = stopped.last_answer or ""
        template = found.mended(last)[0].strip() or None if len(last) <= LONGEST_ANSWER else None
    if template is None:
        return
    rendered = found.resolve(template)
    if stopped is not None:
        yield TextDelta(outcome.turns, rendered.plain)
    yield AnswerText(template, tuple(rendered.to_json()))
    yield outcome.final(rendered.plain, "model")
    yield from offers(template, outcome.results)


def _printed(
    steps: Generator[RunEvent, None, Outcome[str]], known: Mapping[str, object]
) -> Generator[AnswerStep, None, Outcome[str]]:
    """Pass on what happens, pieces of text printed as soon as their references are whole, without the loop's Final.

    known: results so far, by name.
    """
    results, pending, turn = dict(known), "", 0
    while True:
        try:
            event = next(steps)
        except StopIteration as end:
            outcome: Outcome[str] = end.value
            return outcome
        if isinstance(event, TextDelta):
            pending, turn = pending + event.text, event.turn
            cut = _open_brace(pending)
            if cut:
                yield TextDelta(turn, resolve(pending[:cut], results).plain)
                pending = pending[cut:]
            continue
        if pending and not isinstance(event, Retry | Complaint):
            yield TextDelta(turn, resolve(pending, results).plain)
        pending = ""
        if isinstance(event, Final):
            continue
        yield event
        if isinstance(event, ToolReturned) and event.ok:
            results[event.result_id] = event.result
            if event.name == "hold":
                yield from _asked(event.result)


def _open_brace(text: str) -> int:
    """Return how much of a text can be printed: up to a brace that is not closed yet."""
    start = text.rfind("{")
    still_open = start >= 0 and "}" not in text[start:] and "\n" not in text[start:]
    return start if still_open and len(text) - start <= LONGEST_REFERENCE else len(text)


def _asked(card: Any) -> Iterator[ConstraintStated | FactStated]:
    """Yield what a person is asked to confirm by the result of `hold`; nothing is held before."""
    if "constraint" in card:
        yield ConstraintStated(card["constraint"], card["sentence"])
    for path, value in card.get("facts", {}).items():
        yield FactStated(path, value, card["sentence"])


def offers(template: str, results: Sequence[ToolReturned]) -> Iterator[MeshOffered]:
    """Yield configurations that were priced and the answer refers to, that can run and are no proposal yet."""
    found: dict[str, Any] = {item.result_id: item.result for item in results if item.name == "price"}
    priced = {name: (result or {}).get("configurations", ()) for name, result in found.items()}
    places = [(name, int(place)) for name, place in _ROW.findall(template)]
    referred = [priced[name][place] for name, place in places if place < len(priced.get(name, ()))]
    rows = {
        (row["mesh"], json.dumps(row.get("changes", {}), sort_keys=True)): row
        for row in referred
        if "step_time_s" in row and not ("violations" in row or "number" in row)
    }
    for row in list(rows.values())[:MOST_OFFERED]:
        yield MeshOffered(mesh_of(row["mesh"]), row.get("changes", {}), row["mesh"])
