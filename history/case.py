"""What a run or a record is known by when it is compared with others.  Knows no Django."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from math import log

import numpy as np

from history import moves, term_effects
from history.record import Record
from history.term_effects import TermEffects
from perfmodel.catalogue import load_catalogue
from perfmodel.chips import get_chip
from perfmodel.config import ExperimentConfig
from perfmodel.efficiency import EfficiencyTable

#: Time per token that grew or fell by more tells of a program that stalls, not of what was changed.
MOST_TELLING = 4.0


@dataclass(frozen=True)
class Case:
    """What a run or a record is known by; what is not known stays empty.

    move: what changes, by `moves.ROLES` and `moves.KEYS`; empty for a run without a proposal.  roles: sizes by role of
    the mesh (`fsdp` as data); settings: its policies by `moves.SETTINGS`.  batch: sequences per optimizer step;
    micro_batch: of these, what a batch shard works on at once; seq_len: tokens of each.  mixture: whether the model is
    one of experts.  flags: the XLA flags that change, as they become (`known_flags.changed`).  directed: False
    for a change that has no direction or changes nothing, and for a record that tells of a program that stalls.

    before, after: both sides as configurations, as far as they can be priced; mechanism: what the performance model has
    the change do, None where it cannot be priced or nothing changes.  gain: measured logarithm of the speed-up per
    token; failure: how the run after the change failed.
    """

    chip: str = ""
    chips: int | None = None
    model_name: str = ""
    model_family: str = ""
    parameters: float | None = None
    batch: float | None = None
    micro_batch: float | None = None
    seq_len: float | None = None
    bottleneck: str = ""
    move: Mapping[str, float] = field(default_factory=dict)
    roles: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    mixture: bool | None = None
    flags: frozenset[tuple[str, str]] = frozenset()
    directed: bool = True
    before: ExperimentConfig | None = None
    after: ExperimentConfig | None = None
    mechanism: TermEffects | None = None
    gain: float | None = None
    failure: str = ""

    @property
    def family(self) -> str:
        return self.model_family or family_of(self.model_name)

    @property
    def tokens_per_chip(self) -> float | None:
        return self.batch * self.seq_len / self.chips if self.batch and self.seq_len and self.chips else None

    @property
    def size_per_chip(self) -> float | None:
        return self.parameters / self.chips if self.parameters and self.chips else None


def case_of(record: Record) -> Case:
    """What a record is known by."""
    return cases_of([record])[0]


def cases_of(records: Sequence[Record], table: EfficiencyTable | None = None) -> list[Case]:
    """The same of many, priced together, which is quicker.  table: default the shipped efficiencies."""
    cases = [_case_of(record) for record in records]
    places = [
        n for n, case in enumerate(cases)
        if case.before is not None and case.after is not None and set(case.move) != {"xla_flags"}  # no term has flags
    ]  # fmt: skip
    priced = term_effects.price([(cases[n].before, cases[n].after) for n in places], table)  # type: ignore[misc]
    for n, one in zip(places, priced, strict=True):
        if one is not None and bool(np.isfinite(one.terms).all() and np.isfinite(one.memory).all()):
            cases[n] = replace(cases[n], mechanism=one)
    return cases


def _case_of(record: Record) -> Case:
    moved = moves.change(record)
    stalls = record.speedup is not None and not 1.0 / MOST_TELLING <= record.speedup <= MOST_TELLING
    directed = moved is not None and not stalls
    sides = term_effects.sides(record) if directed else None
    return Case(
        chip=record.chip,
        chips=record.chips,
        model_name=record.model_name,
        model_family=record.model_family,
        parameters=record.parameters,
        batch=moves.number(record.before.training.get("global_batch")),
        micro_batch=moves.micro_batch(record.before),
        seq_len=moves.number(record.before.training.get("seq_len")),
        bottleneck=record.bottleneck,
        move=moved or {},
        roles=moves.role_sizes(record.before, fsdp_as_data=True),
        settings=moves.settings(record.before.training),
        mixture=_mixture(record),
        flags=moves.flags(record.before, record.after, record.chip) if "xla_flags" in record.changes else frozenset(),
        directed=directed,
        before=sides[0] if sides else None,
        after=sides[1] if sides else None,
        gain=log(record.speedup) if record.speedup else None,
        failure=record.failure,
    )


def _mixture(record: Record) -> bool | None:
    """By its mesh, the catalogue or the name; None where no model is named."""
    if moves.role_sizes(record.before).get("expert", 1) > 1:
        return True
    name = record.model_name.lower()
    entry = load_catalogue().get(name)
    if entry is not None:
        return entry.shape.experts > 0
    return bool(_EXPERTS.search(name)) if name else None


#: Names of models of experts that the catalogue does not have.
_EXPERTS = re.compile(r"moe|\dx\d+b|-a\d+b|deepseek|mixtral|kimi|gpt-oss|expert")


@cache
def hardware_kind(chip: str) -> str:
    """`tpu` or `gpu`; empty where the chip is not known."""
    try:
        return get_chip(chip).kind if chip else ""
    except KeyError:
        return ""


@lru_cache(4096)
def family_of(model_name: str) -> str:
    """The family that a model's name begins with: `llama` of `llama3.1-8b`; empty where it begins otherwise."""
    match = re.match(r"[a-z]+(?:-oss)?", model_name.strip().lower().rsplit("/", 1)[-1])
    return match[0] if match and len(match[0]) > 2 else ""
