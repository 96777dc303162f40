"""Execution profiles: how a kind of program runs a training step (execution.toml) and what it allocates
(memory_profiles.toml and, fitted, memory_fit.toml).

`software.framework` names the profile; without one it is what most programs on that kind of chip are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from perfmodel.arrays import Floats
from perfmodel.reading import EXACT, read_rows, shipped

#: Profile where `software.framework` says nothing, by kind of chip.
DEFAULT = {"tpu": "xla", "gpu": "megatron-core"}
#: Profile of a framework that no profile names, by kind of chip.
UNKNOWN = {"tpu": "xla", "gpu": "fsdp"}


@dataclass(frozen=True)
class Lack:
    """What frameworks named so (all of the profile where none is), or releases until a year, do not have."""

    __pydantic_config__ = EXACT

    source: str
    frameworks: tuple[str, ...] = ()
    until: float | None = None
    axes: tuple[str, ...] = ()
    remats: tuple[str, ...] = ()
    shardings: tuple[str, ...] = ()

    def applies(self, framework: str, year: float | None) -> bool:
        is_named = not self.frameworks or any(part in framework.lower() for part in self.frameworks)
        return is_named and (self.until is None or (year is not None and year < self.until))


@dataclass(frozen=True)
class ExecutionProfile:
    """What a program does by design.

    family: profiles whose fitted numbers are alike.  gradient_bytes: per gradient that crosses links;
    gradient_sum_bytes: per gradient added up over micro-batches.  fused_attention_since: year of software before which
    attention scores pass through HBM, inf where they always do.  sequence_parallel: whether a tensor axis also shards
    what is as wide as the model, where the configuration does not say.  balanced_stages: whether layers and head are
    spread over pipeline stages by their work.  stalls_when_full: whether a pipeline stalls at every micro-batch where
    the memory is nearly full, as the allocator gives back and asks again.  interleaves, axes, remats, shardings, lacks:
    what it has, and frameworks, measured, even_shards, worst_case_experts: see execution.toml.
    """

    __pydantic_config__ = EXACT

    name: str
    title: str
    family: str
    frameworks: tuple[str, ...]
    measured: tuple[str, ...]
    gradient_bytes: float
    gradient_sum_bytes: float
    fused_attention_since: float
    sequence_parallel: bool
    balanced_stages: bool
    stalls_when_full: bool
    even_shards: bool
    worst_case_experts: tuple[str, ...]
    interleaves: bool
    axes: tuple[str, ...]
    remats: tuple[str, ...]
    shardings: tuple[str, ...]
    source: str
    lacks: tuple[Lack, ...] = ()

    def has_measured(self, framework: str) -> bool:
        """Whether the fit has seen runs of this framework; the profile's own name stands for those it has."""
        text = framework.lower()
        return text == self.name or any(part in text for part in self.measured)


@cache
def load_profiles() -> dict[str, ExecutionProfile]:
    """All profiles by name."""
    rows = shipped("execution.toml")
    return read_rows(ExecutionProfile, {name: {"name": name, **row} for name, row in rows.items()})


def profile_named(framework: str | None, kind: str, year: float | None = None) -> ExecutionProfile:
    """Profile of a framework's name on a kind of chip, `tpu` or `gpu`, with what its release of a year has."""
    profiles = load_profiles()
    if not framework:
        return profiles[DEFAULT[kind]]
    return _without(profiles[_name(framework) or UNKNOWN[kind]], framework, year)


def _without(profile: ExecutionProfile, framework: str, year: float | None) -> ExecutionProfile:
    for lack in profile.lacks:
        if lack.applies(framework, year):
            profile = replace(
                profile,
                axes=tuple(name for name in profile.axes if name not in lack.axes),
                remats=tuple(name for name in profile.remats if name not in lack.remats),
                shardings=tuple(name for name in profile.shardings if name not in lack.shardings),
            )
    return profile


def compiled_by_xla(framework: str | None) -> bool:
    """Whether a framework takes XLA flags: not where its name is one of those that XLA does not compile."""
    return not framework or _name(framework) in (None, "xla")


def _name(framework: str) -> str | None:
    """The profile whose part of a framework's name is the longest; None where no profile names it."""
    text = framework.lower().replace("_", "-")
    parts = [
        (len(part), name) for name, profile in load_profiles().items() for part in profile.frameworks if part in text
    ]
    return max(parts)[1] if parts else None


FIT_FILE = Path(__file__).with_name("memory_fit.toml")

#: Spread of log(needed / capacity) of a program whose runs that ran out of memory nobody has published, until a fit
#: says it.
SPREAD_UNSEEN = 0.15

#: What a program allocates, by the names of memory_profiles.toml.
MemoryProfile = Mapping[str, float]
#: Numbers by name, each an array over the profiles in the order of `load_profiles()`.
MemoryConstants = Mapping[str, Floats]


@cache
def load_memory_profiles(fitted: bool = True) -> Mapping[str, MemoryProfile]:
    """Return all profiles by name.  fitted: with what is fitted, else as their sources say."""
    moved = shipped(FIT_FILE.name)["profile"] if fitted and FIT_FILE.exists() else {}
    rows = {
        name: {"crash_spread": SPREAD_UNSEEN, **row, **moved.get(name, {})}
        for name, row in shipped("memory_profiles.toml").items()
    }
    return {name: {key: float(row[key]) for key in row if key != "source"} for name, row in rows.items()}


def constants(profiles: Mapping[str, MemoryProfile]) -> MemoryConstants:
    """Return the profiles as arrays; what the fit says of a profile alone, its spread, is not among them."""
    ordered = [profiles[name] for name in load_profiles()]
    names = [name for name in ordered[0] if not name.startswith("spread_")]
    return {name: np.array([profile[name] for profile in ordered]) for name in names}


@cache
def fitted_constants() -> MemoryConstants:
    return constants(load_memory_profiles())
