"""Limits on proposals: legality, unknown facts, and user constraints.

Where the batch, the sequence length or the model are not known, a mesh is only known to be legal if its axis divides
the current configuration, on which the profile is based.  A rule that it breaks itself forbids nothing on
the same mesh."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from formatting import limit
from perfmodel import legality
from perfmodel.config import (
    BATCH_ROLES,
    TOKEN_ROLES,
    ExperimentConfig,
    mesh_text,
    missing_facts,
    placement,
    placement_of,
)
from perfmodel.legality import MemoryPosterior
from perfmodel.space import Space
from proposals.constraints import RULE, Constraints, axes_named
from proposals.plan import Broken, Rejected
from proposals.proposer.changes import Change
from proposals.proposer.space import Candidates, all_with

Bools = npt.NDArray[np.bool_]

#: Tensor parallelism up to this size divides the heads of nearly every published model; used where heads are unknown.
HEADS_LIKELY = 8
#: Rejected meshes listed, nearest to the current mesh first.
LISTED = 200


@dataclass(frozen=True)
class Rule:
    """Which candidates break a rule.  reason: the sentence, empty where `legality.check` says it.

    certain: whether a candidate that breaks it cannot run or is not wanted, or is only not known to be legal.
    """

    name: str
    broken: Bools
    reason: str = ""
    certain: bool = True

    @property
    def asked(self) -> bool:
        """Whether it is the user's and not the machine's."""
        return self.name.startswith(RULE)


def legal(
    space: Space,
    config: ExperimentConfig,
    changes: Sequence[Change],
    constraints: Constraints,
    listed: int = LISTED,
    known: MemoryPosterior | None = None,
) -> tuple[Candidates, list[Rejected]]:
    """Every legal mesh with every legal change, and so many of the other meshes with the first rule each broke, nearest
    first."""
    plain = all_with(space, config, ({},), known)
    rules = rules_of(plain, constraints)
    # A training key may mend some, so these are judged with every change.
    hopeless = np.zeros(len(plain), dtype=bool)
    for rule in rules:
        if rule.name not in _MAY_BE_MENDED:
            hopeless |= rule.broken
    hopeless[plain.baseline] = False
    rows = np.flatnonzero(~hopeless)
    everything = all_with(space.take(rows), config, changes, known)
    out = np.zeros(len(everything), dtype=bool)
    for rule in rules_of(everything, constraints):
        out |= rule.broken
    out[everything.baseline] = False
    candidates = everything.take(np.flatnonzero(~out))
    kept = np.zeros(len(plain), dtype=bool)
    kept[rows[np.unique(candidates.mesh_of)]] = True
    return candidates, _rejected(plain, rules, ~kept, listed)


_MAY_BE_MENDED = ("batch", "memory", "layers", "schedule", "virtual_stages", "one_shard", f"{RULE}: memory margin")


def _rejected(plain: Candidates, rules: Sequence[Rule], out: Bools, listed: int) -> list[Rejected]:
    first = legality.first_broken([rule.broken for rule in rules])
    nearest = [int(i) for i in np.argsort(plain.doublings(), kind="stable") if out[i] and first[i] >= 0]
    return [
        Rejected(plain.mesh(i).to_json(), rules[first[i]].name, reason(plain, i, rules[first[i]]))
        for i in nearest[:listed]
    ]


def reason(candidates: Candidates, index: int, rule: Rule) -> str:
    """The sentence of a rule that a candidate breaks."""
    if rule.reason:
        return rule.reason
    config = candidates.configured(index)
    if (text := legality.sentence(rule.name, config)) is not None:
        return text
    broken = {violation.rule: violation.message for violation in legality.check(config)}
    return broken.get(rule.name, f"It breaks the rule {rule.name}.")


def broken_by(candidates: Candidates, index: int, rules: Sequence[Rule]) -> Iterator[Broken]:
    """The rules one candidate certainly breaks, with their sentences."""
    for rule in rules:
        if rule.certain and rule.broken[index]:
            yield Broken(rule.name, reason(candidates, index, rule))


def rules_of(candidates: Candidates, constraints: Constraints) -> list[Rule]:
    """All rules, in the order in which they are reported."""
    return [*_checkable_rules(candidates), *_uncheckable_rules(candidates), *asked(candidates, constraints)]


def _checkable_rules(c: Candidates) -> Iterator[Rule]:
    config = c.config
    broken = legality.of_workload(c.work, config.model, missing_facts(config))
    flags = {rule: np.asarray(c.flat(flag) > 0.5) for rule, flag in broken.items()}
    at_home = c.mesh_of == c.home
    for name, flag in flags.items():
        if flag[c.baseline] and c.posterior.ran:  # only a measured run shows that a rule does not hold for it
            flags[name] = flag & ~at_home
    text = ""
    if config.model is not None and missing_facts(config):
        text = "Weights, gradients and optimizer state alone exceed the usable memory."
        states = c.used.total - c.used.activations
        flags["memory"] = (states > c.used.capacity) & (states > states[c.baseline])
    elif config.model is not None:
        flags["memory"] = ~c.posterior.fits(c.used)
    for name in legality.RULES:
        if name in flags:
            yield Rule(name, flags[name], text if name == "memory" else "")
    yield from _without_effect(c)


def _without_effect(c: Candidates) -> Iterator[Rule]:
    """Training keys that change nothing on a mesh, or that nobody measured there."""
    text = "Without a pipeline there are no virtual stages."
    without = (c.role("pipeline") == 1) & (c.flat(c.work.training.virtual_stages) > 1)
    yield Rule("virtual_stages", c.changes_kind("virtual_stages") & without, text, False)
    alone = c.role(*TOKEN_ROLES) == 1
    text = "The effect of these flags was measured on the mesh of the run alone."
    yield Rule("flags_elsewhere", c.changes_kind("xla_flags") & (c.mesh_of != c.home), text, False)
    text = "All tokens are on one shard, so there is nothing to shard weights or optimizer state over."
    yield Rule("one_shard", c.changes_kind("weight_sharding") & alone, text, False)


def _uncheckable_rules(c: Candidates) -> Iterator[Rule]:
    """Rules that cannot be checked because a fact is missing."""
    config = c.config

    def unproven_divisors(*roles: str) -> Bools:
        """Whether the size does not divide the size that ran, which is all that is known to be legal."""
        size = c.role(*roles)
        return np.asarray(np.mod(size[c.baseline], size) != 0)

    if config.training.global_batch is None:
        text = "The global batch is unknown; it is only known to be divisible by the current batch shards."
        yield Rule("batch_unknown", unproven_divisors(*BATCH_ROLES), text, False)
    if config.training.seq_len is None:
        text = "The sequence length is unknown; it is only known to be divisible by the current sequence shards."
        yield Rule("sequence_unknown", unproven_divisors("seq"), text, False)
    if config.model is None:
        size = c.role("model")
        unlikely = (size > max(HEADS_LIKELY, int(size[c.baseline]))) | ((size & (size - 1)) != 0)
        text = f"The model is unknown; its number of heads may not be divisible by more than {HEADS_LIKELY}."
        yield Rule("heads_unknown", unlikely & unproven_divisors("model"), text, False)
        for role in ("expert", "pipeline"):
            text = f"The model is unknown, so the {role} axis stays within its current size."
            yield Rule(f"{role}_unknown", unproven_divisors(role), text, False)


def asked(c: Candidates, constraints: Constraints) -> Iterator[Rule]:
    """The user's constraints; a candidate that breaks one is not proposed."""
    if not constraints:
        return
    sizes, home = c.sizes, c.sizes[c.home]
    mesh = c.config.mesh

    def columns(name: str, *places: str) -> list[int]:
        names = {*axes_named(mesh, name), name}
        roles = {mesh.role(name)} if not axes_named(mesh, name) else set()
        return [
            i
            for i, (place, axis) in enumerate(c.columns)
            if place in places and (axis in names or mesh.role(axis) in roles)
        ]

    def rule(name: str, broken: Bools, text: str) -> Rule:
        return Rule(f"{RULE}: {name}", broken, f"Your constraint: {text}")

    for name in constraints.keep_axes:
        of = columns(name, "ici", "dcn")
        moved = (sizes[:, of] != home[of]).any(axis=1)[c.mesh_of]
        yield rule(f"keep {name}", moved, f"keep the {name} axis unchanged.")
    for sign, bound, compare in (
        ("=", constraints.fixed, np.not_equal),
        ("≥", constraints.at_least, np.less),
        ("≤", constraints.at_most, np.greater),
    ):
        for name, size in bound.items():
            own = np.prod(sizes[:, columns(name, "ici")], axis=1)
            yield rule(f"{name} {sign} {size}", compare(own, size)[c.mesh_of], f"{name} {sign} {size}.")
    if constraints.excluded:
        placements = [placement(c.mesh_at(row)) for row in range(len(sizes))]
        for left_out in constraints.excluded:
            wanted = placement_of(left_out, mesh.axis_roles)
            same = np.array([item == wanted for item in placements])
            text = f"not {mesh_text(left_out)}"
            yield rule(text, same[c.mesh_of], f"{text}.")
    for kept, kinds, text in (
        (constraints.keep_batch, ("global_batch",), "keep the global batch unchanged."),
        (constraints.keep_remat, ("remat",), "keep rematerialisation unchanged."),
        (constraints.keep_weight_sharding, ("weight_sharding",), "keep the weight sharding unchanged."),
        (
            constraints.keep_micro_batches,
            ("grad_accum", "micro_batch", "virtual_stages"),
            "keep the micro-batches and their schedule unchanged.",
        ),
        (constraints.no_flags, ("xla_flags",), "change no XLA flags."),
    ):
        if kept:
            changed = np.logical_or.reduce([c.changes_kind(kind) for kind in kinds])
            yield rule(f"keep {kinds[0]}" if kinds[0] != "xla_flags" else "no flags", changed, text)
    if constraints.memory_margin and (not missing_facts(c.config) or c.posterior.has_peak):
        room = (1.0 - constraints.memory_margin) * c.used.capacity
        text = f"keep {limit(constraints.memory_margin, 'share', 6)} of memory per chip free."
        yield rule("memory margin", c.used.total > room, text)
