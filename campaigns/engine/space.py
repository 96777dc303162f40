"""The space of a campaign: every mesh of the chips with every further change, the fastest legal ones by the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np

from campaigns.engine.candidates import TrialCandidates, price
from perfmodel import legality
from perfmodel.config import ConfigError, ExperimentConfig, Mesh, missing_facts, placement, shown_sizes, training_key
from perfmodel.config_file import read_mesh
from perfmodel.price import NOTHING, Evidence
from proposals.candidate import Candidate, MeshAndChanges, candidate
from proposals.constraints import Constraints
from proposals.proposer.changes import Change, further_changes, given_changes, products, split_once
from proposals.proposer.limits import broken_by, rules_of
from proposals.proposer.prices import fastest
from proposals.proposer.space import all_with, enumerate_meshes, side_by_side

#: Candidates that a campaign looks at: the fastest by the model.  The slowest of so many is far behind.
MOST_CANDIDATES = 4096
#: Training keys that change together on a mesh, by number of meshes: upper bound of those priced.
MOST_PRICED = 400_000
#: Chance that memory suffices from which a candidate is worth looking at: trials correct the memory model.
LEAST_FIT = 0.05


class NoCandidateError(Exception):
    """It cannot be tried in this campaign.  The text is a sentence that names the rule."""


@dataclass(frozen=True)
class Space:
    """The candidates of a campaign.

    config: what it began with, the candidate at `baseline`.  considered: meshes with changes that were priced;
    held_back: how many of them broke which rule first.
    """

    config: ExperimentConfig
    candidates: TrialCandidates
    baseline: int
    considered: int
    held_back: Mapping[str, int]
    constraints: Constraints = field(default_factory=Constraints)

    @cached_property
    def by_key(self) -> dict[str, int]:
        """Row of each candidate by `key_of`."""
        return {key_of(config): row for row, config in enumerate(self.candidates.configs)}

    def find(self, of: MeshAndChanges) -> int:
        """Return the row of a mesh with training keys, however they are written.  Raises NoCandidateError."""
        try:
            own, change = read_mesh(self.config, of.mesh), given_changes(self.config, of.changes)
            change = split_once(self.config, own, change)
        except ConfigError as error:
            raise NoCandidateError(f"It is not a valid configuration: {error}") from None
        if wrong := products(self.config, own):
            raise NoCandidateError(wrong[0].reason)
        if fixed := sorted(set(change) - set(settings_of(self.config))):
            raise NoCandidateError(f"A campaign does not change {', '.join(fixed)}.")
        asked = replace(candidate(self.config, Candidate(own.to_json(), change)), measured=None)
        row = self.by_key.get(key_of(asked))
        if row is None:
            raise NoCandidateError(self._why_not(own, change))
        return row

    def _why_not(self, mesh: Mesh, change: Change) -> str:
        """The first rule of the space that it breaks; else that the space is narrower."""
        meant = side_by_side(self.config, self.config, [(mesh, change)])
        rules = rules_of(meant, replace(self.constraints, keep_batch=True))
        broken = next(broken_by(meant, 1, rules), None)
        if broken is not None:
            return broken.reason
        return (
            f"It is not among the {len(self.candidates):,} candidates of this campaign: it is equivalent to another "
            "one, changes more settings at once than are searched, or is predicted slower than all of them."
        )


def searched(config: ExperimentConfig, constraints: Constraints | None = None, evidence: Evidence = NOTHING) -> Space:
    """The space of a workload: mesh axes, micro-batches, accumulation, rematerialisation, weight sharding, virtual
    stages.  The global batch stays, since another one trains another model.

    evidence: of the current configuration, to price by.  Raises ConfigError where model, batch or sequence length are
    not known.
    """
    if missing := missing_facts(config):
        raise ConfigError(missing[0], "is needed for a campaign: without it no candidate can be priced")
    rules = replace(constraints or Constraints(), keep_batch=True)
    meshes = enumerate_meshes(config, config)
    for most in (3, 2, 1):
        changes = further_changes(config, rules, most)
        if len(changes) * len(meshes.sizes) <= MOST_PRICED:
            break
    candidates = all_with(meshes, config, changes, evidence.memory)
    # Of memory the campaign learns more than the model knows.
    full = candidates.posterior.probability_fits(candidates.used) < LEAST_FIT
    told = rules_of(candidates, rules)
    first = legality.first_broken([full if rule.name == "memory" else rule.broken for rule in told])
    counts = np.bincount(first + 1, minlength=1 + len(told))[1:]
    held_back = {rule.name: int(count) for rule, count in zip(told, counts, strict=True) if count}
    first[candidates.baseline] = -1
    considered = len(candidates)
    candidates = fastest(candidates.take(np.flatnonzero(first < 0)), evidence, MOST_CANDIDATES)
    # Of those that are the same run the current configuration stays, else the one that changes least.
    moved = np.abs(candidates.changed).sum(axis=1) + candidates.doublings()
    moved[candidates.baseline] = -1.0
    by_key: dict[str, tuple[int, ExperimentConfig]] = {}
    for row in np.argsort(moved, kind="stable").tolist():
        one = replace(candidates.configured(row), measured=None)
        by_key.setdefault(key_of(one), (row, one))
    listed = sorted(by_key.values(), key=lambda item: item[0])
    kept, configs = np.array([row for row, _ in listed]), tuple(one for _, one in listed)
    priced = price(configs, candidates.work_of(kept), evidence, candidates.doublings()[kept])
    baseline = int(np.searchsorted(kept, candidates.baseline))
    return Space(config, priced, baseline, considered, held_back, rules)


def key_of(config: ExperimentConfig) -> str:
    """Return one text per trial: its placement and training (`perfmodel.config`)."""
    told = (placement(config.mesh), training_key(config.training, config.mesh))
    return sha256(repr(told).encode()).hexdigest()[:24]


_SETTINGS = ("global_batch", "micro_batch", "grad_accum", "remat", "weight_sharding", "virtual_stages", "xla_flags")


def settings_of(config: ExperimentConfig) -> dict[str, Any]:
    """What a campaign may change of the training, by key."""
    values = {key: getattr(config.training, key) for key in _SETTINGS}
    return {**values, "xla_flags": list(config.training.xla_flags)}


def parameters_of(config: ExperimentConfig) -> dict[str, Any]:
    """Every parameter of a trial as a table shows it: sizes of the axes, then the training."""
    settings = settings_of(config)
    del settings["grad_accum" if config.training.micro_batch else "micro_batch"]
    return {**shown_sizes(config.mesh.to_json()), **settings}
