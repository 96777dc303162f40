"""Computations of a thread: computed under what it holds, and kept in it as a question with its answer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from accounts.models import User
from agent.tools import ToolError
from dialogue import computations, content
from dialogue.computations import ComputedAnswer
from dialogue.models import Message, Thread
from dialogue.services import asking, holding
from dialogue.services.asking import DialogueError
from experiments.models import Experiment
from formatting.text import clean, clean_json
from perfmodel.config import ConfigError
from proposals.agents.retrieval import Unavailable
from proposals.agents.workbench import Workbench
from proposals.services import stored

#: `Message.provider` of a computed answer.
COMPUTED = "computed"


def bench_of(experiment: Experiment, user: User, thread: Thread | None = None) -> Workbench:
    """The workbench of an experiment under what a thread holds.  Raises DialogueError with the sentence why not."""
    try:
        bench = stored.workbench(experiment, user)
        if thread is None:
            return bench
        held = holding.held_by(thread)
        return bench.under(holding.facts_of(held), holding.constraints_of(held))
    except (Unavailable, ConfigError) as error:
        raise DialogueError(str(error)) from error


def compute(
    experiment: Experiment, user: User, key: str, given: Mapping[str, Any], thread: Thread | None = None
) -> ComputedAnswer:
    """Compute an answer and store nothing.  Raises DialogueError with the sentence why there is none."""
    bench = bench_of(experiment, user, thread)
    try:
        return computations.run(bench, key, given)
    except ToolError as error:
        raise DialogueError(str(error)) from error


def keep(thread: Thread, user: User, key: str, given: Mapping[str, Any]) -> Message:
    """Compute an answer and keep it in the thread; returns the answer."""
    began = time.monotonic()
    answered = compute(thread.experiment, user, key, given, thread)
    seconds = round(time.monotonic() - began, 4)
    event = {"computation": key, "arguments": clean_json(dict(answered.arguments))}
    question = asking.store_question(thread, user, answered.title, event)
    return Message.objects.create(
        thread=thread, role=Message.Role.ASSISTANT, question=question, status=Message.Status.DONE, provider=COMPUTED,
        text=clean(answered.rendered.plain), content=clean_json(content.of_computed(answered)),
        first_text_s=seconds, finished_at=timezone.now(),
    )  # fmt: skip
