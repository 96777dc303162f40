"""Documents of a team: received, read by a worker, replaced by newer ones, deleted.

A document's identity is its content: the same file twice is one document.  Its title makes it a version of another:
the newest that could be read is found, the passages of the older ones are retired, so that what cited them still opens.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Literal

from django.conf import settings
from django.core.files import File
from django.db import IntegrityError, transaction
from django.db.models import Count, Exists, F, Max, OuterRef, Q, QuerySet
from django.utils import timezone

from accounts.models import Role, Team, User
from accounts.permissions import membership_in
from accounts.text import display_name, one_line
from audit import trail
from audit.models import Action
from disk import space
from formatting.text import clean
from jobs.jobs import Jobs, released
from knowledge import documents
from knowledge.documents.errors import DocumentError
from knowledge.documents.kinds import kind_of, too_large
from knowledge.documents.limits import LIMITS
from knowledge.embedding.minilm import NAME
from knowledge.models import Document, Passage, State, stamped
from knowledge.services import embedding

FOLDER = "documents"
#: Documents that are cut into passages.
READING = Jobs(Document, (State.READING,), column="state", team="team")
BATCH = 500

Outcome = Literal["added", "known", "again", "restored"]


@dataclass(frozen=True)
class Received:
    """outcome: `added`; `known`: this content is here already; `again`: it could not be read before and is tried again;
    `restored`: it is an older version, now the current one again."""

    document: Document
    outcome: Outcome

    @property
    def sentence(self) -> str:
        title = self.document.title
        return {
            "added": f"“{title}” was added and is being read.",
            "known": f"This file already exists as “{title}”; nothing was added.",
            "again": f"“{title}” could not be read before; retrying.",
            "restored": f"This file is an earlier version of “{title}”; it is now current again.",
        }[self.outcome]


def owned(teams: list[int] | Team) -> QuerySet[Document]:
    """The documents that teams added, newest first.  replaced: a newer version of the same title is found instead."""
    mine = Document.objects.filter(team__in=teams if isinstance(teams, list) else [teams])
    newer = Document.objects.filter(
        team=OuterRef("team"), title__iexact=OuterRef("title"), state=State.READY, version__gt=OuterRef("version")
    )
    replaced = Exists(newer) & Q(state=State.READY)
    return mine.annotate(replaced=replaced).select_related("uploaded_by").order_by("-created_at", "-pk")


def counted(documents: QuerySet[Document]) -> QuerySet[Document]:
    """With `living`, how many passages each has, and `embedded`, how many of these have their vector."""
    done = Q(passages__embedding_model=NAME, passages__embedded_hash=F("passages__content_hash"))
    return documents.annotate(living=Count("passages"), embedded=Count("passages", filter=done))


def receive(team: Team, user: Any, file: File[bytes], *, title: str = "") -> Received:
    """Store a file and let a worker read it.  title: the file's name unless given.  Raises DocumentError, NoSpace."""
    name = display_name(file.name or "")
    if (file.size or 0) > LIMITS.file_bytes:
        raise too_large(name, LIMITS.file_bytes)
    content = file.read()
    kind = kind_of(name, content)
    title = one_line(title, 300) or PurePath(name).stem.strip() or name
    path = _write(content)
    values = {
        "kind": kind, "name": name, "title": title, "path": path, "size_bytes": len(content), "uploaded_by": user,
        "state": State.READING,
    }  # fmt: skip
    digest = hashlib.sha256(content).hexdigest()
    try:
        with transaction.atomic():
            document = Document.objects.create(team=team, sha256=digest, **values)
    except IntegrityError:
        _absolute(path).unlink(missing_ok=True)
        return _received_before(Document.objects.get(team=team, sha256=digest), content)
    READING.enqueue(document.pk)
    return Received(document, "added")


def read(pk: int) -> None:
    """Cut the file into passages and make it the current version of its title, unless that is done or a live worker
    does it."""
    document = READING.take(pk, _fail)
    if document is None:
        return
    with READING.doing(document, _fail, (DocumentError,)):
        _store(document, documents.read(_absolute(document.path), document.name, document.kind))


def _fail(document: Document, reason: str) -> None:
    rows = READING.row_of_worker(document.pk, document.worker)
    rows.update(state=State.FAILED, error=reason[:300], updated_at=timezone.now(), **released())


def _store(document: Document, content: documents.Read) -> None:
    with transaction.atomic():
        team = _locked(document)
        if team is None or not READING.row_of_worker(document.pk, document.worker).exists():
            return  # deleted meanwhile, or read by another worker
        document.passages.all().delete()
        for start in range(0, len(content.pieces), BATCH):
            Passage.objects.bulk_create(
                stamped(
                    _passage(document, n, piece) for n, piece in enumerate(content.pieces[start : start + BATCH], start)
                )
            )
        document.state, document.error, document.pages = State.READY, content.note[:300], content.pages
        document.worker, document.heartbeat_at, document.attempts = "", None, 0
        _make_current(document)
    embedding.enqueue(Passage)


def delete(document: Document, *, by: User) -> Document | None:
    """Delete a document with its passages; the version before it, if any, is found again and returned."""
    with transaction.atomic():
        _locked(document)
        if not Document.objects.filter(pk=document.pk).exists():
            return None
        before = version_before(document)
        trail.record(
            Action.DOCUMENT_DELETED, document.team, by, about=document.pk, name=document.title, file=document.name,
            version=document.version, sha256=document.sha256, size_bytes=document.size_bytes,
        )  # fmt: skip
        document.passages.all().delete()
        path = document.path
        document.delete()
        if before is not None:
            before.passages.update(retired_at=None)
        transaction.on_commit(lambda: _absolute(path).unlink(missing_ok=True) if path else None)
    return before


def version_before(document: Document) -> Document | None:
    """The version that is found again once this one is deleted; None for one that is not found itself."""
    versions = _versions(document)
    if document.state != State.READY or versions.filter(version__gt=document.version).exists():
        return None
    return versions.order_by("-version").first()


def may_delete(user: Any, document: Document) -> bool:
    """Whoever added it while an engineer, and the team's administrators; a shipped one nobody."""
    membership = membership_in(user, document.team_id) if document.team_id is not None else None
    if membership is None:
        return False
    own = document.uploaded_by_id == user.pk and membership.may(Role.ENGINEER)
    return own or membership.may(Role.ADMINISTRATOR)


def original(document: Document) -> Path:
    """The file as it was added."""
    return _absolute(document.path)


def _received_before(document: Document, content: bytes) -> Received:
    """What to do with a file whose content the team has."""
    there = bool(document.path) and original(document).is_file()
    if document.state == State.FAILED or not there:
        path = document.path if there else _write(content)
        state = State.READING if document.state == State.FAILED else document.state
        Document.objects.filter(pk=document.pk).update(
            state=state, error="", path=path, updated_at=timezone.now(), **released()
        )
        document.refresh_from_db()
        if state == State.READING:
            READING.enqueue(document.pk)
            return Received(document, "again")
    with transaction.atomic():
        _locked(document)
        document.refresh_from_db()
        newer = _versions(document).filter(version__gt=document.version)
        if document.state != State.READY or not newer.exists():
            return Received(document, "known")
        document.passages.update(retired_at=None)
        _make_current(document)
    return Received(document, "restored")


def _versions(document: Document) -> QuerySet[Document]:
    """The other versions of its title that were read."""
    same = Document.objects.filter(team=document.team_id, title__iexact=document.title, state=State.READY)
    return same.exclude(pk=document.pk)


def _make_current(document: Document) -> None:
    """Save it as the newest version; the passages of the others are found no more."""
    others = _versions(document)
    newest = others.aggregate(version=Max("version"))["version"]
    document.version = 1 if newest is None else newest + 1
    document.save()
    Passage.objects.filter(document__in=others, retired_at=None).update(retired_at=timezone.now())


def _passage(document: Document, position: int, piece: documents.Piece) -> Passage:
    return Passage(
        document=document,
        team_id=document.team_id,
        key=f"doc-{document.pk}-{position + 1}",
        position=position,
        title=piece.title or document.title,
        text=clean(piece.text),
        source=document.title,
        section=piece.section,
        place=piece.place,
    )


def _locked(document: Document) -> Team | None:
    """The document's team, so that two versions of a title never both become current."""
    return Team.objects.select_for_update(of=("self",)).filter(documents=document).first()


def _absolute(path: str) -> Path:
    return Path(settings.ASAP_HOME) / path


def _write(content: bytes) -> str:
    path = f"{FOLDER}/{uuid.uuid4().hex}"
    target = _absolute(path)
    space.require(Path(settings.ASAP_HOME), len(content), "The document")
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        target.write_bytes(content)
        target.chmod(0o600)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return path
