"""Constraints and facts stated in a thread, one row for each, visible and removable."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

from django.db import transaction
from django.utils import timezone

from accounts.models import User
from dialogue.models import Held, Message, Thread
from experiments.services import events
from experiments.services.text import clean, clean_json
from proposals.agents.conversation import ConstraintStated, FactStated
from proposals.constraints import Constraints


def held_by(thread: Thread) -> list[Held]:
    """Constraints and facts of the thread, oldest first."""
    return list(thread.held.filter(removed_at=None).select_related("message__question__author").order_by("pk"))


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


def hold(answer: Message, told: ConstraintStated | FactStated) -> None:
    """Take up what an answer understood, in the place of what said otherwise of the same thing."""
    if isinstance(told, FactStated):
        _drop(answer, Held.Kind.FACT, [told.path])
        if told.value is not None:
            _add(answer, Held.Kind.FACT, told.path, told.value, told.sentence)
        return
    _drop(answer, Held.Kind.CONSTRAINT, told.dropped)
    _drop(answer, Held.Kind.FACT, told.dropped)
    parts = list(Constraints.from_json(told.constraint).parts())
    for name, part in parts:  # each by itself, so that one axis can be taken back without the others
        (field, value), sentence = next(iter(part.to_json().items())), " ".join(part.describe())
        key = field if field == "excluded" else name
        _drop(answer, Held.Kind.CONSTRAINT, [key], value if key == "excluded" else None)
        _add(answer, Held.Kind.CONSTRAINT, key, value, sentence if len(parts) > 1 else told.sentence)


def forget(answer: Message) -> None:
    """What an attempt that died had taken up; the next one hears it again."""
    Held.objects.filter(message=answer).delete()


def release(held: Held, user: User) -> bool:
    """Remove a constraint or fact of the thread; False if it was removed before."""
    with transaction.atomic():
        events.lock(held.thread.experiment_id)
        if not Held.objects.filter(pk=held.pk, removed_at=None).update(removed_at=timezone.now(), removed_by=user):
            return False
        event = {"thread": held.thread_id, "released": held.key, "sentence": held.sentence}
        events.append(held.thread.experiment_id, "message", "user", user=user, data=event)
        return True


def _add(answer: Message, kind: str, key: str, value: Any, sentence: str) -> None:
    Held.objects.create(
        thread_id=answer.thread_id, kind=kind, key=clean(key)[:100], value=clean_json(value),
        sentence=clean(sentence)[:300], message=answer,
    )  # fmt: skip


def _drop(answer: Message, kind: str, keys: Iterable[str], value: Any = None) -> None:
    """What is held under these keys, or under a part of them; with a value only what has it."""
    names = tuple(keys)
    for item in Held.objects.filter(thread_id=answer.thread_id, kind=kind, removed_at=None):
        named = item.key in names or (kind == Held.Kind.CONSTRAINT and item.key.partition(".")[0] in names)
        if named and (value is None or item.value == value):
            Held.objects.filter(pk=item.pk, removed_at=None).update(removed_at=timezone.now())
