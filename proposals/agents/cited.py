"""What a model cites by id: a record of the history, or a passage of the knowledge base, and whether it bears."""

from __future__ import annotations

import re

from history.case import case_of
from history.record import Record
from history.similarity import most_similar
from proposals.agents.retrieval import PassageFound, Retrieval
from proposals.agents.workbench import Workbench
from proposals.candidate import Candidate, MeshAndChanges
from proposals.plan import BOOK, Citation
from proposals.proposer.build import excerpt_of
from proposals.proposer.precedents import case_of_change


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
    said = excerpt_of(passage.text)
    if passage.source.startswith(BOOK):
        return Citation("book", passage.section, passage.title, said, passage.url, passage.key)
    work = re.split(r"[,;:]", passage.source)[0]
    return Citation("knowledge", work, passage.title, said, passage.url, passage.key)


def is_similar(record: Record, item: MeshAndChanges, of: Workbench) -> bool:
    """Whether a record is alike enough to what a configuration changes to be shown beside it (`history.similarity`)."""
    whole = Candidate({**of.config.mesh.to_json(), **item.mesh}, item.changes)
    ours = case_of_change(of.config, of.diagnosis, whole)
    return bool(most_similar([case_of(record)], ours))
