"""Constraints and facts stated in a thread, one row for each, visible and removable."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

from django.db import transaction
from django.utils import timezone

from accounts.models import User
from dialogue.models import Held, Message, Thread
from dialogue.services.asking import DialogueError
from experiments.services import events
from formatting.text import clean, clean_json
from perfmodel.config import ExperimentConfig
from proposals import facts
from proposals.agents.conversation import ConstraintStated, FactStated, read_effects
from proposals.agents.settings import parse
from proposals.constraints import Constraints

#: The constraint that keeps a training key as it is.
KEEPING = {
    "global_batch": "keep_batch", "remat": "keep_remat", "weight_sharding": "keep_weight_sharding",
    "grad_accum": "keep_micro_batches",
}  # fmt: skip


def held_by(thread: Thread) -> list[Held]:
    """Constraints and facts of the thread, oldest first."""
    return list(
        thread.held.filter(removed_at=None).select_related("held_by", "message__question__author").order_by("pk")
    )


def constraints_of(held: Iterable[Held]) -> Constraints:
    """All held constraints as one value.  Raises ConfigError where a stored one is none any more."""
    each = (
        Constraints.from_json({item.key.partition(".")[0]: item.value})
        for item in held
        if item.kind == Held.Kind.CONSTRAINT
    )
    return reduce(Constraints.joined, each, Constraints())


def facts_of(held: Iterable[Held]) -> dict[str, Any]:
    """All held facts by configuration path."""
    return {item.key: item.value for item in held if item.kind == Held.Kind.FACT}


def answer_card(answer: Message, index: int, user: User, is_held: bool) -> None:
    """Hold what an answer asks to hold, or dismiss it; once.  Raises DialogueError where it asks for no such thing."""
    with transaction.atomic():
        events.lock(answer.thread.experiment_id)
        answer = Message.objects.select_for_update(of=("self",)).select_related("thread").get(pk=answer.pk)
        effect = read_effects(answer.effects).get(index)
        if not isinstance(effect, ConstraintStated | FactStated) or answer.effects[index].get("decided"):
            raise DialogueError("This was decided before, or the answer asks to hold no such thing.")
        effects = [dict(item) for item in answer.effects]
        effects[index]["decided"] = "held" if is_held else "dismissed"
        Message.objects.filter(pk=answer.pk).update(effects=effects)
        if is_held:
            hold(answer.thread, user, effect, answer)


def hold_typed(thread: Thread, user: User, text: str, config: ExperimentConfig) -> None:
    """Hold what a form states, as `parse` reads it: sizes of axes, and training keys as they are now.

    A key is held by the constraint that keeps it (`keep_batch`, `keep_remat` …); its value must be the current one, or
    unknown, then it becomes a fact.  Raises DialogueError for what cannot be held.
    """
    stated: list[ConstraintStated | FactStated] = []
    settings = parse(text, config)
    if settings.rest:
        raise DialogueError(f"{' '.join(settings.rest)[:80]!r} is neither an axis nor a training key with its value.")
    for axis, size in settings.ici.items():
        stated.append(ConstraintStated({"fixed": {axis: size}}, f"{axis} stays {size}"))
    for key, value in settings.changes.items():
        now, words = getattr(config.training, key, None), facts.setting(key)
        if now is None:
            stated.append(FactStated(f"training.{key}", value, f"{words} is {value}"))
        elif key not in KEEPING:
            raise DialogueError(
                f"{words.capitalize()} cannot be held; an axis, the batch, remat or weight sharding can."
            )
        elif value != now:
            raise DialogueError(f"{words.capitalize()} is {now} in this run; change the configuration to hold {value}.")
        else:
            stated.append(ConstraintStated({KEEPING[key]: True}, f"{words} stays {value}"))
    if not stated:
        raise DialogueError("Type what to hold, such as batch 128 or tp=4.")
    with transaction.atomic():
        events.lock(thread.experiment_id)
        for item in stated:
            hold(thread, user, item)


def hold(thread: Thread, user: User, stated: ConstraintStated | FactStated, answer: Message | None = None) -> None:
    """Hold what a person confirmed, in the place of what said otherwise of the same thing."""
    event: dict[str, Any] = {"thread": thread.pk, "holds": stated.sentence}
    events.append(thread.experiment_id, "message", "user", user=user, data=event)
    if isinstance(stated, FactStated):
        _drop(thread, user, Held.Kind.FACT, [stated.path])
        if stated.value is not None:
            _add(thread, user, answer, Held.Kind.FACT, stated.path, stated.value, stated.sentence)
        return
    parts = list(Constraints.from_json(stated.constraint).parts())
    for name, part in parts:  # each by itself, so that one axis can be taken back without the others
        (field, value), sentence = next(iter(part.to_json().items())), " ".join(part.describe())
        key = field if field == "excluded" else name
        _drop(thread, user, Held.Kind.CONSTRAINT, [key], value if key == "excluded" else None)
        _add(thread, user, answer, Held.Kind.CONSTRAINT, key, value, sentence if len(parts) > 1 else stated.sentence)


def release(held: Held, user: User) -> bool:
    """Remove a constraint or fact of the thread; False if it was removed before."""
    with transaction.atomic():
        events.lock(held.thread.experiment_id)
        if not Held.objects.filter(pk=held.pk, removed_at=None).update(removed_at=timezone.now(), removed_by=user):
            return False
        event = {"thread": held.thread_id, "released": held.key, "sentence": held.sentence}
        events.append(held.thread.experiment_id, "message", "user", user=user, data=event)
        return True


def _add(thread: Thread, user: User, answer: Message | None, kind: str, key: str, value: Any, sentence: str) -> None:
    Held.objects.create(
        thread=thread, kind=kind, key=clean(key)[:100], value=clean_json(value), sentence=clean(sentence)[:300],
        message=answer, held_by=user,
    )  # fmt: skip


def _drop(thread: Thread, user: User, kind: str, keys: Iterable[str], value: Any = None) -> None:
    """Remove what is held under these keys, or under a part of them; with a value only what has it."""
    names = tuple(keys)
    for item in Held.objects.filter(thread=thread, kind=kind, removed_at=None):
        named = item.key in names or (kind == Held.Kind.CONSTRAINT and item.key.partition(".")[0] in names)
        if named and (value is None or item.value == value):
            Held.objects.filter(pk=item.pk, removed_at=None).update(removed_at=timezone.now(), removed_by=user)
