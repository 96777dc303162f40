"""Execution profiles: how a kind of program runs a training step, from execution.toml.

`software.framework` names the profile; without one it is what most programs on that kind of chip are.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from perfmodel.config import ExperimentConfig
from perfmodel.data_file import EXACT, read_rows

EXECUTION_FILE = Path(__file__).with_name("execution.toml")

#: Profile where `software.framework` says nothing, by kind of chip.
DEFAULT = {"tpu": "xla", "gpu": "megatron-core"}
#: Profile of a framework that no profile names, by kind of chip.
UNKNOWN = {"tpu": "xla", "gpu": "fsdp"}


@dataclass(frozen=True)
class ExecutionProfile:
    """What a program does by design.

    family: profiles whose fitted numbers are alike.  gradient_bytes: per gradient that crosses links;
    gradient_sum_bytes: per gradient added up over micro-batches.  unfused_attention: whether attention scores pass
    through HBM.  sequence_parallel: whether a tensor axis also shards what is as wide as the model, where the
    configuration does not say.  balanced_stages: whether layers and head are spread over pipeline stages by their work.
    stalls_when_full: whether a pipeline stalls at every micro-batch where the memory is nearly full, as the allocator
    gives back and asks again.  frameworks, measured: see execution.toml.
    """

    __pydantic_config__ = EXACT

    name: str
    title: str
    family: str
    frameworks: tuple[str, ...]
    measured: tuple[str, ...]
    gradient_bytes: float
    gradient_sum_bytes: float
    unfused_attention: bool
    sequence_parallel: bool
    balanced_stages: bool
    stalls_when_full: bool
    source: str

    def has_measured(self, framework: str) -> bool:
        """Whether the fit has seen runs of this framework; the profile's own name stands for those it has."""
        text = framework.lower()
        return text == self.name or any(part in text for part in self.measured)


@cache
def load_profiles() -> dict[str, ExecutionProfile]:
    """All profiles by name."""
    rows = tomllib.loads(EXECUTION_FILE.read_text(encoding="utf-8"))
    return read_rows(ExecutionProfile, {name: {"name": name, **row} for name, row in rows.items()})


def profile_named(framework: str | None, kind: str) -> ExecutionProfile:
    """Profile of a framework's name on a kind of chip, `tpu` or `gpu`."""
    profiles = load_profiles()
    if not framework:
        return profiles[DEFAULT[kind]]
    return profiles[_name(framework) or UNKNOWN[kind]]


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


def framework_of(config: ExperimentConfig) -> str | None:
    """`software.framework` as given."""
    text = config.extra.get("software_framework")
    return text if isinstance(text, str) else None
