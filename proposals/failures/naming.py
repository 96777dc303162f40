"""What a hit means for the configuration: responsible parameters, confidence, the sentence, and what is forbidden."""

from __future__ import annotations

from dataclasses import replace

from experiments.sentences import Sentence, Value, say
from formatting import counted
from perfmodel import memory
from perfmodel.config import ConfigError, ExperimentConfig, missing_facts
from perfmodel.workload import from_config
from proposals.failures.failure import OF_CONFIGURATION, Failure, Hit, Values
from proposals.failures.forbidden import Forbidden
from proposals.failures.signatures import table

#: What uses memory: activations, or what is kept for each parameter.
_ACTIVATIONS = ("training.micro_batch", "training.remat", "mesh.seq", "mesh.model")
_STATES = ("training.weight_sharding", "mesh.fsdp", "mesh.model", "mesh.pipeline")
#: How much less is believed where other processes held the memory that was missing.
DOUBT = 0.5


def explained(hit: Hit | None, lines: int, config: ExperimentConfig | None, last: tuple[str, ...] = ()) -> Failure:
    """The failure that a hit stands for; without one, of unknown cause."""
    if hit is None:
        sentence = Sentence("The log is empty." if not lines else f"No known error in {counted(lines, 'line')}.")
        return Failure("unknown", 0.0, sentence, lines, check=table().cause["unknown"].check, last=last)
    cause, values = hit.signature.cause, hit.values
    confidence = hit.signature.confidence * (DOUBT if _held_by_others(values) else 1.0)
    roles, keys = _axes(hit, config) if cause == "indivisible_axis" else ((), ())
    parameters: tuple[str, ...] = ()
    if cause in OF_CONFIGURATION or cause == "numerics":
        parameters = _parameters(cause, roles, keys, config)
    made = Failure(
        cause, confidence, _sentence(cause, values, hit), lines, hit.line, hit.number, hit.file, hit.rank,
        hit.signature.name, values, parameters, table().cause[cause].check + _more_checks(values),
    )  # fmt: skip
    if config is None or made.verdict != "forbid":
        return made
    return replace(made, forbidden=_forbidden(cause, roles, keys, values, config))


def _held_by_others(values: Values) -> bool:
    """Whether the allocation would have found room, had no other process been on the device."""
    if values.others is None or values.requested is None:
        return False
    return values.requested <= values.others + (values.free or 0.0)


def _more_checks(values: Values) -> tuple[str, ...]:
    return ("Which other processes are on the device (nvidia-smi)",) if _held_by_others(values) else ()


def _axes(hit: Hit, config: ExperimentConfig | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Roles of the mesh and keys of training that a message about a size speaks of.

    By the axis it names, else by its words; of several, those whose size in the configuration is the divisor.
    """
    named, divisor = hit.values.axis or "", hit.values.divisor
    roles: list[str] = []
    keys: list[str] = []
    if config is not None and named:
        roles = [config.mesh.role(axis) for axis, _ in config.mesh.ici if f"'{axis}'" in named]
    if not roles:
        for word in table().word:
            if word.pattern.search(hit.line.lower()):
                roles += word.roles
                keys += word.keys
    if config is not None and divisor:
        if not roles:
            roles = [config.mesh.role(axis) for axis, _ in config.mesh.ici]
        fitting = [role for role in roles if config.mesh.size(role) == divisor]
        roles = fitting or roles
    return tuple(dict.fromkeys(roles)), tuple(dict.fromkeys(keys))


def _parameters(
    cause: str, roles: tuple[str, ...], keys: tuple[str, ...], config: ExperimentConfig | None
) -> tuple[str, ...]:
    """Paths in the configuration, the likeliest first."""
    parameters: tuple[str, ...]
    if cause == "out_of_memory":
        parameters = (*_ACTIVATIONS, *_STATES) if _activations_lead(config) else (*_STATES, *_ACTIVATIONS)
    elif cause == "indivisible_axis":
        parameters = tuple(f"mesh.{role}" for role in roles) + tuple(f"training.{key}" for key in keys) or ("mesh",)
    elif cause == "invalid_mesh":
        parameters = ("mesh", "hardware.topology")
    elif cause == "does_not_compile":
        parameters = ("training.xla_flags", "training.precision", "mesh")
    else:
        parameters = ("training.precision",)
    return tuple(dict.fromkeys(path for name in parameters if (path := _as_configured(name, config))))


def _as_configured(name: str, config: ExperimentConfig | None) -> str:
    """A role under the name of its axis; empty where the configuration has no such axis."""
    place, _, role = name.partition(".")
    if config is None or place != "mesh" or not role:
        return name
    return next((f"mesh.ici.{axis}" for axis, _ in config.mesh.ici if config.mesh.role(axis) == role), "")


def _activations_lead(config: ExperimentConfig | None) -> bool:
    """Whether activations are predicted to take more than weights, gradients and optimizer; so assumed if unknown."""
    if config is None or missing_facts(config):
        return True
    try:
        used = memory.per_chip(from_config(config))
    except ConfigError:
        return True
    return bool(2 * used.activations[0] > used.total[0])


def _forbidden(
    cause: str, roles: tuple[str, ...], keys: tuple[str, ...], values: Values, config: ExperimentConfig
) -> Forbidden:
    if cause == "out_of_memory":
        return Forbidden("memory", config)
    if cause == "indivisible_axis" and keys and len(roles) != 1:  # the same mesh may do with another batch
        return Forbidden("configuration", config)
    if cause == "indivisible_axis":
        return Forbidden("axis", config, roles[0] if len(roles) == 1 else "", values.dimension)
    return Forbidden("mesh" if cause == "invalid_mesh" else "configuration", config)


def _bytes(label: str, value: float) -> Value:
    return Value(label, value, "bytes", "measured")


def _sentence(cause: str, values: Values, hit: Hit) -> Sentence:
    where = f" on rank {hit.rank}" if hit.rank is not None else ""
    if cause == "out_of_memory":
        return _memory(values, where)
    if cause == "indivisible_axis" and values.dimension and values.divisor:
        return say("A dimension of {} is not divisible by {}.",
                   Value("Dimension", values.dimension, "count", "measured"),
                   Value("Divisor", values.divisor, "count", "measured"))  # fmt: skip
    if cause == "time_out" and values.timeout_s:
        waited = Value("Time limit", values.timeout_s, "s", "measured")
        return say("A collective or barrier did not finish within {}; what held up the other ranks is not in this log.",
                   waited)  # fmt: skip
    if cause == "time_out" and values.peer:
        return Sentence(f"{values.peer.replace(':', ' ').capitalize()} stopped answering; its own log has the cause.")
    return Sentence(table().cause[cause].sentence.format(where))


def _memory(values: Values, where: str) -> Sentence:
    if values.used and values.capacity and not values.requested:
        return say("The program needs {} of the {} of device memory{}.",
                   _bytes("Needed", values.used), _bytes("Capacity", values.capacity), where)  # fmt: skip
    if values.requested and values.free is not None:
        held = (
            say("; other processes hold {}", _bytes("Held by other processes", values.others)) if values.others else ""
        )
        return say("An allocation of {} failed with {} free{}{}.",
                   _bytes("Requested", values.requested), _bytes("Free", values.free), where, held)  # fmt: skip
    if values.requested:
        return say("An allocation of {} of device memory failed{}.", _bytes("Requested", values.requested), where)
    return Sentence(table().cause["out_of_memory"].sentence.format(where))
