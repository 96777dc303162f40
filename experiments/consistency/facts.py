"""Facts and contradictions as values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.consistency.groups import Pattern

#: How sure a fact is.  `stated`: the profile says it; `computed`: follows from shapes and counts; `likely`: follows if
#: the program is written as usual.
SURE = ("stated", "computed", "likely")


@dataclass(frozen=True)
class Fact:
    """One thing that the profile tells.

    value: plain JSON; text: it in words; evidence: sentences with op and shape.
    """

    value: Any
    text: str
    evidence: tuple[str, ...]
    sure: str = "computed"

    @property
    def because(self) -> str:
        return " ".join(self.evidence)


@dataclass(frozen=True)
class Facts:
    """What a profile tells of its configuration, by name; `unavailable`: why something is unavailable.

    Names: `chip` (key), `kind` (device type), `framework` (family: `jax` or `pytorch`), `devices` (of the whole
    program), `recorded` (devices in the profile), `seq_len_per_device`, `kv_len` (keys and values that attention
    reads), `batch_per_device` (sequences), `tokens_per_device`, `d_model`, `d_ff_per_device`, `heads_per_device`,
    `kv_heads_per_device`, `head_dim`, `vocab_per_device`, `layers`, `remat`, `precision`, `mesh` (a
    mesh that gives all groups).
    patterns: groups of devices that communicate, with their share of the collectives' time.  unknown_groups: whether
    other collectives do not state theirs.  on_cpu: recorded on CPU devices, which stand for chips.
    """

    known: Mapping[str, Fact] = dataclasses.field(default_factory=dict)
    unavailable: Mapping[str, str] = dataclasses.field(default_factory=dict)
    patterns: tuple[Pattern, ...] = ()
    unknown_groups: bool = False
    on_cpu: bool = False

    def value(self, name: str) -> Any:
        fact = self.known.get(name)
        return None if fact is None else fact.value

    def __contains__(self, name: str) -> bool:
        return name in self.known


@dataclass(frozen=True)
class Contradiction:
    """A field of the configuration that the profile contradicts.

    field: its dotted path; configured, profile: both sides in words; sentence: what contradicts; evidence: on what it
    rests.  use: values by dotted path that settle it as the profile says, empty where the profile does not tell them.
    """

    field: str
    configured: str
    profile: str
    sentence: str
    evidence: tuple[str, ...]
    sure: str = "computed"
    use: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "evidence": list(self.evidence), "use": dict(self.use)}
