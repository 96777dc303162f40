"""Meshes and training settings as people type or paste them: `fsdp=16 tp=4 remat none`, `--tensor-model-parallel-size
8`, `ici_fsdp_parallelism=16`, `batch 512`.

`parse` reads a line; `complete` gives the axes that it does not name the rest of the chips.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from formatting.numbers import whole_number
from perfmodel.chips import PRECISIONS
from perfmodel.config import DATA_ROLES, ROLE_SYNONYMS, ExperimentConfig, Mesh
from perfmodel.config_file import OPTIMIZERS
from perfmodel.space import insert_axis
from perfmodel.workload import REMAT, SHARDING

#: What an axis of a role is called beside the role's own name.
ROLE_WORDS = {
    "replica": "replica", "data": "data", "dp": "data", "ddp": "data", "data_parallel": "data", "fsdp": "fsdp",
    "dp_shard": "fsdp", "zero3": "fsdp", "seq": "seq", "sequence": "seq", "sp": "seq", "context": "seq", "cp": "seq",
    "model": "model", "tensor": "model", "tp": "model", "expert": "expert", "ep": "expert", "pipeline": "pipeline",
    "pipe": "pipeline", "pp": "pipeline",
}  # fmt: skip
#: Keys of a configuration as MaxText, Megatron-LM and people write them.
SETTING_WORDS = {
    "batch": "global_batch", "bs": "global_batch", "global_batch": "global_batch", "gbs": "global_batch",
    "global_batch_size": "global_batch",
    "global_train_batch_size": "global_batch", "train_batch_size": "global_batch", "seq_len": "seq_len",
    "seqlen": "seq_len", "seq_length": "seq_len", "sequence_length": "seq_len", "max_target_length": "seq_len",
    "context_length": "seq_len", "remat": "remat", "remat_policy": "remat", "recompute": "remat",
    "recompute_granularity": "remat", "micro_batch": "micro_batch", "mbs": "micro_batch",
    "micro_batch_size": "micro_batch", "grad_accum": "grad_accum", "ga": "grad_accum", "accum": "grad_accum",
    "gradient_accumulation_steps": "grad_accum",
    "micro_batches": "grad_accum", "microbatches": "grad_accum", "ubatches": "grad_accum", "vpp": "virtual_stages",
    "virtual_stages": "virtual_stages", "precision": "precision", "dtype": "precision",
    "optimizer": "optimizer", "weight_sharding": "weight_sharding", "sharding": "weight_sharding",
}  # fmt: skip
#: Values that frameworks and people write otherwise.
VALUE_WORDS = {
    "bfloat16": "bf16", "selective": "minimal", "float16": "fp16", "minimal_with_context": "none",
    "minimal_flash": "none", **dict.fromkeys(("off", "no", "without", "disable", "drop", "dropping"), "none"),
}  # fmt: skip
_VALUES = {"remat": REMAT, "weight_sharding": SHARDING, "precision": PRECISIONS, "optimizer": OPTIMIZERS}
#: Values that are of one key alone, and no other word.
_ALONE = {
    **dict.fromkeys(PRECISIONS, "precision"), **dict.fromkeys(OPTIMIZERS, "optimizer"),
    "zero1": "weight_sharding", "minimal": "remat", "offload": "remat",
}  # fmt: skip
#: Axes that are also words of a sentence: their size follows at once.
_SPOKEN = frozenset(("model", "data", "expert", "sequence", "context", "pipeline", "tensor", "replica"))
#: How many words may stand between a key and its value.
_APART = 2
_FRAMEWORK = re.compile(r"^(?:(ici|dcn)_)?(\w+?)(?:_model)?_(?:parallelism|parallel_size|parallel_degree)$")
_GLUED = re.compile(r"^([A-Za-z_]+?)[-_]?([0-9]+)$")
#: What is named to be left; *not* leaves a setting that follows it, except in a question (*why not fsdp=8*).
_LEFT_BY_NOT = r"(?<=\w)(?<!\bwhy)(?<!\bdo)\s+not\s+(?=\S*[=\d]|\w+ \d|(?:full|minimal|none|offload)\b)"
INSTEAD = re.compile(rf"(?:\b(?:instead of|than)\b|,\s*not\b|{_LEFT_BY_NOT})[^,;.?]*|\bnot\b[^,;.?]*?\bbut\b", re.I)
#: Settings of two words, what stands between a setting and its value, and MaxText's own `none`, which recomputes every
#: scanned layer.
_PHRASES = (
    (re.compile(r"\b(micro|global)[- ](batch)(?:[- ]size)?", re.IGNORECASE), r"\1_\2"),
    (re.compile(r"(?<=\d),(?=\d{3}\b)"), ""),
    (re.compile(r"\bsequence[- ]length\b", re.IGNORECASE), "seq_len"),
    (re.compile(r"\bgrad(?:ient)?[- ]accum(?:ulation)?(?:[- ]steps)?\b", re.IGNORECASE), "grad_accum"),
    (re.compile(r"\b(\d+k)[- ](?:context|sequences?|seq)\b", re.IGNORECASE), r"seq_len \1"),
    (re.compile(r"\bremat_policy=none\b"), "remat=full"),
    (re.compile(r"[^\s=:,]+\s*(?:->|→)\s*(\S+)|\b\d+ to (\d+)"), r"\1\2"),  # from the one to the other
    (re.compile(r"\bzero-(\d)", re.IGNORECASE), r"zero\1"),
    (re.compile(r"\bw/o\b", re.IGNORECASE), "without"),
    (INSTEAD, ""),
)
_TIMES_NOW = re.compile(
    r"\b(double|twice|halve|half)\s+(?:of\s+)?(?:(?:the|our|this)\s+)?(?:global[- _])?batch\b", re.IGNORECASE
)
_TOKEN = re.compile(r"[^\s,;=:/?!·×\\\"'()]+|[,;?!]")


@dataclass(frozen=True)
class Settings:
    """Hold what a line sets.  ici, dcn: sizes by axis, as named; changes: training keys; rest: words that set
    nothing."""

    ici: Mapping[str, int] = field(default_factory=dict)
    dcn: Mapping[str, int] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    rest: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.ici or self.dcn or self.changes)

    @property
    def sizes(self) -> dict[str, int]:
        """Return all axes, those across slices as `dcn.data`."""
        return {**self.ici, **{f"dcn.{axis}": size for axis, size in self.dcn.items()}}

    def over(self, other: Settings) -> Settings:
        """Return these settings with others in their place where both name them."""
        changes = {**self.changes, **other.changes}
        return Settings({**self.ici, **other.ici}, {**self.dcn, **other.dcn}, changes, other.rest)

    def with_last(self, number: int) -> Settings:
        """Return these settings with another number for the last training key that has one, else for the last axis."""
        numbers = [key for key, value in self.changes.items() if isinstance(value, int)]
        if numbers:
            return Settings(self.ici, self.dcn, {**self.changes, numbers[-1]: number})
        return Settings({**self.ici, **dict.fromkeys(list(self.ici)[-1:], number)}, self.dcn, self.changes)


def parse(text: str, config: ExperimentConfig) -> Settings:
    """Read the axes of this configuration's mesh, roles, training keys and flags of MaxText and Megatron-LM."""
    ici: dict[str, int] = {}
    dcn: dict[str, int] = {}
    changes: dict[str, Any] = {}
    rest: list[str] = []
    for phrase, name in _PHRASES:
        text = phrase.sub(name, text)
    batch = config.training.global_batch or 0
    text = _TIMES_NOW.sub(lambda found: f"batch {batch * 2 if found[1][0] in 'dDtT' else batch // 2}", text)
    tokens = [part for token in _TOKEN.findall(text) for part in _split(token, config.mesh)]
    while tokens:
        token = tokens.pop(0)
        word = token.lower().lstrip("-").rstrip(".").replace("-", "_")
        scope, _, name = word.rpartition(".") if word.startswith(("dcn.", "ici.")) else ("", "", word)
        if match := _FRAMEWORK.match(word):
            scope, name = match[1] or "", match[2]
        axis, key = axis_of(config.mesh, name), SETTING_WORDS.get(word)
        place = _place(key or "", tokens, 0 if name in _SPOKEN else _APART) if axis or key else None
        size = whole_number(tokens[place].rstrip("."), digits=9) if axis and place is not None else None
        if name == "seq" and size and config.hardware.chips_per_slice % size:
            changes["seq_len"] = size  # no axis has this size
        elif axis and size:
            (dcn if scope == "dcn" else ici).setdefault(axis, size)
        elif (
            axis
            and rest
            and VALUE_WORDS.get(rest[-1].lower()) == "none"
            and (name not in _SPOKEN or "".join(tokens[:1]).startswith(("axis", "parallel")))
        ):
            ici[axis] = 1
            rest.pop()
        elif word == "per_device_batch_size" and tokens and (each := whole_number(tokens[0], digits=9)):
            changes["global_batch"], place = each * config.hardware.chips, 0
        elif key and place is not None:
            changes[key] = _value(key, tokens[place])
        elif key and rest and _value(key, rest[-1]) is not None:
            changes[key] = _value(key, rest.pop())
        elif word in _ALONE:
            changes[_ALONE[word]] = word
        else:
            rest += [token] * (token not in ",;?!")
            continue
        if place is not None:
            rest += tokens[:place]
            del tokens[: place + 1]
    return Settings(ici, dcn, changes, tuple(rest))


def _place(key: str, tokens: Sequence[str], most: int) -> int | None:
    """Return where the value of a training key, or the size of an axis, stands among the next words of a clause."""
    for place, token in enumerate(tokens[: most + 1]):
        if _value(key, token) is not None:
            return place
        if token in ",;?!" or token.endswith(".") or {*SETTING_WORDS, *ROLE_WORDS} & {token.lower()}:
            break
    return None


def _split(token: str, mesh: Mesh) -> list[str]:
    """`tp4` as `tp`, `4`, where the letters are an axis or a key."""
    glued = _GLUED.match(token)
    name = glued[1].lower() if glued and token.lower() not in _ALONE else ""
    return [glued[1], glued[2]] if glued and (axis_of(mesh, name) or name in SETTING_WORDS) else [token]


def _value(key: str, text: str) -> Any:
    """The value of a training key; None where it cannot be one."""
    text = text.lower().rstrip(".")
    if key not in _VALUES:
        number = whole_number(text.removesuffix("k"), digits=9)
        return number * (1024 if text.endswith("k") else 1) if number else None
    word = VALUE_WORDS.get(text, text)
    return word if word in _VALUES[key] else None


def typed_value(text: str) -> int | str:
    """A whole number as such, other text as it is."""
    number = whole_number(text, digits=9)
    return text if number is None else number


def axis_of(mesh: Mesh, word: str, is_exact: bool = False) -> str | None:
    """The axis that a word means, by its own name, else by its role; a role that the mesh lacks is named by itself.
    Unless `is_exact`, `data` and `fsdp` mean each other where the mesh has only one of the two.  None: no axis."""
    names = [axis for axis, _ in (*mesh.ici, *mesh.dcn)]
    if own := next((axis for axis in names if axis.lower() == word), None):
        return own
    role = ROLE_WORDS.get(word)
    for wanted in (role, None if is_exact else {"data": "fsdp", "fsdp": "data"}.get(role or "")):
        same = [axis for axis in names if wanted and mesh.role(axis) == ROLE_SYNONYMS.get(wanted, wanted)]
        if same:
            return max(same, key=lambda axis: dict(mesh.ici).get(axis, 1))
    return role


def complete(named: Mapping[str, int], config: ExperimentConfig) -> dict[str, int]:
    """A whole mesh of a slice: the other axes keep their size where the product allows it; else one of them,
    of the batch if possible, takes the rest of the chips; else all are 1, and the rules say what is wrong.

    Axes are in the order in which they were named where that is all wide ones, else each at its usual place.
    """
    mesh, chips = config.mesh, config.hardware.chips_per_slice
    ran = dict(mesh.ici)
    names = list(ran)
    for axis in named:
        if axis not in ran:
            insert_axis(names, axis, mesh)
    sizes = _whole({axis: named.get(axis, ran.get(axis, 1)) for axis in names}, named, config, chips)
    is_ordered = all(axis in named for axis, size in sizes.items() if size > 1)
    return {**{axis: sizes[axis] for axis in named}, **sizes} if is_ordered else sizes


def _whole(sizes: dict[str, int], named: Mapping[str, int], config: ExperimentConfig, chips: int) -> dict[str, int]:
    if prod(sizes.values()) == chips:
        return sizes
    alone = {axis: named.get(axis, 1) for axis in sizes}
    free = sorted(
        (axis for axis in sizes if axis not in named), key=lambda axis: config.mesh.role(axis) not in DATA_ROLES
    )
    for kept in (sizes, alone):
        for axis in free:
            size, over = divmod(chips, prod(n for other, n in kept.items() if other != axis))
            if not over and size:
                return {**kept, axis: size}
    return alone
