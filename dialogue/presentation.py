"""A thread as its panel shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.safestring import SafeString

from accounts.models import Membership, Role, User
from agent.strict_json import loads
from dialogue import content
from dialogue.computations import in_short
from dialogue.content import Block, Question
from dialogue.links import link_of
from dialogue.models import Held, Message, Thread
from dialogue.services import asking, holding
from dialogue.services.computing import COMPUTED
from dialogue.stream import Place, steps_done
from experiments.models import Experiment
from experiments.services import configuration, profiles
from formatting import limit, listed
from perfmodel.config import ConfigError
from proposals import facts
from proposals.agents import chat
from proposals.agents.conversation import ConstraintStated, FactStated, MeshOffered, read_effects
from proposals.agents.markdown import to_html
from proposals.candidate import is_same
from proposals.constraints import RULE, Constraints
from proposals.models import PlanRecord
from proposals.services import context, plans

#: Characters of a tool's arguments beside its name.
SHOWN_ARGUMENTS = 60


@dataclass(frozen=True)
class Row:
    """A message as it is shown.

    blocks: of an answer that has ended; further: the questions below it.  steps: its tool calls as stored, with
    `anchor` and `given`, their arguments in words.  offers: meshes that it offers; cards: what it asks
    to hold; both with their `index` among the effects.  after: where its stream goes on.
    """

    message: Message
    blocks: Sequence[Block]
    further: Sequence[Question]
    steps: Sequence[Mapping[str, Any]]
    offers: Sequence[Mapping[str, Any]]
    cards: Sequence[Mapping[str, Any]]
    seconds: float | None
    after: str
    by: str
    is_last: bool

    @property
    def is_open(self) -> bool:
        return self.message.status in asking.OPEN


def row(message: Message, plan: PlanRecord | None = None, is_last: bool = False) -> Row:
    """One message.  plan: the newest, whose proposals an offered mesh may be."""
    experiment, effects = message.thread.experiment, read_effects(message.effects)
    ended = message.role == Message.Role.ASSISTANT and message.status not in asking.OPEN
    took = (message.finished_at - message.created_at).total_seconds() if message.finished_at else None
    done = steps_done(message.steps)
    place = Place(message.revision, len(message.text), len(message.steps), done, len(message.effects))
    return Row(
        message,
        _blocks(message, experiment) if ended else (),
        content.further(message.content, experiment) if ended and message.content and is_last else (),
        [
            {**step, "anchor": f"step-{message.pk}-{number}", "given": given(step["arguments"])}
            for number, step in enumerate(message.steps, start=1)
        ],
        [_offer(index, effect, plan) for index, effect in effects.items() if isinstance(effect, MeshOffered)],
        [
            {
                "index": index, "sentence": effect.sentence, "consequence": _consequence(effect, plan),
                "decided": message.effects[index].get("decided", ""),
            }
            for index, effect in effects.items()
            if isinstance(effect, ConstraintStated | FactStated) and message.content is not None
        ],
        took,
        str(place),
        _BY.get(message.provider, message.provider),
        is_last,
    )  # fmt: skip


#: Who answered, where it was no model.
_BY = {COMPUTED: "Computed", "built-in": "Without a language model", "": "Without a language model"}


def _blocks(message: Message, experiment: Experiment) -> list[Block]:
    """The parts of an answer; that of an earlier version is its text."""
    if message.content:
        return content.blocks(message.content, experiment)
    return [Block(html=SafeString(to_html([message.text], link_of(experiment))))]


def _consequence(effect: ConstraintStated | FactStated, plan: PlanRecord | None) -> str:
    """Which proposals a constraint would exclude; that a fact counts in later answers."""
    if isinstance(effect, FactStated):
        return "Later answers of this conversation count with it."
    if plan is None:
        return "Every later answer keeps it."
    try:
        pricer, wanted = context.pricer(plan), Constraints.from_json(effect.constraint)
        broken = {item.rank: pricer.evaluate(item.value, wanted).violations for item in plan.proposals.all()}
    except (ConfigError, profiles.NotIngested):
        return "Every later answer keeps it."
    gone = [rank for rank, rules in broken.items() if any(each.rule.startswith(RULE) for each in rules)]
    if not gone:
        return "No proposal breaks it; every later answer keeps it."
    names = f"Proposal {gone[0]}" if len(gone) == 1 else f"Proposals {listed([str(rank) for rank in gone])}"
    return f"{names} would go; every later answer keeps it."


def given(arguments: str) -> str:
    """A tool's arguments in a few words: `data 16 · seq 2 · remat full`."""
    try:
        data = loads(arguments)
    except ValueError:
        data = arguments
    text = in_short(data) if isinstance(data, dict) else arguments
    return text if len(text) <= SHOWN_ARGUMENTS else text[: SHOWN_ARGUMENTS - 1].rstrip() + "…"


def _offer(index: int, offered: MeshOffered, plan: PlanRecord | None) -> dict[str, Any]:
    """The offer, with the proposal that it is, if any."""
    same = None
    config = configuration.check(plan.priced_with).config if plan is not None else None
    if plan is not None and config is not None:
        same = next((item for item in plan.proposals.all() if is_same(config, item.value, offered)), None)
    return {"index": index, "mesh": offered.mesh, "changes": offered.changes, "proposal": same}


@dataclass(frozen=True)
class Chip:
    """Something that is held, in words; `who` said it."""

    held: Held
    text: str
    who: str


def chip(held: Held) -> Chip:
    question = held.message.question if held.message is not None else None
    author = held.held_by or (question.author if question is not None else None)
    return Chip(held, _held_words(held), name_of(author))


def _held_words(held: Held) -> str:
    if held.kind == Held.Kind.CONSTRAINT:
        try:
            said = Constraints.from_json({held.key.partition(".")[0]: held.value}).describe()
        except ConfigError:
            said = ()
        return " ".join(said).rstrip(".") or held.sentence or held.key
    name = facts.setting(held.key.rpartition(".")[2])
    if held.key == "model.name":
        name = "model"
    if held.key.endswith("_bytes") and isinstance(held.value, int | float):
        return f"{name.removesuffix(' bytes').upper()} {limit(held.value, 'bytes', 6)}"
    is_count = isinstance(held.value, int) and held.value is not True
    return f"{name} {held.value:,}" if is_count else f"{name} {held.value}"


def name_of(user: User | None) -> str:
    return (user.get_full_name() or user.get_username()) if user is not None else "a former user"


def state_of(thread: Thread | None) -> str:
    """Changes whenever the thread has news for somebody who does not write in it."""
    if thread is None:
        return "new"
    last = thread.messages.order_by("-pk").values_list("pk", "status").first() or (0, "")
    status = "open" if last[1] in asking.OPEN else last[1]
    held = "-".join(str(pk) for pk in thread.held.filter(removed_at=None).order_by("pk").values_list("pk", flat=True))
    return f"{thread.pk}.{last[0]}.{status}.{held}"


def panel(experiment: Experiment, membership: Membership, thread: Thread | None, full: bool = False) -> dict[str, Any]:
    """What the panel needs.  thread: None for a new one; full: on a page of its own."""
    plan = plans.newest(experiment)
    of = thread.messages if thread is not None else Message.objects.none()
    stored = list(of.select_related("author", "thread__experiment").order_by("pk"))
    rows = [row(message, plan, message is stored[-1]) for message in stored]
    held = [chip(item) for item in holding.held_by(thread)] if thread is not None else []
    return {
        "experiment": experiment,
        "membership": membership,
        "plan": plan,
        "thread": thread,
        "threads": list(asking.used(experiment).select_related("created_by").distinct()),
        "rows": rows,
        "held": held,
        "facts": [item for item in held if item.held.kind == Held.Kind.FACT],
        "may_propose": membership.may(Role.ENGINEER) and can_propose(held, plan),
        "may_delete": thread is not None and asking.may_delete(thread, membership),
        "state": state_of(thread),
        "is_writing": bool(rows) and rows[-1].is_open,
        "model": chat.provider_name(),
        "full": full,
        "most": asking.MOST_CHARACTERS,
    }


def can_propose(held: Sequence[Chip], plan: PlanRecord | None) -> bool:
    """Whether proposals within what is held would be others than the newest ones."""
    if plan is None:
        return False
    try:
        wanted = holding.constraints_of(item.held for item in held)
        stands = plan.asked
    except ConfigError:
        return False
    return bool(wanted) and stands.joined(wanted) != stands
