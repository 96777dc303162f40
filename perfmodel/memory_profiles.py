"""Memory profiles: what an execution profile allocates, from memory_profiles.toml and, fitted, memory_fit.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from perfmodel.execution import ExecutionDataError, load_profiles

DESIGN_FILE = Path(__file__).with_name("memory_profiles.toml")
FIT_FILE = Path(__file__).with_name("memory_fit.toml")

#: Spread of log(measured / predicted) of a program whose peaks nobody has measured, until a fit says it.
SPREAD_UNSEEN = 0.15
#: Distances at which a fit states its error: another mesh of a workload it has seen, another workload, another program.
DISTANCES = ("mesh", "workload", "source")

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class MemoryProfile:
    """What a program allocates; see memory_profiles.toml for each number.

    spread_*: of log(measured / predicted) at a distance (DISTANCES); crash_spread: of log(needed / capacity) among runs
    that ran and that ran out of memory.
    """

    name: str
    measured: bool
    gradient_bytes: float
    transient_gradient_bytes: float
    bucket_bytes: float
    optimizer_gather_bytes: float
    logit_bytes: float
    mlp_extra: float
    score_bytes: float
    runtime_bytes: float
    workspace_bytes: float
    held_tensors: float
    held_share: float
    held_needed: float
    fragmentation: float
    unfilled: float
    source: str
    spread_mesh: float = SPREAD_UNSEEN
    spread_workload: float = SPREAD_UNSEEN
    spread_source: float = SPREAD_UNSEEN
    crash_spread: float = SPREAD_UNSEEN

    @property
    def spread(self) -> float:
        """Of log(measured / predicted) of a workload that the fit has not seen, of this program or, where nobody has
        measured it, of a program the fit has not seen."""
        return self.spread_workload if self.measured else self.spread_source


#: Numbers of a profile that are constants of the model, in the order of the fields.
NUMBERS = tuple(part.name for part in fields(MemoryProfile) if part.type == "float")


@dataclass(frozen=True)
class MemoryConstants:
    """The profiles as arrays, one entry per profile in the order of `load_profiles()`."""

    values: Mapping[str, Floats]

    def of(self, name: str, profile: npt.NDArray[np.int64]) -> Floats:
        """One number for the profile of every candidate."""
        found: Floats = self.values[name][profile]
        return found


@cache
def load_memory_profiles() -> Mapping[str, MemoryProfile]:
    """All profiles by name, with what is fitted.  Raises ExecutionDataError on an unknown or missing key."""
    found = dict(design_profiles())
    if FIT_FILE.exists():
        with FIT_FILE.open("rb") as file:
            fitted = tomllib.load(file)["profile"]
        for name, row in fitted.items():
            values = {key: value for key, value in row.items() if key != "source"}
            wrong = sorted(set(values) - set(NUMBERS))
            if name not in found or wrong or not row.get("source"):
                raise ExecutionDataError(f"memory_fit.toml, {name}: {wrong[0] if wrong else 'source'!r} is wrong")
            found[name] = replace(found[name], **values)
    return MappingProxyType(found)


@cache
def design_profiles() -> Mapping[str, MemoryProfile]:
    """All profiles by name as their sources say, before any fit."""
    with DESIGN_FILE.open("rb") as file:
        data = tomllib.load(file)
    known = {part.name for part in fields(MemoryProfile)}
    needed = {part.name for part in fields(MemoryProfile) if not part.name.endswith("spread") and part.name != "name"}
    needed = {name for name in needed if not name.startswith("spread_")}
    found = {}
    for name, row in data.items():
        wrong = sorted((needed - set(row)) | (set(row) - known))
        if wrong:
            raise ExecutionDataError(f"memory_profiles.toml, {name}: {wrong[0]!r} is missing or unknown")
        found[name] = MemoryProfile(name=name, **row)
    return MappingProxyType(found)


def constants(profiles: Mapping[str, MemoryProfile] | None = None) -> MemoryConstants:
    """The profiles as arrays; by default the fitted ones."""
    chosen = load_memory_profiles() if profiles is None else profiles
    ordered = [chosen[name] for name in load_profiles()]
    values = {name: np.array([float(getattr(profile, name)) for profile in ordered]) for name in NUMBERS}
    values["spread"] = np.array([profile.spread for profile in ordered])
    return MemoryConstants(values)


@cache
def fitted_constants() -> MemoryConstants:
    return constants()
