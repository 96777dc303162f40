"""Tasks that are declared where they are sent and implemented in a layer above.

A service may not import the tasks module that calls it.  So it declares a task and sends it by that object; the tasks
module of a higher layer implements it with `@DECLARED.implementation()`, and no name is written twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from celery import current_app, shared_task
from kombu.exceptions import OperationalError

logger = logging.getLogger(__name__)

#: Its workers have threads, for what mostly waits for a language model, and keep the embedder's weights.
DIALOGUE_QUEUE = "dialogue"

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class DeclaredTask:
    """name: unique, as it appears in the broker and the workers' log.  queue: None is the default one."""

    name: str
    queue: str | None = None
    priority: int = 0  # Redis delivers lower numbers first, of 0, 3, 6 and 9

    def implementation(self, **options: Any) -> Callable[[F], F]:
        """Decorator of the function that does it; options as of Celery's `shared_task`."""
        register: Callable[[F], F] = shared_task(name=self.name, **options)
        return register

    def send(self, key: Any, after_s: float = 0.0) -> bool:
        """Hand it to the workers; False, with a line in the log, where the broker cannot be reached."""
        try:
            current_app.send_task(
                self.name, [key], queue=self.queue, priority=self.priority, countdown=after_s or None, retry=False
            )
        except (OperationalError, OSError):
            logger.warning("%s %s is not queued: the broker cannot be reached", self.name, key)
            return False
        return True
