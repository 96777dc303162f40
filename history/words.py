"""The facets of a record in the words that people search with, and a query in the same words."""

from __future__ import annotations

import re

from history.case import family_of, hardware_kind
from history.moves import role_sizes
from history.record import Record

BOTTLENECK_WORDS = {
    "compute": "compute bound flops",
    "memory": "memory bandwidth bound hbm",
    "communication": "communication bound collectives network",
    "input": "input bound data pipeline",
    "host": "host bound",
    "idle": "idle",
}
CHANGE_WORDS = {
    "mesh": "mesh sharding layout parallelism",
    "batch": "batch size",
    "remat": "remat rematerialization recompute activation checkpointing",
    "weight_sharding": "weight sharding fsdp zero",
    "xla_flags": "xla compiler flags overlap",
    "precision": "precision number format",
    "kernel": "kernel attention fusion",
    "model": "model architecture",
    "software": "software version upgrade",
}
ROLE_WORDS = {
    "replica": "replicated data parallel",
    "data": "data parallel",
    "fsdp": "fully sharded data parallel fsdp",
    "seq": "sequence context parallel",
    "model": "model tensor parallel",
    "expert": "expert parallel mixture moe",
    "pipeline": "pipeline parallel stages",
}
FAILURE_WORDS = {
    "out_of_memory": "out of memory oom",
    "does_not_compile": "does not compile compilation error",
    "illegal_mesh": "illegal mesh",
    "numerics": "numerics loss diverged nan",
    "hang": "hang deadlock timeout",
}


def keywords(record: Record) -> str:
    """What the record is about, as words of the field and their synonyms."""
    before, after = role_sizes(record.before), role_sizes(record.after)
    moved = [role for role in ROLE_WORDS if before.get(role, 1) != after.get(role, 1)] if before and after else []
    present = [role for role in ROLE_WORDS if max(before.get(role, 1), after.get(role, 1)) > 1]
    parts = [
        record.chip and f"{hardware_kind(record.chip)} {record.chip} {split(record.chip)}",
        record.chips and f"{record.chips} chips {record.chip}-{record.chips}",
        "x".join(map(str, record.topology)),
        "multislice dcn slices" if record.slices > 1 else "",
        record.model_name and f"{record.model_name} {split(record.model_name)}",
        record.model_family or family_of(record.model_name),
        BOTTLENECK_WORDS.get(record.bottleneck, ""),
        *(CHANGE_WORDS.get(change, "") for change in record.changes),
        *(ROLE_WORDS[role] for role in moved or present),
        record.outcome.replace("_", " "),
        FAILURE_WORDS.get(record.failure, ""),
    ]
    seen: dict[str, None] = {}
    for part in parts:
        for word in str(part or "").split():
            seen.setdefault(word, None)
    return " ".join(seen)


def split(name: str) -> str:
    """A name in its parts, as others may write it: `llama3.1-8b` → `llama3.1 8b llama 3.1`."""
    pieces = re.split(r"[-_/ ]+", name)
    halves = [match.groups() for piece in pieces if (match := re.fullmatch(r"([A-Za-z]{3,})(\d[\d.]*)", piece))]
    return " ".join(dict.fromkeys([*pieces, *(half for pair in halves for half in pair)]))


def query_words(text: str) -> str:
    """A query in words that match `keywords`: `communication-bound` is two words, `v5p-512` stays one."""
    return re.sub(r"(?<=[A-Za-z])-(?=[A-Za-z])", " ", text)


def embedding_text(title: str, keywords: str, change: str, effect: str, remarks: str) -> str:
    """Return what a record's vector is of."""
    return ". ".join(filter(None, (title, keywords, change, effect, remarks[:300])))
