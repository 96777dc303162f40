"""Where a configuration contradicts what its profile says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from experiments.consistency.against_groups import devices, mesh
from experiments.consistency.facts import Contradiction, Fact, Facts
from experiments.consistency.model_shape import of_model, whole_sequences
from perfmodel.chips import chips_of_device, get_chip
from perfmodel.config import ExperimentConfig, framework_of
from perfmodel.execution import profile_named

#: `training.remat` as configured, and what is measured that cannot be of it.
_NOT_OF = {"none": ("full", "minimal"), "minimal": ("full", "none"), "full": ("none", "minimal"), "offload": ("full",)}
SAME_PRECISION = {"mxfp8": "fp8", "nvfp4": "fp4"}


def contradictions(facts: Facts, data: Mapping[str, Any], config: ExperimentConfig) -> tuple[Contradiction, ...]:
    """What the profile contradicts, field by field, in the order of the form.

    data: the configuration as it was given, config: the same as values.  Only what was given is held against the
    profile, never a default.  Sizes per device are compared where chips and mesh agree with the profile.
    """
    items = [item for item in (_chip(facts, config), devices(facts, config)) if item is not None]
    if not any(item.field == "hardware.topology" for item in items) and (item := mesh(facts, config)) is not None:
        items.append(item)
    items += _framework(facts, data, config)
    if not any(item.field in ("hardware.topology", "mesh.ici") for item in items):
        items += of_model(facts, config)
        items += _lengths(facts, config)
    else:
        items += of_model(facts, config, whole_only=True)
    items += _given_words(facts, data)
    return tuple(items)


def configured_value(data: Mapping[str, Any], field: str) -> Any:
    """The value at a dotted path, None where it is absent."""
    value: Any = data
    for part in field.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _chip(facts: Facts, config: ExperimentConfig) -> Contradiction | None:
    configured = get_chip(config.hardware.chip)
    fact, kind = facts.known.get("chip"), facts.known.get("kind")
    if fact is not None:
        if fact.value == configured.name:
            return None
        sentence = f"The configuration has {configured.title}; the profile was recorded on {fact.text}."
        use = {"hardware.chip": fact.value}
        return Contradiction("hardware.chip", configured.title, fact.text, sentence, fact.evidence, fact.sure, use)
    if kind is None or facts.on_cpu:
        return None
    name = str(kind.value)
    possible = chips_of_device(name)
    family = "tpu" if "TPU" in name.upper() else "gpu" if "GPU" in name.upper() else configured.kind
    if configured.name in possible or (not possible and family == configured.kind):
        return None
    sentence = f"The configuration has {configured.title}; the profile was recorded on {name}."
    return Contradiction("hardware.chip", configured.title, name, sentence, kind.evidence, "stated")


def _framework(facts: Facts, data: Mapping[str, Any], config: ExperimentConfig) -> Iterator[Contradiction]:
    fact, name = facts.known.get("framework"), framework_of(config)
    if fact is None or not name or configured_value(data, "software.framework") is None:
        return
    profile = profile_named(name, get_chip(config.hardware.chip).kind)
    family = "jax" if profile.family == "xla" or profile.name == "xla" else "pytorch"
    if family != fact.value:
        sentence = f"The configuration has {name}; the profile is of {fact.text}."
        use = {"software.framework": fact.value}
        yield Contradiction("software.framework", name, fact.text, sentence, fact.evidence, fact.sure, use)


def _lengths(facts: Facts, config: ExperimentConfig) -> Iterator[Contradiction]:
    """Sequence length and batch against what a device works on."""
    training, sharding = config.training, config.mesh
    along = sharding.size("seq")
    local, keys = facts.known.get("seq_len_per_device"), facts.known.get("kv_len")
    fact_and_length = _sequence(local, keys, along)
    if training.seq_len is not None and fact_and_length is not None:
        fact, length = fact_and_length
        if training.seq_len != length and not (training.seq_len == fact.value and _whole_sequences(facts, config)):
            text = f"{length:,} tokens" + (f" ({fact.value:,} per device)" if length != fact.value else "")
            yield _number("training.seq_len", "sequence length", training.seq_len, length, text, fact)
    batch, tokens = facts.known.get("batch_per_device"), facts.known.get("tokens_per_device")
    if training.global_batch is None or sharding.size("pipeline") > 1:
        return
    shards = sharding.batch_shards * training.grad_accum
    expected = {training.global_batch / shards}
    if training.micro_batch is not None:
        expected.add(float(training.micro_batch))
    if batch is not None:
        if batch.value not in expected:
            whole = batch.value * shards
            text = f"{batch.value:,} per device, so {whole:,} on this mesh"
            yield _number("training.global_batch", "global batch", training.global_batch, whole, text, batch)
    elif tokens is not None and training.seq_len is not None:
        wanted = {size * training.seq_len / along for size in expected}
        if tokens.value not in wanted and tokens.value * along % training.seq_len == 0:
            whole = tokens.value * along // training.seq_len * shards
            text = f"{tokens.value:,} tokens per device, so {whole:,} sequences on this mesh"
            yield _number("training.global_batch", "global batch", training.global_batch, whole, text, tokens)


def _whole_sequences(facts: Facts, config: ExperimentConfig) -> bool:
    """Whether attention may see whole sequences of some heads although an axis shards the sequence elsewhere."""
    heads, along = facts.known.get("heads_per_device"), config.mesh.size("seq")
    if heads is None or along == 1 or not whole_sequences(facts):
        return False
    return config.model is None or heads.value * config.mesh.size("model") * along == config.model.heads


def _sequence(local: Fact | None, keys: Fact | None, along: int) -> tuple[Fact, int] | None:
    """The fact that tells the sequence length, and the length: of the keys where they are longer than the queries."""
    if local is None:
        return None
    if keys is not None and keys.value > local.value:
        return keys, keys.value
    return local, local.value * along


def _number(field: str, name: str, configured: int, value: int, text: str, fact: Fact) -> Contradiction:
    sentence = f"The configuration has {name} {configured:,}; the profile {text}."
    return Contradiction(field, f"{configured:,}", text, sentence, fact.evidence, fact.sure, {field: value})


def _given_words(facts: Facts, data: Mapping[str, Any]) -> Iterator[Contradiction]:
    """Precision and remat, where they are given."""
    for name in ("precision", "remat"):
        field, fact = f"training.{name}", facts.known.get(name)
        configured = configured_value(data, field)
        if fact is None or not isinstance(configured, str):
            continue
        plain = configured.strip().lower()
        others = _NOT_OF.get(plain, ()) if name == "remat" else {fact.value} - {SAME_PRECISION.get(plain, plain)}
        if fact.value in others:
            sentence = f"The configuration has {name} {plain}; the profile shows {fact.text}."
            yield Contradiction(field, plain, fact.text, sentence, fact.evidence, fact.sure, {field: fact.value})
