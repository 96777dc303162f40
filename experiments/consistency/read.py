"""All facts of a profile."""

from __future__ import annotations

import re
from collections.abc import Sequence

from experiments.consistency import program
from experiments.consistency.check import SAME_PRECISION
from experiments.consistency.facts import Fact, Facts
from experiments.consistency.groups import Pattern, patterns
from experiments.consistency.matmuls import matmuls
from experiments.consistency.mesh import mesh_fact
from experiments.consistency.names import short
from experiments.consistency.shapes import sizes
from experiments.step_profile import PROFILE, Op, StepProfile
from formatting import counted
from perfmodel.chips import load_chips

_COLLECTIVE = re.compile(r"all[-_](reduce|gather|to[-_]all)|reduce[-_]scatter|collective|ppermute|psum")
#: Family of frameworks by what recorded the profile.
_RECORDED_BY = {"xplane": "jax", "xprof_json": "jax", "kineto": "pytorch"}


def facts_of(profile: StepProfile) -> Facts:
    """What the profile tells of the configuration; nothing where there is no profile, only a step time."""
    if profile.basis != PROFILE:
        return Facts()
    device = profile.device
    on_cpu = device.kind.upper().startswith("CPU")
    facts: dict[str, Fact] = {}
    unavailable: dict[str, str] = {}

    def put(name: str, fact: Fact | str) -> None:
        if isinstance(fact, Fact):
            facts[name] = fact
        else:
            unavailable[name] = fact

    put("chip", _chip(profile, on_cpu))
    facts["kind"] = Fact(device.kind, device.kind, ("Device type as reported by the profile.",), "stated")
    put("framework", _framework(profile))
    put("recorded", _recorded(profile))
    groups = patterns(profile)
    put("devices", _devices(profile, groups))
    matmul_ops = matmuls(profile)
    sizes_read, why = sizes(profile, matmul_ops)
    facts |= sizes_read
    unavailable |= why
    put("layers", program.layers(profile, matmul_ops))
    put("remat", program.remat(profile, matmul_ops))
    put("precision", program.precision(matmul_ops, on_cpu))
    put("mesh", mesh_fact(profile, groups, facts, unavailable))
    return Facts(facts, unavailable, groups, any(map(_is_silent_collective, profile.ops)), on_cpu)


def precision_of(profile: StepProfile, configured: str) -> str:
    """Return the precision that the profile's matmuls ran in; `configured` where that is it or nothing tells."""
    fact = program.precision(matmuls(profile), profile.device.kind.upper().startswith("CPU"))
    if isinstance(fact, Fact) and fact.value != SAME_PRECISION.get(configured, configured):
        return str(fact.value)
    return configured


def _is_silent_collective(op: Op) -> bool:
    """A collective, alone or fused, that does not state who takes part; its end repeats what its start states."""
    name = f"{op.name} {op.category}".lower()
    if op.groups or "replica_groups" in op.hlo or "source_target_pairs" in op.hlo or "-done" in name:
        return False
    return bool(_COLLECTIVE.search(name))


def _chip(profile: StepProfile, on_cpu: bool) -> Fact | str:
    if on_cpu:
        return "recorded on a CPU, not on a supported chip"
    if profile.device.chip is None:
        return f"{profile.device.kind} matches several chips or no supported one"
    title = load_chips()[profile.device.chip].title
    evidence = f"The profile was recorded on {profile.device.kind}."
    return Fact(profile.device.chip, title, (evidence,), "stated")


def _framework(profile: StepProfile) -> Fact | str:
    family = _RECORDED_BY.get(profile.source_kind)
    if family == "jax" and not any(op.hlo or "jit(" in op.op_name for op in profile.ops):
        return "no op has a JAX name"
    if family is None:
        return "not determined by this profile format"
    words = {"jax": "JAX on XLA", "pytorch": "PyTorch"}[family]
    said = "Its ops are HLO instructions." if family == "jax" else "It was recorded by the PyTorch profiler."
    return Fact(family, words, (said,), "stated")


def _recorded(profile: StepProfile) -> Fact | str:
    device, count = profile.device, profile.device.measured_cores
    if not count:
        return "no device recorded an op"
    hosts = counted(device.host_count, "host")
    silent = device.core_count - count
    text = f"{count:,} of {device.core_count:,} devices recorded ops" if silent > 0 else f"{count:,} devices on {hosts}"
    evidence = [f"{device.core_count:,} devices on {hosts} are in the profile."]
    if silent > 0:
        evidence.append(f"{silent:,} of them recorded no ops, so their communication with the others is unknown.")
    return Fact({"recorded": count, "devices": device.core_count}, text, tuple(evidence), "stated")


def _devices(profile: StepProfile, groups: Sequence[Pattern]) -> Fact | str:
    """Devices of the whole run: as the profile states them, else all that its collectives name."""
    if (world := profile.device.world_size) is not None:
        return Fact(world, f"{world:,} devices", (f"The profile reports {world:,} ranks.",), "stated")
    if not groups:
        return "no collective lists all its devices; the profile may contain only some of the hosts"
    count, op = groups[0].devices, short(groups[0].op)
    return Fact(count, f"{count:,} devices", (f"{op} has replica groups over {count:,} devices.",), "stated")
