"""What needs no numbers: greetings, help, what only a person may do, what was not understood."""

from __future__ import annotations

import re

from perfmodel.chips import load_chips
from proposals.agents.conversation import Question
from proposals.agents.reasoner import meaning, words
from proposals.agents.reasoner.answers import common
from proposals.agents.reasoner.desk import Answer, Desk
from proposals.agents.reasoner.intents import CHIP
from proposals.agents.reasoner.understand import Asked

CAN = (
    "recommend a proposal first, and say how sure I am and why",
    "weigh the others against it, or a mesh of your own, by axes or as MaxText flags",
    "price a change: another batch, sequence length, remat policy, weight sharding or number of micro-batches",
    "say why a mesh or a size of an axis is not proposed, with rules, memory and time",
    "say why the step is slow, and explain an op",
    "find past runs that are like this, and passages of the knowledge base",
    "hold what you tell me (*keep the batch*, *memory is tight*, *the model is …*) and rank again",
)


def greeting(desk: Desk, asked: Asked) -> Answer:
    found = yield from desk.look("bottleneck")
    primary = found.data.get("primary", "unknown")
    limit = f"limited by {primary}" if primary != "unknown" else "without a clear bottleneck"
    yield from desk.say(
        f"Hello. This run is {limit}, says its diagnosis; ask me which proposal to start with, or hold one "
        f"of your own against it."
    )


def helping(desk: Desk, asked: Asked) -> Answer:
    yield from desk.say(
        "I am the built-in reasoner: no language model, but rules, and a small model of what sentences mean, that read "
        "your question and compute the answer with the same tools that a model would use. What I say comes from this "
        "run's profile, the performance model, the records and the knowledge base. I can:"
    )
    yield from desk.bullets(list(CAN))
    yield from desk.say("Approving, rejecting and launching are yours, on the page; I have no tool for them.")


def thanks(desk: Desk, asked: Asked) -> Answer:
    yield from desk.say(
        "You are welcome. When a proposal was run, upload its profile on its card; then prediction and measurement "
        "stand beside each other."
    )


def bye(desk: Desk, asked: Asked) -> Answer:
    yield from desk.say("Until then; what you told me here stays with this thread.")


def yes(desk: Desk, asked: Asked) -> Answer:
    yield from desk.say(
        "To what? I act on whole sentences: name the fact, the mesh or the proposal that you mean, such as "
        "*the global batch is 256* or *compare proposal 1 and 2*."
    )


def no(desk: Desk, asked: Asked) -> Answer:
    yield from desk.say(
        "Then all stays as it is. If it is the recommendation that does not suit you, name what speaks against it: a "
        "fact, a constraint, or a mesh of your own."
    )


def pardon(desk: Desk) -> Answer:
    """To what asks nothing by itself."""
    yield from desk.say("Go on: what would you like to know? Say *why?* to hear more of what was said last.")


def chip(desk: Desk, asked: Asked) -> Answer:
    """Another chip than the configuration names."""
    found = yield from desk.look("run")
    known = load_chips()
    said = {re.sub(r"\s", "", word) for word in re.findall(CHIP, asked.text)}
    new = sorted(name for name in said if not any(name in each for each in known))
    yield from desk.say(
        f"The configuration says {found.data['configuration']['hardware']['chip']}, and all is priced for that chip. "
        "Another is set on the configuration page of the experiment; diagnosis and proposals are then made anew.",
        f"Chips that are known: {words.listed([f'`{name}`' for name in known])}.",
        f"{words.listed(new)} is none of them." if new else "",
    )


def act(desk: Desk, asked: Asked) -> Answer:
    which = f"proposal {asked.proposals.numbers[0]}" if asked.proposals.numbers else "a proposal"
    yield from desk.say(
        (
            f"I can not do that, whoever asks: {which} is approved or rejected only by a reviewer, with the "
            f"buttons on its card, and nothing is launched from here."
        ),
        (
            "I have no tool that could. What I can give is what a decision needs: its numbers, its risks, and "
            "its launch files as text."
        ),
    )


def injection(desk: Desk, asked: Asked) -> Answer:
    yield from desk.say(
        (
            "That changes nothing: what I may do is fixed by the tools I have, not by what a message says, and "
            "none of them approves, launches or writes."
        ),
        "My numbers come from the same computations whatever I am asked to say.",
    )


def chips(desk: Desk, asked: Asked) -> Answer:
    found = yield from desk.look("run")
    data = found.data
    yield from desk.say(
        (
            f"I price meshes over the {data['chips']:,} chips that ran "
            f"({data['configuration']['hardware']['chip']}), now {words.mesh(data)}."
        ),
        "Say “at most” and a smaller number, and I propose anew for the largest part of the machine of that size.",
        (
            "More chips, or another chip, is another machine that this profile was not taken on: make an experiment "
            "with it; if it has been profiled, compare the two runs side by side."
        ),
    )


def add(desk: Desk, asked: Asked) -> Answer:
    meant = yield from common.configurations(desk, asked)
    if meant.problem:
        yield from desk.say(meant.problem)
        return
    if not (asked.mesh or asked.changes or desk.focus.mesh or desk.focus.changes):
        yield from desk.say(
            "Name the mesh or the change first; I price it, and where it may run you can add it as a "
            "proposal with the button below the answer."
        )
        return
    yield from desk.say("I check it first.")
    row = yield from common.predicted(desk, meant.configurations[0])
    if isinstance(row, str):
        yield from desk.say(row)
        return
    if row.get("violations"):
        yield from desk.say("It can not run, so I do not offer it:", *words.violations(row))
        return
    if row.get("stands_as_proposal"):
        yield from desk.say(f"It stands already, as proposal {row['stands_as_proposal']}.")
        return
    yield from desk.say(
        f"{words.configuration(row)} may run, predicted at {words.speed(row)}. Adding it is one press of "
        f"the button below: that is yours to do, not mine."
    )
    yield from common.offered(row)


#: Of each intent: what a question is about, after “I read this as asking”; and a question that the rules read so, empty
#: where one without a name or a number would ask nothing.
_ASKS = {
    "recommend": ("which proposal to take", "Which do you recommend first?"),
    "confidence": ("how sure I am", "How sure are you?"),
    "prefer": ("whether another is better", "Is proposal 2 better?"),
    "hold": ("whether I stand by it", "Do you still hold to it?"),
    "pressure": ("whether I stand by it", ""),
    "why_not": ("why not that", ""),
    "compare": ("for a comparison", "How do the proposals compare?"),
    "memory": ("about memory", "Does it fit in memory?"),
    "change_mind": ("what would change my mind", "What would change your mind?"),
    "measure": ("what to measure or tell next", "What should I measure next?"),
    "explain": ("what a proposal changes", "Explain the first proposal."),
    "risks": ("what could go wrong", "What could go wrong?"),
    "launch": ("how to launch it", "How do I launch it?"),
    "list": ("for an overview", "Give me a summary."),
    "rejected": ("what was ruled out", "What was rejected?"),
    "search": ("for other candidates", "Which other meshes are there?"),
    "why_slow": ("why the step is slow", "Why is this step slow?"),
    "ops": ("which ops take the time", "What are the top ops?"),
    "communication": ("about communication", "How much of the step is communication?"),
    "figures": ("for the measured figures", "What are the measured figures?"),
    "improve": ("what could be improved", "How can I make it faster?"),
    "run": ("what ran", "What ran?"),
    "similar": ("for similar runs", "Which past runs are like this?"),
    "knowledge": ("about a principle", ""),
    "accuracy": ("how good the predictions are", "How accurate are your predictions?"),
    "held": ("what this conversation holds", "What constraints do you hold?"),
    "add": ("to add it as a proposal", ""),
    "chips": ("about other chips", "What about more chips?"),
    "act": ("me to act", ""),
    "help": ("what I can do", "What can you do?"),
}


def guessed(desk: Desk, asked: Asked) -> Answer:
    """Says how a question was read that no rule fitted."""
    yield from desk.say(f"*I read this as asking {_ASKS[asked.intent][0]}.*")


def unclear(desk: Desk, parts: tuple[str, ...], answered: bool) -> Answer:
    quoted = words.listed([f"“{part[:120]}{'…' if len(part) > 120 else ''}”" for part in parts])
    also = "There is a part that" if answered else "That"
    yield from desk.say(
        f"{also} I did not understand: {quoted}. I have no language model, only questions about this run "
        f"that I know how to compute; I would rather say so than guess."
    )
    perhaps = tuple(question for intent in meaning.perhaps(parts[0]) if (question := _ASKS[intent][1]))
    if perhaps:
        yield from desk.say(f"Did you mean {words.listed([f'“{question}”' for question in perhaps], 'or')}")
        yield Question("Did you mean one of these?", perhaps)
    elif not answered:
        yield from desk.say("I can, for example:")
        yield from desk.bullets(list(CAN[:5]))
