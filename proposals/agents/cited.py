"""A citation of what a model cites by id: a record of the history, or a passage of the knowledge base."""

from __future__ import annotations

import re

from history.record import Record
from proposals.agents.surroundings import PassageFound, Surroundings
from proposals.plan import Citation
from proposals.proposer.citations import BOOK, EXCERPT


def citation(around: Surroundings, key: str) -> Citation | None:
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
