"""The log of a failed run of a proposal: read once, never kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from typing import Any, BinaryIO, cast

from django.core.files.base import File

from accounts.text import display_name
from experiments.services import uploads
from formatting import limit
from formatting.text import clean
from proposals.constraints import Constraints
from proposals.failures import Failure, read_failure
from proposals.models import Measurement, Proposal
from proposals.services import unmeasured
from proposals.services.measuring import MeasureError

#: Of all files of one report together.
MOST_BYTES = 100_000_000
MOST_FILES = 64


def learnt(made: Measurement, base: Constraints) -> Constraints:
    """Constraints with what a failure forbids; the same where it forbids nothing, or its reporter chose otherwise."""
    told = made.told
    if told.forbidden is None or told.failure != made.failure:
        return base
    more = Constraints.from_json(told.forbidden.constraints)
    return base.joined(replace(more, memory_margin=max(more.memory_margin, base.memory_margin)))


def analyse(proposal: Proposal, files: Sequence[File[Any]], text: str = "") -> Failure | None:
    """The cause in the logs, for the configuration that the proposal would run; None where there is no log.

    Raises MeasureError where there is too much of it.
    """
    most = min(MOST_BYTES, uploads.limit_bytes())
    if len(files) > MOST_FILES or sum(file.size or 0 for file in files) > most:
        raise MeasureError(
            f"Logs are limited to {MOST_FILES} files and {limit(most, 'bytes')} together; upload those of the ranks "
            "that failed first."
        )
    logs: list[tuple[str, BinaryIO]] = [(display_name(file.name or ""), cast(BinaryIO, file)) for file in files]
    if text.strip():
        logs.append(("", BytesIO(clean(text).encode("utf-8", "replace"))))
    return read_failure(logs, unmeasured.proposed(proposal)) if logs else None
