"""The table of signatures.toml as values: what programs print when they fail, and what it means."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

#: A cause by itself; what other ranks see of it; a launcher's report of how a process ended; its report that one did.
Stage = Literal["primary", "symptom", "echo", "notice"]
#: The same configuration fails again; something else has to be repaired first; it may go through.
Verdict = Literal["forbid", "fix", "retry"]

Pattern = Annotated[re.Pattern[str], BeforeValidator(re.compile)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class Signature(_Strict):
    """One message.  needles: lower-case pieces of which its line has one.  more: where further values stand, in the
    line and those below it.  confidence: that the line means the cause, 0 to 1.  source: where its text comes from."""

    name: str
    cause: str
    stage: Stage
    needles: tuple[str, ...]
    pattern: Pattern
    more: tuple[Pattern, ...] = ()
    confidence: Annotated[float, Field(ge=0, le=1)]
    source: Annotated[tuple[str, ...], Field(min_length=1)]


class Word(_Strict):
    """What a word of the message says of the axis: roles of the mesh, and keys of the configuration's training."""

    pattern: Pattern
    roles: tuple[str, ...]
    keys: tuple[str, ...]


class Cause(_Strict):
    """What is known of a cause.  history: as the team's history names it (`history.record.FAILURES`).  sentence: where
    the log states no values; {}: on which rank.  check: what to look at before the next start."""

    label: str
    history: str
    verdict: Verdict
    sentence: str
    check: tuple[str, ...]


class Table(_Strict):
    signature: tuple[Signature, ...]
    word: tuple[Word, ...]
    cause: Mapping[str, Cause]


@cache
def table() -> Table:
    return Table.model_validate(tomllib.loads(Path(__file__).with_name("signatures.toml").read_text("utf-8")))


@cache
def needles() -> Mapping[bytes, tuple[Signature, ...]]:
    """The signatures by the piece of text that their lines contain, in the order of the table."""
    by_needle: dict[bytes, tuple[Signature, ...]] = {}
    for signature in table().signature:
        for needle in signature.needles:
            by_needle[needle.encode()] = (*by_needle.get(needle.encode(), ()), signature)
    return by_needle
