"""The model's sizes against those of the ops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from experiments.consistency.facts import Contradiction, Fact, Facts
from formatting import listed
from perfmodel.config import ExperimentConfig, ModelShape

#: Frameworks pad the vocabulary to a multiple of this for each shard, or by less than this share.
_VOCAB_MULTIPLE = 128
_VOCAB_PADDING = 0.02


def of_model(facts: Facts, config: ExperimentConfig, whole_only: bool = False) -> Iterator[Contradiction]:
    """Sizes that cannot be of the configured model on the configured mesh.

    whole_only: only those that no mesh shards.
    """
    model = config.model
    if model is None:
        return
    tensor, along = config.mesh.size("model"), config.mesh.size("seq")
    stages = config.mesh.size("pipeline")
    mixture = bool(model.experts)
    yield from _size(facts, "d_model", "d_model", model.d_model, (model.d_model,))
    if model.attention == "gqa":
        yield from _size(facts, "head_dim", "head_dim", model.head_dim, (model.head_dim,))
    yield from _layers(facts, model, stages)
    if whole_only:
        return
    if (item := _splits_nothing(facts, config, model, tensor)) is not None:
        yield item
        return
    if not mixture:
        yield from _size(facts, "d_ff_per_device", "d_ff", model.d_ff, (model.d_ff // tensor,), tensor)
    if model.attention == "gqa":
        # Attention may give each device of a sequence axis whole sequences of some heads.
        parts = along if whole_sequences(facts) else 1
        heads = (model.heads // tensor, model.heads // (tensor * parts))
        yield from _size(facts, "heads_per_device", "heads", model.heads, heads, tensor)
        if (fact := facts.known.get("kv_heads_per_device")) is not None:
            kv = (max(1, model.kv_heads // tensor), max(1, model.kv_heads // (tensor * parts)))
            yield from _size(facts, "kv_heads_per_device", "kv_heads", model.kv_heads, kv, tensor)
    fact = facts.known.get("vocab_per_device")
    if fact is not None and not _is_vocab(fact.value, tensor, model.vocab):
        yield from _size(facts, "vocab_per_device", "vocab", model.vocab, (), tensor)


def whole_sequences(facts: Facts) -> bool:
    """Whether attention sees as many queries as keys, as it does where each device takes some heads of all tokens."""
    return "kv_len" in facts and facts.value("seq_len_per_device") == facts.value("kv_len")


def _splits_nothing(facts: Facts, config: ExperimentConfig, model: ModelShape, tensor: int) -> Contradiction | None:
    """A tensor axis although everything that it would split is whole on each device."""
    sizes = {"d_ff_per_device": model.d_ff, "heads_per_device": model.heads, "vocab_per_device": model.vocab}
    local = {name: facts.known[name] for name in sizes if name in facts}
    whole = [fact for name, fact in local.items() if fact.value == sizes[name]]
    if tensor == 1 or not whole or any(fact.value * tensor == sizes[name] for name, fact in local.items()):
        return None
    axis, size = next((axis, size) for axis, size in (*config.mesh.ici, *config.mesh.dcn)
                      if size > 1 and config.mesh.role(axis) == "model")  # fmt: skip
    text = f"The mesh has {axis} {size}; {_listed(local, sizes)} unsharded on each device, so no axis splits them."
    fact = facts.known.get("mesh")
    use = {"mesh.ici": fact.value} if fact is not None and not {"model", "tensor"} & set(fact.value) else {}
    said = fact.text if use and fact is not None else "no tensor parallelism"
    evidence = tuple(line for item in whole for line in item.evidence)
    return Contradiction("mesh.ici", config.mesh.text(), said, text, evidence, "computed", use)


def _listed(local: Mapping[str, Fact], sizes: Mapping[str, int]) -> str:
    names = [name.removesuffix("_per_device") for name, fact in local.items() if fact.value == sizes[name]]
    return f"{listed(names)} {'is' if len(names) == 1 else 'are'}"


def _layers(facts: Facts, model: ModelShape, stages: int) -> Iterator[Contradiction]:
    fact = facts.known.get("layers")
    if fact is None or stages > 1:
        return
    # Layers that alternate are scanned in blocks of one cycle, whose parts a path need not name.
    cycles = {1, max(1, model.moe_layer_step), max(1, model.sliding_window_every)}
    dense = model.layers - model.first_dense_layers
    if not any(fact.value * cycle in (model.layers, dense) for cycle in cycles):
        yield from _size(facts, "layers", "layers", model.layers, ())


def _is_vocab(local: int, shards: int, vocab: int) -> bool:
    padding = local * shards - vocab
    return 0 <= padding < max(_VOCAB_MULTIPLE * shards, _VOCAB_PADDING * vocab)


def _size(
    facts: Facts, name: str, key: str, configured: int, possible: tuple[int, ...] | list[int], shards: int = 1
) -> Iterator[Contradiction]:
    """A contradiction where the fact is none of the possible values; shards: over how many devices it is split."""
    fact = facts.known.get(name)
    if fact is None or fact.value in possible:
        return
    whole = fact.value * shards
    text = f"{whole:,}" + (f" ({fact.value:,} per device)" if shards > 1 else "")
    sentence = f"The configuration has {key} {configured:,}; the profile {text}."
    use = {f"model.{key}": whole}
    yield Contradiction(f"model.{key}", f"{configured:,}", text, sentence, fact.evidence, fact.sure, use)
