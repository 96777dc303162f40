"""What is known about sharding: documents, and the passages that answers cite."""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Q

from formatting.numbers import whole_number
from jobs.models import Job
from knowledge import passage_file
from knowledge.embedded import Embedded, search_column, stamped

__all__ = ["Document", "Embedded", "EmbeddingJob", "Kind", "Passage", "Question", "State", "search_column", "stamped"]


class Kind(models.TextChoices):
    SHIPPED = "shipped", "Shipped with ASAP Web"
    MARKDOWN = "markdown", "Markdown"
    TEXT = "text", "Text"
    PDF = "pdf", "PDF"


class State(models.TextChoices):
    READING = "reading", "Being read"
    READY = "ready", "Ready"
    FAILED = "failed", "Failed"


class Document(Job):
    """Where passages come from: a file that ships with the product, or one that a team added.

    team: None for a shipped one, which everybody sees.  name: the file's own name, stable for a shipped one.
    path: of the original below the data folder, empty for a shipped one.  version: counts its contents, from 1.
    error: the sentence that says why it could not be read.
    """

    FILE_COLUMNS = ("path",)

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, null=True, blank=True, related_name="documents")
    kind = models.CharField(max_length=10, choices=Kind)
    state = models.CharField(max_length=10, choices=State, default=State.READY)
    error = models.CharField(max_length=300, blank=True)
    title = models.CharField(max_length=300)
    name = models.CharField(max_length=255)
    source = models.CharField(max_length=300, blank=True)  # its source
    url = models.URLField(max_length=500, blank=True)
    chapter = models.CharField(max_length=300, blank=True)
    path = models.CharField(max_length=300, blank=True)
    size_bytes = models.BigIntegerField(default=0)
    pages = models.PositiveIntegerField(null=True, blank=True)
    sha256 = models.CharField(max_length=64)
    version = models.PositiveIntegerField(default=1)
    uploaded_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["title", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["name"], condition=Q(team=None), name="one_shipped_document_per_name"),
            models.UniqueConstraint(fields=["team", "sha256"], name="one_document_per_team_and_content"),
        ]

    def __str__(self) -> str:
        return self.title


class EmbeddingJob(Job):
    """The rows of one model that wait for their vectors.  embedded: the model's label, `knowledge.passage`."""

    class Status(models.TextChoices):
        IDLE = "idle", "Idle"
        QUEUED = "queued", "Queued"
        WORKING = "working", "Working"

    embedded = models.CharField(max_length=100, unique=True)
    status = models.CharField(max_length=10, choices=Status, default=Status.IDLE)
    created_at = models.DateTimeField(auto_now_add=True)


HARDWARE = {"tpu": "TPU", "gpu": "GPU"}


class Passage(Embedded):
    """A statement that can be cited.

    team: the document's; None for a shipped one.  key: stable and unique in the team, what a citation names.
    place: where in the document, as a reader finds it ("page 3", a heading).  retired_at: when a newer version of the
    document dropped it; it is not found any more, but old citations still open it.  version: counts its contents, from
    1.  questions: what it answers, in the words of those who ask; each has a vector of its own (`Question`).  keywords:
    tags, bottlenecks and questions as words to be found by.
    """

    document = models.ForeignKey(Document, on_delete=models.CASCADE, related_name="passages")
    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    key = models.CharField(max_length=120)
    position = models.PositiveIntegerField(default=0)  # in the document
    title = models.CharField(max_length=300)
    text = models.TextField()
    formula = models.TextField(blank=True)
    applies_when = models.TextField(blank=True)
    counter_indications = models.TextField(blank=True)
    source = models.CharField(max_length=300, blank=True)
    section = models.CharField(max_length=300, blank=True)
    url = models.URLField(max_length=500, blank=True)
    place = models.CharField(max_length=300, blank=True)
    tags = ArrayField(models.CharField(max_length=60), default=list, blank=True)
    hardware = ArrayField(models.CharField(max_length=20), default=list, blank=True)  # empty or "any": all
    bottlenecks = ArrayField(models.CharField(max_length=20), default=list, blank=True)
    questions = ArrayField(models.TextField(), default=list, blank=True)
    keywords = models.TextField(blank=True, editable=False)
    version = models.PositiveIntegerField(default=1)
    retired_at = models.DateTimeField(null=True, blank=True)
    search = search_column(A="title", B=("text", "formula"), C=("applies_when", "keywords"), D="section")

    excerpt_fields = ("text",)
    stamped_fields = ("content_hash", "keywords")
    questions_in = "asked"

    class Meta(Embedded.Meta):
        ordering = ["document", "position", "pk"]
        indexes = [*Embedded.Meta.indexes, GinIndex(fields=["bottlenecks"], name="passage_bottlenecks")]
        constraints = [
            models.UniqueConstraint(fields=["key"], condition=Q(team=None), name="one_shipped_passage_per_key"),
            models.UniqueConstraint(fields=["team", "key"], name="one_passage_per_team_and_key"),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def source_line(self) -> str:
        """Where it is to be looked up: the section of its source, or the place in the document."""
        if self.team_id is not None:
            return f"{self.document.title}, {self.place}"
        section = f"section {self.section}" if whole_number(self.section[:1]) is not None else self.section
        return ", ".join(part for part in (self.source, section) if part)

    @property
    def hardware_words(self) -> str:
        """`TPU`, `GPU`; empty for all hardware."""
        names = [HARDWARE.get(name, name) for name in self.hardware]
        return "" if "any" in names else ", ".join(names)

    def embedding_text(self) -> str:
        return passage_file.embedding_text(self.title, self.text, self.tags)

    def stamp(self) -> str:
        self.keywords = " ".join([*self.tags, *self.bottlenecks, *self.questions])
        return super().stamp()


class Question(Embedded):
    """A question that a shipped passage answers, for its vector; words find the passage itself."""

    passage = models.ForeignKey(Passage, on_delete=models.CASCADE, related_name="asked")
    text = models.TextField()

    class Meta(Embedded.Meta):
        indexes = Embedded.Meta.indexes[2:]  # no words, and of vectors all are compared (knowledge.vector_search)

    def __str__(self) -> str:
        return self.text

    def embedding_text(self) -> str:
        return self.text
