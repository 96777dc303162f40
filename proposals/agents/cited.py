"""What a model cites by id: a record of the history, or a passage of the knowledge base, and whether it bears."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from history import moves
from history.record import Record, Side
from proposals.agents.retrieval import PassageFound, Retrieval
from proposals.agents.workbench import Workbench
from proposals.plan import Citation
from proposals.proposer.citations import BOOK, EXCERPT


def citation(around: Retrieval, key: str) -> Citation | None:
    """None where the team may see no such record or passage."""
    record = around.record(key)
    if record is not None:
        return of_record(record)
    passage = around.passage(key)
    return of_passage(passage) if passage is not None else None


def of_record(record: Record) -> Citation:
    effect = (record.effect or record.change).rstrip(".")
    caveat = record.caveats[0] if record.caveats else ""
    said = " ".join(part for part in (effect and f"{effect}.", caveat, record.source and f"({record.source})") if part)
    return Citation("history", record.id, record.title, said, record.url, record.id)


def of_passage(passage: PassageFound) -> Citation:
    text = " ".join(passage.text.split())
    said = text if len(text) <= EXCERPT else text[:EXCERPT].rsplit(" ", 1)[0] + " …"
    if passage.source.startswith(BOOK):
        return Citation("book", passage.section, passage.title, said, passage.url, passage.key)
    work = re.split(r"[,;:]", passage.source)[0]
    return Citation("knowledge", work, passage.title, said, passage.url, passage.key)


#: Training keys by the kind of change (`history.record.CHANGES`) that they are.
_KIND = {"global_batch": "batch", "grad_accum": "batch", "micro_batch": "batch"}


def is_alike(record: Record, mesh: Mapping[str, Mapping[str, int]], changes: Mapping[str, Any], of: Workbench) -> bool:
    """Whether what a record changed is of the kind that a configuration changes: the mesh moved the same way, or the
    same setting."""
    roles = of.config.mesh.axis_roles
    ran = moves.role_sizes(Side(mesh=of.config.mesh.to_json(), axis_roles=roles), fsdp_as_data=True)
    move = moves.doublings(ran, moves.role_sizes(Side(mesh={**_dcn(of), **mesh}, axis_roles=roles), fsdp_as_data=True))
    before, after = (moves.role_sizes(side, fsdp_as_data=True) for side in (record.before, record.after))
    moved = moves.doublings(before, after) if before and after else {}
    if moves.alignment(moved, move) > 0.0:
        return True
    return bool({_KIND.get(key, key) for key in changes} & (set(record.changes) - {"mesh"}))


def _dcn(of: Workbench) -> dict[str, dict[str, int]]:
    return {"dcn": of.config.mesh.to_json().get("dcn", {})}
