"""Runs to try tools and computations on: shipped samples, and generated ones."""

from __future__ import annotations

from functools import cache

from evaluation.steps.generated import profile
from evaluation.steps.scenario import config
from evaluation.steps.scenarios import SCENARIOS
from evaluation.steps.shipped import sample
from proposals.agents.workbench import Workbench

SAMPLES = ("asap-experiment-1", "asap-experiment-2", "asap-experiment-3", "cpu-data2-seq2-model2", "cpu-data8")
#: Generated ones: over DCN, on GPUs, with experts, and with little in the profile.
GENERATED = (
    "gradients over DCN", "tensor axis across NVLink domains", "expert dispatch",
    "only the five largest ops, memory",
)  # fmt: skip
PROFILES = ("asap-experiment-1", "asap-experiment-3", "cpu-data2-seq2-model2", *GENERATED)


@cache
def bench(name: str = "asap-experiment-3") -> Workbench:
    if name in SAMPLES:
        return Workbench.of_values(*sample(name))
    scenario = next(item for item in SCENARIOS if item.name == name)
    return Workbench.of_values(profile(scenario), config(scenario))
