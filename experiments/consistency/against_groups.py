"""Chips and mesh of a configuration against the groups of devices that communicate."""

from __future__ import annotations

from itertools import permutations
from math import prod
from typing import Any

import formatting
from experiments.consistency.facts import Contradiction, Facts
from experiments.consistency.groups import Pattern, explain
from experiments.consistency.names import short
from experiments.consistency.topology import near
from perfmodel.chips import Chip, get_chip
from perfmodel.config import DATA_ROLES, ExperimentConfig, Mesh, mesh_text

#: XLA runs single collectives over a part of one axis (key heads that are fewer than the axis); of the time of all
#: collectives, more than this in such parts is another mesh.
_PARTS = 0.1
#: Groups of less time than this are not held against a mesh.
_LEAST = 0.001
#: Axes of a mesh are tried in another order up to so many.
_MOST_AXES = 5


def devices(facts: Facts, config: ExperimentConfig) -> Contradiction | None:
    """Number of chips against the devices that collectives state, or at least those that were recorded."""
    chip, chips = get_chip(config.hardware.chip), config.hardware.chips
    per_chip = (1, chip.devices_per_chip)
    stated, recorded = facts.known.get("devices"), facts.known.get("recorded")
    if stated is not None:
        if stated.value in [chips * count for count in per_chip]:
            return None
        fact, count = stated, stated.value
        said = f"its collectives run over {count:,} devices"
    elif recorded is not None:
        # Of a TPU chip with two cores each may have a plane of its own.
        most = chips * max(*per_chip, 2 if chip.kind == "tpu" else 1)
        count = recorded.value["devices"]
        if count <= most:
            return None
        fact, said = recorded, f"the profile alone contains {count:,} devices"
    else:
        return None
    wanted = count // chip.devices_per_chip if count % chip.devices_per_chip == 0 else count
    slices = config.hardware.slices if wanted % config.hardware.slices == 0 else 1
    use: dict[str, Any] = {"hardware.topology": near(chip, wanted // slices), "hardware.slices": slices}
    if (suggested := _mesh_of(facts, chip)) and slices == 1:
        use["mesh.ici"] = suggested
    sentence = f"The configuration has {chips:,} chips ({_times(config)}); {said}."
    text = f"{count:,} devices"
    return Contradiction("hardware.topology", f"{chips:,} chips", text, sentence, fact.evidence, fact.sure, use)


def mesh(facts: Facts, config: ExperimentConfig) -> Contradiction | None:
    """The mesh against every group: each must be the product of some of its axes."""
    patterns = [pattern for pattern in facts.patterns if pattern.share >= _LEAST]
    if not patterns:
        return None
    odd = unexplained(config.mesh, patterns)
    if odd is None:
        return _tensor_axis_alone(facts, config)
    pattern, whole = odd
    how = "no combination of axes gives" if whole else "only a part of an axis gives"
    sentence = f"The mesh is {config.mesh.text()}; {how} groups of {pattern.text}."
    evidence = [
        f"{short(pattern.op)} communicates in groups of {pattern.text} ({formatting.share(pattern.share, 2)} of the "
        "collectives' time)."
    ]
    use: dict[str, Any] = {}
    if (ordered := _in_another_order(config.mesh, patterns)) is not None:
        use["mesh.ici"] = ordered
        evidence.append("The same axes in a different order match all groups.")
    else:
        suggested = _mesh_of(facts, get_chip(config.hardware.chip)) if config.hardware.slices == 1 else {}
        if suggested and unexplained(Mesh(tuple(suggested.items())), patterns) is None:
            use["mesh.ici"] = suggested
            evidence += facts.known["mesh"].evidence
    text = mesh_text({"ici": use.get("mesh.ici", {})}) or pattern.text
    return Contradiction("mesh.ici", config.mesh.text(), text, sentence, tuple(evidence), "computed", use)


def unexplained(mesh: Mesh, patterns: list[Pattern]) -> tuple[Pattern, bool] | None:
    """The longest pattern that the mesh does not explain, and whether not even as a part of axes; None: all are."""
    parts: list[Pattern] = []
    for pattern in patterns:
        explanation = explain(mesh, pattern)
        if explanation is None:
            return pattern, True
        if not explanation.whole:
            parts.append(pattern)
    if sum(pattern.share for pattern in parts) > _PARTS:
        return parts[0], False
    return None


def _tensor_axis_alone(facts: Facts, config: ExperimentConfig) -> Contradiction | None:
    """A tensor axis on whose own groups nothing runs although activations would have to be reduced there.

    Said only where every group is larger: over all devices, or over the tensor axis together with the batch.
    """
    tensor = [(axis, size) for axis, size in config.mesh.ici if config.mesh.role(axis) == "model" and size > 1]
    batch = config.mesh.size(*DATA_ROLES) > 1
    if not tensor or not batch or "mesh" not in facts:
        return None
    names, roles = {axis for axis, _ in tensor}, config.mesh.role
    for pattern in facts.patterns:
        explanation = explain(config.mesh, pattern)
        axes = explanation.axes if explanation is not None else ()
        if not names & set(axes) or not any(roles(axis) in DATA_ROLES for axis in axes):
            return None
    if not _activations_seen(facts):
        return None
    axis, size = tensor[0]
    longest = facts.patterns[0]
    sentence = (
        f"The mesh has {axis} {size}, but no collective runs along {axis} alone, which tensor parallelism needs in "
        "every layer."
    )
    evidence = (f"All groups are larger: {short(longest.op)} runs over {longest.text}.",)
    suggested = _mesh_of(facts, get_chip(config.hardware.chip))
    use = {"mesh.ici": suggested} if suggested and config.hardware.slices == 1 else {}
    text = facts.known["mesh"].text
    return Contradiction("mesh.ici", config.mesh.text(), text, sentence, evidence, "likely", use)


def _activations_seen(facts: Facts) -> bool:
    """Whether layers are visible enough that a reduction of activations would be, too."""
    known = "tokens_per_device" in facts and "d_model" in facts and all(p.runs is not None for p in facts.patterns)
    return known and not facts.unknown_groups


def _in_another_order(mesh: Mesh, patterns: list[Pattern]) -> dict[str, int] | None:
    """The configured axes, major to minor, in an order that explains all patterns."""
    large = [(axis, size) for axis, size in mesh.ici if size > 1]
    if not 1 < len(large) <= _MOST_AXES:
        return None
    single = [(axis, size) for axis, size in mesh.ici if size == 1]
    for order in permutations(large):
        tried = Mesh((*single, *order), mesh.dcn, mesh.axis_roles)
        if unexplained(tried, patterns) is None:
            return dict(tried.ici)
    return None


def _mesh_of(facts: Facts, chip: Chip) -> dict[str, int]:
    """The mesh that the groups suggest, in chips; empty where they suggest none."""
    fact = facts.known.get("mesh")
    if fact is None:
        return {}
    mesh: dict[str, int] = dict(fact.value)
    if facts.value("devices") != prod(mesh.values()):
        return {}
    per_chip = chip.devices_per_chip
    last = list(mesh)[-1]
    if per_chip > 1 and mesh[last] % per_chip == 0:
        mesh[last] //= per_chip
    return mesh


def _times(config: ExperimentConfig) -> str:
    text = " × ".join(str(size) for size in config.hardware.topology)
    return text if config.hardware.slices == 1 else f"{config.hardware.slices} slices of {text}"
