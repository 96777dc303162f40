"""What the conditions of passages compare (`supports`, knowledge/passages/README.md): quantities of a proposal.

Those of a configuration (`config_quantities`) are the proposed one's by name, and with `was_` before it those of the
one that ran; those of the run have no `was_`.  Shares are of the step, as observed.  None where a fact is missing: no
condition on it holds then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from knowledge.supports import Quantity
from perfmodel import memory
from perfmodel.config import ExperimentConfig, missing_facts
from perfmodel.known_flags import flag_set
from perfmodel.workload import from_config
from proposals.candidate import Candidate, candidate
from proposals.proposer.case import Case
from proposals.proposer.changed import changed
from proposals.proposer.changes import WORTH_HIDING, exposed_by_cause
from proposals.proposer.config_quantities import OF_CHIP, OF_CONFIG

BEFORE = "was_"
#: A collective that carries less than a link moves meanwhile waits for the hop (TPU, `latency-bound`).
HOP_S = 1e-6

OF_RUN: dict[str, Callable[[Case], Quantity]] = {}


class Quantities:
    """The quantities of one proposal by name, each computed when it is first asked for.  Raises KeyError."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._after = candidate(case.config, Candidate(case.mesh.to_json(), case.changes))
        self._known: dict[str, Quantity] = {}

    def __call__(self, name: str) -> Quantity:
        if name not in self._known:
            self._known[name] = self._compute(name)
        return self._known[name]

    def _compute(self, name: str) -> Quantity:
        if name in OF_RUN:
            return OF_RUN[name](self._case)
        own = name.removeprefix(BEFORE)
        if self._case.observed.stand_in and (own in OF_CHIP or own.endswith("_bound")):
            return None
        return OF_CONFIG[own](self._after if name == own else self._case.config)


def is_known(name: str) -> bool:
    """Whether there is a quantity of this name."""
    return name in OF_RUN or name.removeprefix(BEFORE) in OF_CONFIG


def _of_run(function: Callable[[Case], Quantity]) -> Callable[[Case], Quantity]:
    OF_RUN[function.__name__] = function
    return function


@_of_run
def verdict(case: Case) -> Quantity:
    return case.diagnosis.bottleneck.primary


@_of_run
def finding(case: Case) -> Quantity:
    """Rules of the findings."""
    return frozenset(item.rule for item in case.diagnosis.findings)


@_of_run
def keeps(case: Case) -> Quantity:
    """`yes` where nothing changes."""
    return "yes" if case.keeps else "no"


def _falls(name: str, *parts: str) -> None:
    """`yes` where this part of the step is predicted to fall by a tenth per token, `no` where not."""
    OF_RUN[f"{name}_falls"] = lambda case: "yes" if case.falls(*parts) else "no"


_falls("dcn", "dcn")
_falls("communication", "ici", "dcn")
_falls("compute", "compute")


@_of_run
def saves_memory(case: Case) -> Quantity:
    """`yes` where a setting changes that buys memory: more recomputation, sharding or micro-batches."""
    bought = ("remat", "weight_sharding", "accumulation")
    return "yes" if any(item.subject in bought and item.direction == "up" for item in changed(case)) else "no"


def _memory_without(key: str, *keys: str) -> None:
    """Memory that the proposal would need if these training keys stayed as they ran, over what a program can fill: by
    the model, and where the run's peak was measured by how it would change from there, whichever is less."""

    def share(case: Case) -> Quantity:
        changes = {name: value for name, value in case.changes.items() if name not in keys}
        config = candidate(case.config, Candidate(case.mesh.to_json(), changes))
        if missing_facts(config):
            return None
        needed, measured = _memory_share(config), case.diagnosis.kpis.get("memory_peak_share")
        return needed if measured is None else min(needed, measured * needed / _memory_share(case.config))

    OF_RUN[f"memory_without_{key}"] = share


def _memory_share(config: ExperimentConfig) -> float:
    used = memory.per_chip(from_config(config))
    return float(np.max(used.total / used.capacity))


_memory_without("remat", "remat")
_memory_without("weight_sharding", "weight_sharding")
_memory_without("accumulation", "grad_accum", "micro_batch")


def _observed(name: str, *parts: str) -> None:
    def share(case: Case) -> Quantity:
        spent = {**case.observed.work_s, **case.observed.traffic_s}
        return sum(spent[part] for part in parts) / case.observed.step_s

    OF_RUN[name] = share


_observed("tensor_share", "tensor")
_observed("weights_share", "weights")
_observed("sequence_share", "sequence")
_observed("expert_share", "expert")
_observed("dcn_share", "dcn")
_observed("weights_hbm_share", "weights_hbm")
_observed("optimizer_share", "optimizer")
_observed("attention_share", "attention")
_observed("compute_share", "products", "attention")


def _measured(name: str, kpi: str) -> None:
    OF_RUN[name] = lambda case: case.diagnosis.kpis.get(kpi)


_measured("communication_share", "communication")
_measured("duty_cycle", "duty_cycle")
_measured("flops_utilization", "flops_utilization")
_measured("idle_share", "idle")
_measured("measured_memory_share", "memory_peak_share")


@_of_run
def exposed_share(case: Case) -> Quantity:
    return case.exposed_s / case.observed.step_s


@_of_run
def small_collectives_share(case: Case) -> Quantity:
    """Share of the step in collectives that carry less than their link moves in the time of a hop."""
    known = [op for op in case.diagnosis.ops if op.collective and op.collective_bytes and op.possible_bytes_per_s]
    small = (op for op in known if (op.collective_bytes or 0.0) < HOP_S * (op.possible_bytes_per_s or 0.0))
    return float(sum(op.time_share for op in small)) if known else None


@_of_run
def new_flags(case: Case) -> Quantity:
    """Names of the flags that the proposal sets and the run did not."""
    given = set(case.config.training.xla_flags)
    return _names(flag for flag in case.changes.get("xla_flags", ()) if flag not in given)


def _names(flags: Iterable[str]) -> frozenset[str]:
    return frozenset(flag.removeprefix("--").partition("=")[0] for flag in flags)


@_of_run
def exposed_cause(case: Case) -> Quantity:
    """Exposed transfers that the proposed mesh still has and for which it sets flags, as these are documented
    (perfmodel/xla_flags.toml)."""
    left = {axis for axis, size in case.mesh.ici if size > 1} | ({"dcn"} if case.mesh.dcn_product > 1 else set())
    rows = (row for row in case.diagnosis.collectives if not row.axis or left & set(row.axis.split("+")))
    exposed = exposed_by_cause(case.config, replace(case.diagnosis, collectives=tuple(rows)))
    chip = case.config.hardware.chip
    flag_sets = {cause: flag_set(chip, cause) for cause, share in exposed.items() if share >= WORTH_HIDING}
    added = new_flags(case)
    assert isinstance(added, frozenset)
    return frozenset(cause for cause, flags in flag_sets.items() if flags and added & _names(flags.flags))


@_of_run
def was_memory_share(case: Case) -> Quantity:
    """Memory of the run over what a program can fill: as measured where it was, else as predicted."""
    measured, used = case.diagnosis.kpis.get("memory_peak_share"), case.baseline.hbm_per_chip_bytes
    if measured is None and used:
        return used.total / used.capacity
    return measured
